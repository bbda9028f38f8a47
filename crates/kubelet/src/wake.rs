//! Waking the worker of a Pod, from wherever something happened to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// One bell per Pod.
#[derive(Debug, Clone, Default)]
pub struct Wakers(Arc<Mutex<HashMap<String, Arc<Notify>>>>);

impl Wakers {
    /// The bell of the Pod `uid`, made if there is none.
    #[must_use]
    pub fn bell(&self, uid: &str) -> Arc<Notify> {
        self.lock().entry(uid.to_owned()).or_default().clone()
    }

    /// Rings it. A ring that nobody waits for yet is kept.
    pub fn wake(&self, uid: &str) {
        if let Some(bell) = self.lock().get(uid) {
            bell.notify_one();
        }
    }

    /// Rings all.
    pub fn wake_all(&self) {
        self.lock().values().for_each(|bell| bell.notify_one());
    }

    /// Drops the bell of a Pod whose worker has ended.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
