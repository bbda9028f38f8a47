//! The task that applies the feed.

use super::horizon::Horizon;
use super::object::{Decode, Event, Object, Past};
use super::resource::{Count, Prefix};
use crate::store::{Change, Feed, Store, StoreError};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Every object, by resource. Keys are `/group/resource/...`; the first two segments name the resource.
pub struct Cache {
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

struct Inner {
    prefixes: RwLock<HashMap<String, Arc<Prefix>>>,
    decode: Box<Decode>,
    horizon: Arc<Horizon>,
    progress: watch::Sender<u64>,
    forgotten: u64,
}

impl Cache {
    /// Loads everything from the store, then follows it in a task.
    ///
    /// # Errors
    /// What the store says.
    pub async fn start(store: &dyn Store, decode: Box<Decode>) -> Result<Self, StoreError> {
        let snapshot = store.snapshot("/").await?;
        let mut feed = store.feed(snapshot.compacted).await?;
        let inner = Inner {
            prefixes: RwLock::default(),
            decode,
            horizon: Arc::default(),
            progress: watch::Sender::new(0),
            forgotten: snapshot.compacted,
        };
        for entry in snapshot.entries {
            if let Some(object) = inner.object(&entry.key, entry.revision, &entry.value) {
                inner.prefix(prefix_of(&entry.key)).load(object);
            }
        }
        // The kept past, if there is any, is in the feed before the feed is handed out: one batch, perhaps with what
        // is newer than the snapshot at its end. A store without a past says nothing until the first write.
        if let Ok(batch) = feed.try_recv() {
            let split = batch.partition_point(|c| c.revision <= snapshot.revision);
            inner.recall(&batch[..split]);
            inner.apply(&batch[split..]);
            inner.show(batch.revision);
        }
        let shown = inner.horizon.shown().max(snapshot.revision);
        inner.show(shown);
        let inner = Arc::new(inner);
        let task = tokio::spawn(follow(inner.clone(), feed));
        Ok(Self { inner, task })
    }

    /// The objects of a resource; `prefix` is `/group/resource/`.
    #[must_use]
    pub fn prefix(&self, prefix: &str) -> Arc<Prefix> {
        self.inner.prefix(prefix)
    }

    /// The newest revision up to which everything is here.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.inner.horizon.shown()
    }

    /// Waits until a revision is shown; `false` if it is not within the time.
    pub async fn shown(&self, revision: u64, within: Duration) -> bool {
        if self.revision() >= revision {
            return true;
        }
        let mut progress = self.inner.progress.subscribe();
        let reached = progress.wait_for(|p| *p >= revision);
        tokio::time::timeout(within, reached).await.is_ok_and(|r| r.is_ok())
    }

    /// What there is of each resource that has or had objects or watchers.
    #[must_use]
    pub fn counts(&self) -> Vec<Count> {
        let prefixes = self.inner.prefixes.read().unwrap_or_else(PoisonError::into_inner);
        prefixes.iter().map(|(name, prefix)| prefix.count(name)).collect()
    }

    /// Whether the feed is still followed.
    #[must_use]
    pub fn alive(&self) -> bool {
        !self.task.is_finished()
    }

    /// Stops following and ends every watch.
    pub fn close(&self) {
        self.task.abort();
        self.inner.close();
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.close();
    }
}

async fn follow(inner: Arc<Inner>, mut feed: Feed) {
    while let Some(batch) = feed.recv().await {
        inner.apply(&batch);
        inner.show(batch.revision);
    }
    inner.close();
}

/// `/group/resource/` of a key.
fn prefix_of(key: &str) -> &str {
    key.match_indices('/').nth(2).map_or(key, |(at, _)| &key[..=at])
}

impl Inner {
    fn prefix(&self, prefix: &str) -> Arc<Prefix> {
        let known = self.prefixes.read().unwrap_or_else(PoisonError::into_inner).get(prefix).cloned();
        known.unwrap_or_else(|| {
            let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
            let fresh = || Arc::new(Prefix::new(self.forgotten, self.horizon.clone()));
            prefixes.entry(prefix.to_owned()).or_insert_with(fresh).clone()
        })
    }

    fn object(&self, key: &Arc<str>, revision: u64, value: &bytes::Bytes) -> Option<Arc<Object>> {
        let decoded = (self.decode)(key, revision, value);
        if decoded.is_none() {
            tracing::error!(%key, revision, "a stored value is not an object and is left out");
        }
        Some(Arc::new(Object { key: key.clone(), revision, decoded: decoded? }))
    }

    /// Fills the histories with what the loaded objects already contain.
    fn recall(&self, changes: &[Change]) {
        let mut last: HashMap<Arc<str>, Arc<Object>> = HashMap::new();
        for change in changes {
            let Some(object) = self.object(&change.key, change.revision, &change.value) else { continue };
            let before = last.insert(change.key.clone(), object.clone());
            let past = match before {
                _ if change.previous == 0 => Past::Absent,
                Some(before) => Past::Was(before),
                None => Past::Unknown,
            };
            let (revision, deleted, at) = (change.revision, change.deleted, change.at);
            let event = Arc::new(Event::new(revision, deleted, object, past, at));
            self.prefix(prefix_of(&change.key)).remember(event);
        }
    }

    fn apply(&self, changes: &[Change]) {
        for change in changes {
            if let Some(object) = self.object(&change.key, change.revision, &change.value) {
                let prefix = self.prefix(prefix_of(&change.key));
                prefix.apply(object, change.revision, change.deleted, change.at);
            }
        }
        if let Some(last) = changes.last() {
            self.horizon.note(last.revision, last.at);
        }
    }

    fn show(&self, revision: u64) {
        self.horizon.show(revision);
        self.progress.send_replace(revision);
    }

    fn close(&self) {
        for prefix in self.prefixes.read().unwrap_or_else(PoisonError::into_inner).values() {
            prefix.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::prefix_of;

    #[test]
    fn the_first_two_segments_name_the_resource() {
        assert_eq!(prefix_of("/core/pods/default/web"), "/core/pods/");
        assert_eq!(prefix_of("/core/nodes/n1"), "/core/nodes/");
        assert_eq!(prefix_of("/odd"), "/odd");
    }
}
