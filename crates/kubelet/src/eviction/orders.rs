//! Which Pods their workers have to end, and why.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::plan::Eviction;

/// Why a Pod that leaves has failed, as its status says it.
pub const REASON: &str = "Evicted";
/// Seconds that its containers get between the signal and the kill (upstream: `immediateEvictionGracePeriodSeconds`).
pub const GRACE: i64 = 1;

/// Orders that were given, by the Pods' UIDs.
#[derive(Debug, Clone, Default)]
pub struct Orders(Arc<Mutex<BTreeMap<String, String>>>);

impl Orders {
    /// Orders a Pod to leave; false if it had been before.
    pub fn give(&self, eviction: &Eviction) -> bool {
        self.lock().insert(eviction.uid.clone(), eviction.message.clone()).is_none()
    }

    /// Why the Pod has to leave, if it has to.
    #[must_use]
    pub fn why(&self, uid: &str) -> Option<String> {
        self.lock().get(uid).cloned()
    }

    /// Drops the order of a Pod whose worker has ended.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
