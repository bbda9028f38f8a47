//! A store that keeps nothing but memory and tells somebody of every write at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use trine_store::store::Feed;
use trine_store::{Change, Entry, Expect, News, Op, Snapshot, Store, StoreError, Write};

/// Hears of a write: its revision, the key, and what it has now.
pub type Witness = Box<dyn FnMut(u64, &str, Option<&Bytes>) + Send>;

/// The store.
pub struct Memory {
    state: Mutex<State>,
}

struct State {
    revision: u64,
    entries: BTreeMap<Arc<str>, (u64, Bytes)>,
    feeds: Vec<mpsc::UnboundedSender<News>>,
    witness: Witness,
}

impl Memory {
    /// An empty one.
    pub fn new(witness: Witness) -> Self {
        let state = State { revision: 1, entries: BTreeMap::new(), feeds: Vec::new(), witness };
        Self { state: Mutex::new(state) }
    }

    fn with<T: Send + 'static>(&self, what: impl FnOnce(&mut State) -> T) -> BoxFuture<'_, T> {
        std::future::ready(what(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))).boxed()
    }
}

impl State {
    fn write(&mut self, write: Write) -> Result<u64, StoreError> {
        let actual = self.entries.get(&write.key).map_or(0, |(revision, _)| *revision);
        let expected = match write.expect {
            Expect::Absent => 0,
            Expect::At(revision) => revision,
        };
        if actual != expected {
            return Err(StoreError::Conflict { key: write.key, expected, actual, newest: self.revision });
        }
        self.revision += 1;
        let revision = self.revision;
        let (deleted, value) = match write.op {
            Op::Put { value, .. } => {
                self.entries.insert(Arc::clone(&write.key), (revision, value.clone()));
                (self.witness)(revision, &write.key, Some(&value));
                (false, value)
            }
            Op::Delete { last } => {
                let before = self.entries.remove(&write.key).map(|(_, value)| value);
                (self.witness)(revision, &write.key, None);
                (true, last.or(before).unwrap_or_default())
            }
        };
        let at = trine_clock::now().as_second().unsigned_abs();
        let change = Change { revision, key: write.key, previous: actual, deleted, value, at };
        let news = News { changes: Arc::new([change]), revision };
        self.feeds.retain(|feed| feed.send(news.clone()).is_ok());
        Ok(revision)
    }
}

impl Store for Memory {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.with(|state| state.write(write))
    }

    fn snapshot(&self, prefix: &str) -> BoxFuture<'_, Result<Snapshot, StoreError>> {
        let prefix = prefix.to_owned();
        self.with(move |state| {
            let of_it = state.entries.iter().filter(|(key, _)| key.starts_with(&prefix));
            let entries = of_it
                .map(|(key, (revision, value))| Entry {
                    key: Arc::clone(key),
                    revision: *revision,
                    expires: 0,
                    value: value.clone(),
                })
                .collect();
            Ok(Snapshot { entries, revision: state.revision, compacted: state.revision })
        })
    }

    fn feed(&self, _after: u64) -> BoxFuture<'_, Result<Feed, StoreError>> {
        self.with(|state| {
            let (sender, receiver) = mpsc::unbounded_channel();
            state.feeds.push(sender);
            Ok(receiver)
        })
    }

    fn compact(&self, _through: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        self.with(|_| Ok(()))
    }

    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.with(|state| Ok(state.revision))
    }
}
