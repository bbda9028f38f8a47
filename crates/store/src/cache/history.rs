//! Recent events, to start a watch in the past and to list the past.

use super::object::{Event, Object, Past};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The most events kept per resource.
const EVENTS: usize = 4096;
/// Seconds that an event is kept at least by age; older ones go when a new one comes.
const AGE: u64 = 300;

/// So many of the newest events keep what was written of them for the watchers to come.
const RECENT: usize = 64;

/// The ring of events of one resource.
#[derive(Debug, Default)]
pub struct History {
    events: VecDeque<Arc<Event>>,
    /// Events up to and including this revision are not all here.
    forgotten: u64,
}

impl History {
    /// A ring that starts after a revision.
    pub fn after(revision: u64) -> Self {
        Self { events: VecDeque::new(), forgotten: revision }
    }

    /// Appends an event and forgets what is too old or too much.
    pub fn push(&mut self, event: Arc<Event>) {
        let oldest = event.at.saturating_sub(AGE);
        self.events.push_back(event);
        if let Some(told) = self.events.len().checked_sub(RECENT).and_then(|at| self.events.get(at)) {
            told.settle();
        }
        while self.events.len() > EVENTS || self.events.front().is_some_and(|e| e.at < oldest) {
            if let Some(event) = self.events.pop_front() {
                self.forgotten = event.revision;
            }
        }
    }

    /// Events up to this revision are not all kept.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// How many events are remembered.
    pub fn count(&self) -> usize {
        self.events.len()
    }

    /// Revision of the newest event; 0 if there is none.
    pub fn newest(&self) -> u64 {
        self.events.back().map_or(0, |e| e.revision)
    }

    /// The events after a revision, oldest first; `None` if some are forgotten.
    pub fn since(&self, revision: u64) -> Option<impl Iterator<Item = &Arc<Event>>> {
        if revision < self.forgotten {
            return None;
        }
        let start = self.events.partition_point(|e| e.revision <= revision);
        Some(self.events.range(start..))
    }

    /// Turns the newest state into that at `revision`; `None` if it cannot be known any more.
    pub fn rewind(&self, objects: &mut BTreeMap<Arc<str>, Arc<Object>>, revision: u64) -> Option<()> {
        let undo: Vec<_> = self.since(revision)?.collect();
        for event in undo.into_iter().rev() {
            match &event.past {
                Past::Absent => drop(objects.remove(&event.object.key)),
                Past::Was(object) => drop(objects.insert(object.key.clone(), object.clone())),
                Past::Unknown => return None,
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::object::Decoded;

    fn object(key: &str, revision: u64) -> Arc<Object> {
        Arc::new(Object { key: key.into(), revision, decoded: Decoded::default() })
    }

    fn event(revision: u64, object: Arc<Object>, past: Past, deleted: bool, at: u64) -> Arc<Event> {
        Arc::new(Event::new(revision, deleted, object, past, at))
    }

    #[test]
    fn the_past_is_rebuilt_backwards() {
        let mut history = History::after(1);
        let (a2, a4, b3) = (object("a", 2), object("a", 4), object("b", 3));
        history.push(event(2, a2.clone(), Past::Absent, false, 10));
        history.push(event(3, b3.clone(), Past::Absent, false, 10));
        history.push(event(4, a4.clone(), Past::Was(a2.clone()), false, 10));
        history.push(event(5, b3.clone(), Past::Was(b3.clone()), true, 10));
        let now = BTreeMap::from([(a4.key.clone(), a4.clone())]);
        for (revision, wanted) in
            [(5, vec![&a4]), (4, vec![&a4, &b3]), (3, vec![&a2, &b3]), (2, vec![&a2]), (1, vec![])]
        {
            let mut then = now.clone();
            history.rewind(&mut then, revision).unwrap();
            assert_eq!(then.values().collect::<Vec<_>>(), wanted, "at {revision}");
        }
        assert!(history.rewind(&mut now.clone(), 0).is_none());
    }

    #[test]
    fn old_events_are_forgotten() {
        let mut history = History::after(0);
        history.push(event(2, object("a", 2), Past::Absent, false, 10));
        history.push(event(3, object("b", 3), Past::Absent, false, 11 + AGE));
        assert_eq!((history.forgotten(), history.newest()), (2, 3));
        assert!(history.since(1).is_none());
        assert_eq!(history.since(2).unwrap().count(), 1);
    }
}
