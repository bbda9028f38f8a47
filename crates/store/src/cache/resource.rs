//! All objects under one prefix.

use super::history::History;
use super::object::{Event, Object, Past};
use super::watcher::{Filter, QUEUE, Watch, Watcher};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::mpsc;

/// Why a list is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// What was at that revision is no longer known.
    #[error("revision {asked} is forgotten, the oldest known is {oldest}")]
    Expired {
        /// The revision asked for.
        asked: u64,
        /// The oldest that can be listed.
        oldest: u64,
    },
}

/// Why a watch cannot begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// Events after that revision are no longer all kept.
    #[error("revision {asked} is forgotten, the oldest known is {oldest}")]
    Expired {
        /// The revision asked for.
        asked: u64,
        /// The oldest from which a watch can begin.
        oldest: u64,
    },
}

/// Objects at a revision.
#[derive(Debug, Default)]
pub struct Listed {
    /// In the order of their keys.
    pub objects: Vec<Arc<Object>>,
    /// The revision that they are as of.
    pub revision: u64,
}

/// The objects of one resource.
pub struct Prefix {
    state: RwLock<State>,
    shown: Arc<AtomicU64>,
}

struct State {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    history: History,
    watchers: Vec<Watcher>,
}

impl State {
    fn under(&self, scope: &str) -> impl Iterator<Item = &Arc<Object>> {
        let from: (Bound<&str>, Bound<&str>) = (Bound::Included(scope), Bound::Unbounded);
        self.objects.range::<str, _>(from).map(|(_, o)| o).take_while(move |o| o.key.starts_with(scope))
    }
}

impl Prefix {
    pub(super) fn new(forgotten: u64, shown: Arc<AtomicU64>) -> Self {
        let state =
            State { objects: BTreeMap::new(), history: History::after(forgotten), watchers: Vec::new() };
        Self { state: RwLock::new(state), shown }
    }

    /// The object under a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.read(|state| state.objects.get(key).cloned())
    }

    /// The newest objects whose keys start with `scope`.
    #[must_use]
    pub fn list(&self, scope: &str) -> Listed {
        self.read(|state| Listed {
            objects: state.under(scope).cloned().collect(),
            revision: self.revision(state),
        })
    }

    /// Whether there is any object whose key starts with `scope`.
    #[must_use]
    pub fn any(&self, scope: &str) -> bool {
        self.read(|state| state.under(scope).next().is_some())
    }

    /// The objects as they were at a revision, which must have been shown.
    ///
    /// # Errors
    /// [`ListError::Expired`]
    pub fn list_at(&self, scope: &str, revision: u64) -> Result<Listed, ListError> {
        self.read(|state| {
            let mut objects: BTreeMap<_, _> =
                state.under(scope).map(|o| (o.key.clone(), o.clone())).collect();
            let oldest = state.history.forgotten();
            state
                .history
                .rewind(&mut objects, revision)
                .ok_or(ListError::Expired { asked: revision, oldest })?;
            objects.retain(|key, _| key.starts_with(scope));
            Ok(Listed { objects: objects.into_values().collect(), revision })
        })
    }

    /// Events after a revision, of keys that start with `scope`, that the filter wants.
    ///
    /// # Errors
    /// [`WatchError::Expired`]
    pub fn watch(&self, scope: &str, after: u64, filter: Box<Filter>) -> Result<Watch, WatchError> {
        self.write(|state| {
            let (sender, live) = mpsc::channel(QUEUE);
            let watcher = Watcher { scope: scope.to_owned(), filter, sender };
            let oldest = state.history.forgotten();
            let since = state.history.since(after).ok_or(WatchError::Expired { asked: after, oldest })?;
            let backlog = since.filter(|e| watcher.wants(e)).cloned().collect();
            state.watchers.push(watcher);
            Ok(Watch { backlog, live })
        })
    }

    /// The newest objects, and the events after them, without a gap.
    pub fn list_and_watch(&self, scope: &str, filter: Box<Filter>) -> (Listed, Watch) {
        self.write(|state| {
            let (sender, live) = mpsc::channel(QUEUE);
            state.watchers.push(Watcher { scope: scope.to_owned(), filter, sender });
            let listed =
                Listed { objects: state.under(scope).cloned().collect(), revision: self.revision(state) };
            (listed, Watch { backlog: Default::default(), live })
        })
    }

    /// How many watchers there are.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.read(|state| state.watchers.len())
    }

    /// Puts an object in place without an event.
    pub(super) fn load(&self, object: Arc<Object>) {
        self.write(|state| drop(state.objects.insert(object.key.clone(), object)));
    }

    /// Remembers an event that `load` has already taken into account.
    pub(super) fn remember(&self, event: Arc<Event>) {
        self.write(|state| state.history.push(event));
    }

    /// Applies a change: the objects, then the history, then the watchers.
    pub(super) fn apply(&self, object: Arc<Object>, revision: u64, deleted: bool, at: u64) {
        self.write(|state| {
            let before = if deleted {
                state.objects.remove(&object.key)
            } else {
                state.objects.insert(object.key.clone(), object.clone())
            };
            let past = before.map_or(Past::Absent, Past::Was);
            let event = Arc::new(Event { revision, deleted, object, past, at });
            state.history.push(event.clone());
            state.watchers.retain(|w| w.offer(&event));
        });
    }

    pub(super) fn close(&self) {
        self.write(|state| state.watchers.clear());
    }

    /// Everything shown is applied here, and perhaps a little more.
    fn revision(&self, state: &State) -> u64 {
        self.shown.load(Ordering::Acquire).max(state.history.newest())
    }

    fn read<T>(&self, f: impl FnOnce(&State) -> T) -> T {
        f(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}
