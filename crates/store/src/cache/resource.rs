//! All objects under one prefix.

use super::history::History;
use super::horizon::Horizon;
use super::object::{Event, Object, Past};
use super::watcher::{Interest, Watch, Watchers};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

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

/// Which objects a list gives.
pub struct Part<'a> {
    /// Those whose keys start with this.
    pub scope: &'a str,
    /// Those whose keys are at or behind this.
    pub start: Option<&'a str>,
    /// So many at most.
    pub limit: Option<usize>,
    /// Only those for which this is true.
    pub wanted: &'a dyn Fn(&Object) -> bool,
}

impl<'a> Part<'a> {
    /// All whose keys start with `scope`.
    #[must_use]
    pub fn all(scope: &'a str) -> Self {
        Self { scope, start: None, limit: None, wanted: &|_| true }
    }

    fn of(&self, objects: &BTreeMap<Arc<str>, Arc<Object>>, revision: u64) -> Listed {
        let start = self.start.filter(|start| *start > self.scope).unwrap_or(self.scope);
        let mut rest = under(objects, start, self.scope);
        let most = self.limit.unwrap_or(usize::MAX);
        let objects = rest.by_ref().filter(|o| (self.wanted)(o)).take(most).cloned().collect::<Vec<_>>();
        let left = if objects.len() < most { 0 } else { rest.count() };
        Listed { objects, left, revision }
    }
}

/// The objects from a key on, while their keys start with `scope`.
fn under<'m>(
    objects: &'m BTreeMap<Arc<str>, Arc<Object>>,
    start: &str,
    scope: &str,
) -> impl Iterator<Item = &'m Arc<Object>> {
    let from: (Bound<&str>, Bound<&str>) = (Bound::Included(start), Bound::Unbounded);
    objects.range::<str, _>(from).map(|(_, o)| o).take_while(move |o| o.key.starts_with(scope))
}

/// What there is of a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// `/group/resource/`.
    pub prefix: String,
    /// Objects.
    pub objects: usize,
    /// Watchers.
    pub watchers: usize,
    /// Remembered events.
    pub events: usize,
    /// Revision of the newest of them; 0 if there is none.
    pub newest: u64,
}

/// Objects at a revision.
#[derive(Debug, Default)]
pub struct Listed {
    /// In the order of their keys.
    pub objects: Vec<Arc<Object>>,
    /// How many keys of the scope follow, wanted or not.
    pub left: usize,
    /// The revision that they are as of.
    pub revision: u64,
}

/// The objects of one resource.
pub struct Prefix {
    state: RwLock<State>,
    horizon: Arc<Horizon>,
}

struct State {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    history: History,
    watchers: Watchers,
}

impl Prefix {
    pub(super) fn new(forgotten: u64, horizon: Arc<Horizon>) -> Self {
        let history = History::after(forgotten);
        let state = State { objects: BTreeMap::new(), history, watchers: Watchers::default() };
        Self { state: RwLock::new(state), horizon }
    }

    /// The object under a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.read(|state| state.objects.get(key).cloned())
    }

    /// The newest objects.
    #[must_use]
    pub fn list(&self, part: &Part<'_>) -> Listed {
        self.read(|state| part.of(&state.objects, self.revision(state)))
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read(|state| state.objects.len())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What there is.
    #[must_use]
    pub(super) fn count(&self, prefix: &str) -> Count {
        self.read(|state| Count {
            prefix: prefix.to_owned(),
            objects: state.objects.len(),
            watchers: state.watchers.count(),
            events: state.history.count(),
            newest: state.history.newest(),
        })
    }

    /// Whether there is any object whose key starts with `scope`.
    #[must_use]
    pub fn any(&self, scope: &str) -> bool {
        self.read(|state| under(&state.objects, scope, scope).next().is_some())
    }

    /// The objects as they were at a revision, which must have been shown.
    ///
    /// # Errors
    /// [`ListError::Expired`]
    pub fn list_at(&self, part: &Part<'_>, revision: u64) -> Result<Listed, ListError> {
        self.read(|state| {
            let oldest = state.history.forgotten().max(self.horizon.oldest());
            let expired = ListError::Expired { asked: revision, oldest };
            if revision < oldest {
                return Err(expired);
            }
            if state.history.since(revision).ok_or(expired)?.next().is_none() {
                return Ok(part.of(&state.objects, revision));
            }
            let mut objects: BTreeMap<_, _> =
                under(&state.objects, part.scope, part.scope).map(|o| (o.key.clone(), o.clone())).collect();
            state.history.rewind(&mut objects, revision).ok_or(expired)?;
            Ok(part.of(&objects, revision))
        })
    }

    /// Events after a revision.
    ///
    /// # Errors
    /// [`WatchError::Expired`]
    pub fn watch(&self, interest: Interest, after: u64) -> Result<Watch, WatchError> {
        self.write(|state| {
            let oldest = state.history.forgotten();
            let since = state.history.since(after).ok_or(WatchError::Expired { asked: after, oldest })?;
            let backlog = since.filter(|e| interest.wants(e)).cloned().collect();
            Ok(Watch { backlog, live: state.watchers.add(interest) })
        })
    }

    /// The newest objects, and the events after them, without a gap.
    pub fn list_and_watch(&self, part: &Part<'_>, interest: Interest) -> (Listed, Watch) {
        self.write(|state| {
            let listed = part.of(&state.objects, self.revision(state));
            (listed, Watch { backlog: Default::default(), live: state.watchers.add(interest) })
        })
    }

    /// How many watchers there are.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.read(|state| state.watchers.count())
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
            let event = Arc::new(Event::new(revision, deleted, object, past, at));
            state.history.push(event.clone());
            state.watchers.offer(&event);
        });
    }

    pub(super) fn close(&self) {
        self.write(|state| state.watchers.clear());
    }

    /// Everything shown is applied here, and perhaps a little more.
    fn revision(&self, state: &State) -> u64 {
        self.horizon.shown().max(state.history.newest())
    }

    fn read<T>(&self, f: impl FnOnce(&State) -> T) -> T {
        f(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}
