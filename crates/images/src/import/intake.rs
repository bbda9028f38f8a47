//! From an archive's description to an image in the store.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::archive::ArchiveError;
use super::members::Members;
use super::{docker, layout};
use crate::content::Digest;
use crate::error::ImageError;
use crate::image::{self, Image};
use crate::step;
use crate::store::{ImageStore, Inner, NewImage};
use crate::unpack::{Expect, NewLayer};

/// A layer as an archive has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberLayer {
    pub member: String,
    /// As it lies in the archive, compressed or not.
    pub digest: Option<Digest>,
}

/// An image as an archive describes it.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub config_file: Vec<u8>,
    pub layers: Vec<MemberLayer>,
    pub tags: BTreeSet<String>,
    pub digests: BTreeSet<String>,
    pub manifests: Vec<Vec<u8>>,
}

/// A layer that has to be unpacked.
struct Missing<'a> {
    chain: &'a Digest,
    diff_id: &'a Digest,
    layer: &'a MemberLayer,
}

impl ImageStore {
    /// Imports all images of an archive (`docker save`, or an OCI layout) or of a layout's folder. Nothing of an
    /// image is kept unless all of it is right. It blocks.
    ///
    /// # Errors
    /// [`ImageError::Import`], [`ImageError::Layer`], [`ImageError::Content`], [`ImageError::Io`].
    pub fn import(&self, path: impl AsRef<Path>) -> Result<Vec<Image>, ImageError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let span = tracing::info_span!(
            target: "trine::step", "import", plane = "image", detail = name.as_str(), error = tracing::field::Empty
        );
        let _entered = span.enter();
        step::outcome(&span, self.inner.import(path, &name))
    }
}

impl Inner {
    fn import(&self, path: &Path, name: &str) -> Result<Vec<Image>, ImageError> {
        let members = Members::open(path, &self.session)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let candidates = candidates(&members, &stem)
            .map_err(|source| ImageError::Import { path: path.to_owned(), source })?;
        candidates.into_iter().map(|candidate| self.take_in(path, name, &members, candidate)).collect()
    }

    fn take_in(
        &self,
        path: &Path,
        name: &str,
        members: &Members,
        new: Candidate,
    ) -> Result<Image, ImageError> {
        let content = |why| ImageError::Content { image: name.to_owned(), why };
        let parsed = image::parse(&new.config_file).map_err(content)?;
        if parsed.diff_ids.len() != new.layers.len() {
            let (named, there) = (parsed.diff_ids.len(), new.layers.len());
            return Err(content(format!("its configuration names {named} layers, it has {there}")));
        }
        let chain = image::chain(&parsed.diff_ids);
        let missing: Vec<Missing<'_>> = chain
            .iter()
            .zip(&parsed.diff_ids)
            .zip(&new.layers)
            .map(|((chain, diff_id), layer)| Missing { chain, diff_id, layer })
            .filter(|layer| !self.layers.has(layer.chain))
            .collect();
        let new_layers = self.unpack_all(path, name, members, &missing)?;
        let Candidate { config_file, tags, digests, manifests, .. } = new;
        self.commit(name, NewImage { config_file, parsed, tags, digests, manifests, new_layers })
    }

    /// Unpacks several layers at once; the first failure ends all.
    fn unpack_all(
        &self,
        path: &Path,
        name: &str,
        members: &Members,
        missing: &[Missing<'_>],
    ) -> Result<Vec<(Digest, NewLayer)>, ImageError> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let failed = Mutex::new(None);
        let parent = tracing::Span::current();
        let work = || {
            let _entered = parent.enter();
            while let Some(layer) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = self.unpack_one(path, name, members, layer);
                match outcome {
                    Ok(new) => {
                        done.lock().unwrap_or_else(PoisonError::into_inner).push((layer.chain.clone(), new));
                    }
                    Err(e) => {
                        next.store(missing.len(), Ordering::Relaxed);
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..missing.len().min(self.options.parallel_layers.max(1)) {
                scope.spawn(work);
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(e) => Err(e),
            None => Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn unpack_one(
        &self,
        path: &Path,
        name: &str,
        members: &Members,
        missing: &Missing<'_>,
    ) -> Result<NewLayer, ImageError> {
        let member = &missing.layer.member;
        let span = tracing::info_span!(
            target: "trine::step", "unpack", plane = "image", detail = member.as_str(), error = tracing::field::Empty
        );
        let _entered = span.enter();
        let unpack = || {
            let import = |source| ImageError::Import { path: path.to_owned(), source };
            let reader = members.reader(member).map_err(import)?;
            let reader = reader.ok_or_else(|| import(ArchiveError::Missing { member: member.clone() }))?;
            let expect =
                Expect { blob: missing.layer.digest.clone(), diff_id: Some(missing.diff_id.clone()) };
            NewLayer::unpack(&self.session, &format!("layer {member} of {name}"), reader, &expect)?
                .map_err(|source| ImageError::Layer { image: name.to_owned(), layer: member.clone(), source })
        };
        step::outcome(&span, unpack())
    }
}

fn candidates(members: &Members, stem: &str) -> Result<Vec<Candidate>, ArchiveError> {
    // Newer archives of docker are both; only its own manifest knows all tags.
    if let Some(manifest) = members.description(docker::MANIFEST)? {
        return docker::images(members, &manifest);
    }
    match members.description(layout::INDEX)? {
        Some(index) => layout::images(members, &index, stem),
        None => Err(ArchiveError::NotAnImage),
    }
}
