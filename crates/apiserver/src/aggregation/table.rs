//! Which servers there are at this moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use trine_objects::conditions;
use trine_store::Object;

use super::{GROUP, PLURAL, Remote};
use crate::access::follow::{Derive, Follower};
use crate::http::serve::ServeError;
use crate::metrics::Page;
use crate::openapi;
use crate::pki::Identity;
use crate::registry::{Registry, prefix};
use crate::rotation::Newest;
use crate::status::ApiError;

/// The servers, by the names of their APIServices.
struct Table {
    identity: Arc<Newest>,
    remotes: BTreeMap<String, Arc<Remote>>,
}

impl Derive for Table {
    fn put(&mut self, _source: usize, key: &str, object: &Object) {
        let object: Value = serde_json::from_slice(object.json()).unwrap_or_default();
        let available = conditions::is_true(&object, "Available");
        let known = self.remotes.get(key).filter(|r| r.spec == object["spec"]);
        let remote = match known {
            Some(known) => Some(Arc::clone(known)),
            None => Remote::read(&object, &self.identity).map(Arc::new),
        };
        let Some(remote) = remote else { return drop(self.remotes.remove(key)) };
        remote.set_available(available);
        self.remotes.insert(key.to_owned(), remote);
    }

    fn remove(&mut self, _source: usize, key: &str) {
        self.remotes.remove(key);
    }

    fn clear(&mut self, _source: usize) {
        self.remotes.clear();
    }
}

/// Other servers, each of which serves a group and version.
pub struct Aggregation {
    pub(super) registry: Arc<Registry>,
    table: Follower<Table>,
}

impl Aggregation {
    /// Follows the APIServices; shows `identity` to their servers.
    ///
    /// # Errors
    /// [`ApiError`] if APIServices are not served, or the identity is none.
    pub fn start(registry: Arc<Registry>, identity: watch::Receiver<Identity>) -> Result<Self, ApiError> {
        let services = registry.resource(GROUP, "v1", PLURAL)?;
        let identity = Newest::of(identity, Arc::new(rustls::crypto::ring::default_provider()))
            .map_err(|e: ServeError| ApiError::Internal(e.to_string()))?;
        let source = (prefix(&services), registry.prefix(&services));
        let table = Follower::start(vec![source], Table { identity, remotes: BTreeMap::new() });
        Ok(Self { registry, table })
    }

    /// The server that a path leads to, if it is another.
    #[must_use]
    pub fn of_path(&self, path: &str) -> Option<Arc<Remote>> {
        let (group, rest) = path.strip_prefix("/apis/")?.split_once('/')?;
        let version = rest.split('/').next().filter(|v| !v.is_empty())?;
        self.table.with(|table| {
            if table.remotes.is_empty() {
                return None;
            }
            table.remotes.get(&format!("{version}.{group}")).cloned()
        })
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Remote>> {
        self.table.with(|table| table.remotes.values().cloned().collect())
    }

    /// Writes which of them cannot be asked.
    pub fn show(&self, page: &mut Page) {
        let name = "aggregator_unavailable_apiservice";
        page.family(name, "gauge", "APIServices whose servers cannot be asked.");
        for remote in self.all() {
            page.value(name, &[("name", &remote.name)], f64::from(u8::from(!remote.available())));
        }
    }

    /// What they publish of themselves.
    #[must_use]
    pub fn published(&self) -> Vec<openapi::Foreign> {
        let all = self.all().into_iter();
        all.map(|remote| {
            let learned = remote.learned();
            openapi::Foreign {
                group: remote.group.clone(),
                version: remote.version.clone(),
                three: learned.three.clone(),
                two: learned.two.clone(),
            }
        })
        .collect()
    }
}
