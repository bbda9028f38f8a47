//! One live copy of each kind for all who read in one process.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::left_out::leave_out;
use super::{Kind, Mirror};

/// The copies that were asked for so far. They live until the last clone of this is dropped.
#[derive(Clone)]
pub struct Mirrors {
    all: Arc<All>,
}

struct All {
    client: Client,
    stop: CancellationToken,
    known: Mutex<HashMap<TypeId, Box<dyn Any + Send>>>,
    _end: DropGuard,
}

/// None yet; they are read by this client.
impl From<Client> for Mirrors {
    fn from(client: Client) -> Self {
        let stop = CancellationToken::new();
        let end = stop.clone().drop_guard();
        Self { all: Arc::new(All { client, stop, known: Mutex::default(), _end: end }) }
    }
}

impl Mirrors {
    /// The copy of a kind in all namespaces, of Pods without what only kubelets read.
    pub fn of<K: Kind>(&self) -> Mirror<K> {
        let mut known = self.all.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mirror) = known.get(&TypeId::of::<K>()).and_then(|m| m.downcast_ref::<Mirror<K>>()) {
            return mirror.clone();
        }
        let (api, nobody) = (Api::all(self.all.client.clone()), Arc::new(Notify::new()));
        let (config, stop) = (watcher::Config::default(), self.all.stop.clone());
        let mirror = Mirror::begin(api, config, nobody, stop, leave_out);
        known.insert(TypeId::of::<K>(), Box::new(mirror.clone()));
        mirror
    }
}
