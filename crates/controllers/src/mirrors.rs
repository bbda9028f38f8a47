//! One live copy of each kind for all controllers.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{Api, Client};
use trine_typed::mirror::Mirror;

use crate::workload::wake::Kind;

/// The copies that were asked for so far.
pub struct Mirrors {
    client: Client,
    stop: CancellationToken,
    known: Mutex<HashMap<TypeId, Box<dyn Any + Send>>>,
}

impl Mirrors {
    /// None yet; they read by `client` until `stop`.
    #[must_use]
    pub fn new(client: Client, stop: CancellationToken) -> Self {
        Self { client, stop, known: Mutex::default() }
    }

    /// The copy of a kind in all namespaces.
    pub fn of<K: Kind>(&self) -> Mirror<K> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mirror) = known.get(&TypeId::of::<K>()).and_then(|m| m.downcast_ref::<Mirror<K>>()) {
            return mirror.clone();
        }
        let (api, nobody) = (Api::all(self.client.clone()), Arc::new(Notify::new()));
        let mirror = Mirror::start(api, watcher::Config::default(), nobody, self.stop.clone());
        known.insert(TypeId::of::<K>(), Box::new(mirror.clone()));
        mirror
    }
}
