//! What was acknowledged is there after any end of the process, and after any end of the machine.
//!
//! - [`killed`] `kill -9` of a process that writes, at random moments
//! - [`torn`] files as a machine leaves them that stops in the middle of a write

#![allow(clippy::unwrap_used, missing_docs)]

mod killed;
mod torn;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use trine_store::redb::{Limits, RedbStore};
use trine_store::{Change, Store};

/// Numbers that are the same in every run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of `0..below`.
    pub fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % below.max(1)
    }
}

/// A folder in memory where there is one: these tests end processes, not the machine, and `fsync` costs nothing there.
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::tempdir_in(parent).unwrap()
}

/// All that the history may hold.
pub fn everything() -> Limits {
    Limits { changes: usize::MAX, ..Limits::default() }
}

/// Opens the store and looks at all of it: the history has no hole, ends at the newest revision, and leads to exactly the
/// current values. Gives the history by revision.
pub async fn examine(dir: &Path) -> BTreeMap<u64, Change> {
    let store = Arc::new(RedbStore::open(&dir.join("store.redb"), everything()).unwrap());
    let snapshot = store.snapshot("/").await.unwrap();
    let mut feed = store.feed(snapshot.compacted).await.unwrap();
    let history: Vec<Change> = feed.try_recv().map(|news| news.to_vec()).unwrap_or_default();
    let mut current = BTreeMap::new();
    for (change, revision) in history.iter().zip(snapshot.compacted + 1..) {
        assert_eq!(change.revision, revision, "a hole in the revisions");
        if change.deleted {
            current.remove(&change.key);
        } else {
            current.insert(change.key.clone(), (change.revision, change.value.clone()));
        }
    }
    assert_eq!(snapshot.compacted + history.len() as u64, snapshot.revision);
    assert_eq!(store.revision().await.unwrap(), snapshot.revision);
    let newer: Vec<_> = snapshot.entries.iter().filter(|e| e.revision > snapshot.compacted).collect();
    assert_eq!(newer.len(), current.len());
    for entry in newer {
        assert_eq!(current.get(&entry.key), Some(&(entry.revision, entry.value.clone())), "{}", entry.key);
    }
    history.into_iter().map(|c| (c.revision, c)).collect()
}
