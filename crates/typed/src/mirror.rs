//! A live copy of one kind, kept by a watch, with a wake-up on every change. What reconcilers read.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long [`Mirror::ready`] waits for the first list before it says so in the log, and goes on waiting.
const SLOW_LIST: Duration = Duration::from_secs(10);

/// A live copy of the objects of one kind.
#[derive(Clone)]
pub struct Mirror<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
}

impl<K> Mirror<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Hash + Eq + Default,
{
    /// Starts the copy of what `api` lists under `config`. `changed` is notified after every change.
    #[must_use]
    pub fn start(
        api: Api<K>,
        config: watcher::Config,
        changed: Arc<Notify>,
        stop: CancellationToken,
    ) -> Self {
        let (store, writer) = reflector::store();
        let stream = reflector::reflector(writer, watcher(api, config)).default_backoff();
        tokio::spawn(async move {
            let mut stream = std::pin::pin!(stream);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    event = stream.next() => match event {
                        Some(Ok(_)) => changed.notify_one(),
                        Some(Err(error)) => tracing::debug!(kind = %K::kind(&()), %error, "watch interrupted"),
                        None => return,
                    }
                }
            }
        });
        Self { store }
    }

    /// Waits until the first list has arrived.
    pub async fn ready(&self) {
        loop {
            match tokio::time::timeout(SLOW_LIST, self.store.wait_until_ready()).await {
                Ok(_) => return,
                Err(_) => tracing::warn!(kind = %K::kind(&()), "still waiting for the first list"),
            }
        }
    }

    /// All objects, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// The object `name` in `namespace` (empty for kinds without one).
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let mut key = reflector::ObjectRef::<K>::new(name);
        if !namespace.is_empty() {
            key = key.within(namespace);
        }
        self.store.get(&key)
    }
}
