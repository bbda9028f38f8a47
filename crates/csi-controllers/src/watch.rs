//! What every controller of a driver does: live copies in, a plan, its acts out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use trine_typed::kube::api::ListParams;
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::{Kind, Mirror};

use crate::run::Cx;
use crate::work::{Outcome, Work};

/// The longest pause between two looks, change or not.
const PERIOD: Duration = Duration::from_secs(60);
/// The shortest.
const SHORTEST: Duration = Duration::from_millis(5);
/// The pause between two looks for kinds, in a cluster that does not know them.
const DEFINED: Duration = Duration::from_secs(5);

impl Cx {
    /// A live copy of all objects of a kind.
    pub(crate) fn mirror<K: Kind>(&self, changed: &Arc<Notify>) -> Mirror<K> {
        let (api, config) = (Api::all(self.client.clone()), watcher::Config::default());
        Mirror::start(api, config, Arc::clone(changed), self.stop.clone())
    }

    /// Whether the cluster knows a kind.
    pub(crate) async fn knows<K: Kind>(&self) -> bool {
        Api::<K>::all(self.client.clone()).list(&ListParams::default().limit(1)).await.is_ok()
    }

    /// Waits until `known` says so, for kinds that are no part of Kubernetes and may be defined at any time; false when told to
    /// stop.
    pub(crate) async fn defined<F: Future<Output = bool>>(&self, known: impl Fn() -> F) -> bool {
        while !known().await {
            tokio::select! {
                () = self.stop.cancelled() => return false,
                () = tokio::time::sleep(DEFINED) => {}
            }
        }
        true
    }

    /// Once the copies are `ready`, starts what is due after every change, until the stop. `due` gives each act with the key of
    /// its object.
    pub(crate) async fn follow<A>(
        &self,
        changed: Arc<Notify>,
        ready: impl Future,
        due: impl Fn() -> Vec<(String, A)>,
    ) where
        A: Future<Output = Outcome> + Send + 'static,
    {
        tokio::select! {
            () = self.stop.cancelled() => return,
            _ = ready => {}
        }
        let work = Work::new(Arc::clone(&changed));
        loop {
            let due = due();
            let keys: BTreeSet<&str> = due.iter().map(|(key, _)| key.as_str()).collect();
            work.keep(|key| keys.contains(key));
            for (key, act) in due {
                work.start(&key, act);
            }
            let pause = work.next_due(Instant::now()).unwrap_or(PERIOD).clamp(SHORTEST, PERIOD);
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = changed.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

/// The copies of a kind, by name.
pub(crate) fn by_name<K: ResourceExt>(objects: Vec<Arc<K>>) -> BTreeMap<String, Arc<K>> {
    objects.into_iter().map(|object| (object.name_any(), object)).collect()
}
