//! A pull from start to end; several who want the same at once share one.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, Shared, WeakShared};
use futures::{FutureExt, StreamExt, TryStreamExt};
use tracing::Instrument;
use trine_kernel::testing::failpoint;

use super::auth::Auth;
use super::layer::{self, Wanted};
use super::manifest::{self, Resolved};
use super::registry::Registry;
use crate::error::ImageError;
use crate::image::{self, Image};
use crate::name::ImageName;
use crate::step;
use crate::store::{ImageStore, Inner, NewImage};

type Outcome = Result<Image, Arc<ImageError>>;
type Running = Shared<BoxFuture<'static, Outcome>>;
type Known = WeakShared<BoxFuture<'static, Outcome>>;

/// The pulls in progress.
#[derive(Default)]
pub(crate) struct Pulls {
    running: Mutex<HashMap<(String, Option<Auth>), Known>>,
}

impl ImageStore {
    /// Pulls an image by tag or digest. The same pull by several callers runs once; it ends when all of them have
    /// gone.
    ///
    /// # Errors
    /// [`ImageError::Reference`], [`ImageError::Pull`] with the registry's words, [`ImageError::Layer`],
    /// [`ImageError::Content`], [`ImageError::Io`].
    pub async fn pull(&self, reference: &str, auth: Option<Auth>) -> Result<Image, ImageError> {
        let name = ImageName::parse(reference)?;
        let running = self.join(name, auth);
        running.await.map_err(|e| Arc::try_unwrap(e).unwrap_or_else(ImageError::Shared))
    }

    fn join(&self, name: ImageName, auth: Option<Auth>) -> Running {
        let mut running = self.inner.pulls.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|_, pull| pull.upgrade().is_some());
        let key = (name.to_string(), auth.clone());
        if let Some(pull) = running.get(&key).and_then(WeakShared::upgrade) {
            return pull;
        }
        let pull = pull(Arc::clone(&self.inner), name, auth)
            .map(|outcome| outcome.map_err(Arc::new))
            .boxed()
            .shared();
        if let Some(weak) = pull.downgrade() {
            running.insert(key, weak);
        }
        pull
    }
}

async fn pull(inner: Arc<Inner>, name: ImageName, auth: Option<Auth>) -> Result<Image, ImageError> {
    let span = tracing::info_span!(
        target: "trine::step", "PullImage", plane = "image", detail = name.to_string().as_str(),
        error = tracing::field::Empty
    );
    let run = pull_quietly(inner, name, auth).instrument(span.clone());
    step::outcome(&span, run.await)
}

async fn pull_quietly(inner: Arc<Inner>, name: ImageName, auth: Option<Auth>) -> Result<Image, ImageError> {
    let options = inner.options.clone();
    let registry = Registry::new(&name, auth.as_ref(), &options.registries, options.progress_timeout)
        .map_err(|source| ImageError::Pull {
            image: name.to_string(),
            registry: name.registry().to_owned(),
            source,
        })?;
    let registry = Arc::new(registry);
    let resolved = manifest::resolve(&registry, &name, |digest| inner.blobs.get(digest)).await?;
    failpoint("pull: resolved");
    let wanted = wanted(&inner, &name, &resolved);
    let fetches = futures::stream::iter(wanted)
        .map(|wanted| layer::fetch(Arc::clone(&inner), Arc::clone(&registry), wanted))
        .buffer_unordered(options.parallel_layers.max(1));
    let new_layers = fetches.try_collect::<Vec<_>>().await?;
    failpoint("pull: unpacked");
    let new = NewImage {
        config_file: resolved.config_file,
        parsed: resolved.parsed,
        tags: name.tagged().into_iter().collect(),
        digests: BTreeSet::from([name.with_digest(resolved.digest.as_str())]),
        manifests: resolved.manifests,
        new_layers,
    };
    let shown = name.to_string();
    let committed = tokio::task::spawn_blocking(move || inner.commit(&shown, new)).await;
    committed.map_err(|_| ImageError::Content {
        image: name.to_string(),
        why: "putting it away panicked".into(),
    })?
}

/// The layers that are not here yet.
fn wanted(inner: &Inner, name: &ImageName, resolved: &Resolved) -> Vec<Wanted> {
    let chain = image::chain(&resolved.parsed.diff_ids);
    let layers = chain.into_iter().zip(&resolved.parsed.diff_ids).zip(&resolved.layers);
    layers
        .filter(|((chain, _), _)| !inner.layers.has(chain))
        .map(|((chain, diff_id), (blob, size))| Wanted {
            image: name.to_string(),
            host: name.registry().to_owned(),
            chain,
            diff_id: diff_id.clone(),
            blob: blob.clone(),
            size: *size,
        })
        .collect()
}
