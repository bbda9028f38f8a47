//! Who waits for whom: operations on one container one after the other, GC alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::spec::{CniError, Code};

/// How long an operation waits for its turn: two plugins that run into their deadlines, and some.
const PATIENCE: Duration = Duration::from_secs(300);

/// The order of operations.
#[derive(Debug, Default)]
pub struct Order {
    gate: Arc<RwLock<()>>,
    containers: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// The turn of an operation on one container; the next may start when it is dropped.
#[derive(Debug)]
pub struct Turn {
    _gate: OwnedRwLockReadGuard<()>,
    _container: OwnedMutexGuard<()>,
}

async fn patiently<T>(what: &str, wait: impl Future<Output = T>) -> Result<T, CniError> {
    tokio::time::timeout(PATIENCE, wait).await.map_err(|_| {
        CniError::new(Code::TryAgainLater, format!("{what} has not ended for {} s", PATIENCE.as_secs()))
    })
}

impl Order {
    /// Waits until no other operation on `container` and no GC runs.
    ///
    /// # Errors
    /// [`Code::TryAgainLater`].
    pub async fn container(&self, container: &str) -> Result<Turn, CniError> {
        let gate = patiently("GC", Arc::clone(&self.gate).read_owned()).await?;
        let lock = self.lock_of(container);
        let held = patiently("another operation on this container", lock.lock_owned()).await?;
        Ok(Turn { _gate: gate, _container: held })
    }

    /// Waits until nothing else runs.
    ///
    /// # Errors
    /// [`Code::TryAgainLater`].
    pub async fn alone(&self) -> Result<OwnedRwLockWriteGuard<()>, CniError> {
        patiently("ADD or DEL", Arc::clone(&self.gate).write_owned()).await
    }

    fn lock_of(&self, container: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut containers = self.containers.lock().unwrap_or_else(PoisonError::into_inner);
        // Locks that nobody holds or waits for are in this map alone.
        containers.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(containers.entry(container.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn operations_on_one_container_follow_one_another_and_gc_is_alone() {
        let order = Arc::new(Order::default());
        let first = order.container("a").await.unwrap();
        let _other = order.container("b").await.unwrap();
        let waiting = tokio::spawn({
            let order = Arc::clone(&order);
            async move { order.container("a").await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let error = order.alone().await.map(drop).unwrap_err();
        assert_eq!(error.code, Code::TryAgainLater);
        assert!(waiting.await.unwrap().is_err(), "nobody waits for ever");
        drop(first);
        order.container("a").await.unwrap();
    }
}
