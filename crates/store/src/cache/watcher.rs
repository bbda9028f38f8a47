//! One client's queue of events, and which clients an event may concern.

use super::object::{Event, Past};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Events queued for one watcher; one that lets more pile up is closed, and its client lists and watches again.
pub(super) const QUEUE: usize = 1024;

/// The fields by which watchers are found: a thousand nodes that each watch their own Pods cost an event one look-up.
const INDEXED: [&str; 2] = ["spec.nodeName", "metadata.name"];

/// Whether a watcher wants an event. Runs under the resource's lock: it looks and decides, nothing more.
pub type Filter = dyn Fn(&Event) -> bool + Send + Sync;

/// What a watcher wants.
pub struct Interest {
    /// Only keys that start with this.
    scope: String,
    /// Only objects with this value in this field, now or before.
    field: Option<(&'static str, String)>,
    filter: Box<Filter>,
}

impl Interest {
    /// Events of keys that start with `scope`, that the filter wants.
    #[must_use]
    pub fn new(scope: &str, filter: Box<Filter>) -> Self {
        Self { scope: scope.to_owned(), field: None, filter }
    }

    /// Adds that only objects which have this value in this field before or after can be wanted. `required` gives the value
    /// that the filter requires of a field, if it does.
    #[must_use]
    pub fn with_fields<'a>(mut self, required: impl Fn(&str) -> Option<&'a str>) -> Self {
        self.field = INDEXED.iter().find_map(|field| Some((*field, required(field)?.to_owned())));
        self
    }

    fn trigger(&self) -> Trigger {
        match &self.field {
            Some((field, value)) => Trigger::Field(field, value.clone()),
            None if namespace(&self.scope) == Some(self.scope.as_str()) => {
                Trigger::Namespace(self.scope.clone())
            }
            None => Trigger::Any,
        }
    }

    pub(super) fn wants(&self, event: &Event) -> bool {
        event.object.key.starts_with(&self.scope) && (self.filter)(event)
    }
}

/// `/group/resource/namespace/` of a key.
fn namespace(key: &str) -> Option<&str> {
    key.match_indices('/').nth(3).map(|(at, _)| &key[..=at])
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Trigger {
    Any,
    Namespace(String),
    Field(&'static str, String),
}

/// The sending half, kept by the resource.
struct Watcher {
    interest: Interest,
    sender: mpsc::Sender<Arc<Event>>,
}

impl Watcher {
    /// Whether the watcher is still there and keeps up.
    fn offer(&self, event: &Arc<Event>) -> bool {
        if !self.interest.wants(event) {
            return !self.sender.is_closed();
        }
        match self.sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                tracing::info!(scope = self.interest.scope, "a slow watcher is closed");
                false
            }
        }
    }
}

/// All watchers of a resource, by what wakes them.
#[derive(Default)]
pub(super) struct Watchers(HashMap<Trigger, Vec<Watcher>>);

impl Watchers {
    /// Adds a watcher; gives where its events come out.
    pub fn add(&mut self, interest: Interest) -> mpsc::Receiver<Arc<Event>> {
        let (sender, live) = mpsc::channel(QUEUE);
        let watchers = self.0.entry(interest.trigger()).or_default();
        // Those whose clients left while nothing happened.
        watchers.retain(|w| !w.sender.is_closed());
        watchers.push(Watcher { interest, sender });
        live
    }

    /// Tells those whom the event may concern.
    pub fn offer(&mut self, event: &Arc<Event>) {
        if self.0.is_empty() {
            return;
        }
        self.wake(&Trigger::Any, event);
        if let Some(namespace) = namespace(&event.object.key) {
            self.wake(&Trigger::Namespace(namespace.to_owned()), event);
        }
        let before = match &event.past {
            Past::Was(object) => Some(object),
            Past::Absent | Past::Unknown => None,
        };
        for field in INDEXED {
            let now = event.object.field(field);
            let then = before.and_then(|o| o.field(field)).filter(|then| Some(*then) != now);
            for value in [now, then].into_iter().flatten() {
                self.wake(&Trigger::Field(field, value.to_owned()), event);
            }
        }
    }

    fn wake(&mut self, trigger: &Trigger, event: &Arc<Event>) {
        let Some(watchers) = self.0.get_mut(trigger) else { return };
        watchers.retain(|w| w.offer(event));
        if watchers.is_empty() {
            self.0.remove(trigger);
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Ends all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Events in order: those since the revision that the watch began at, then those to come.
#[derive(Debug)]
pub struct Watch {
    pub(super) backlog: VecDeque<Arc<Event>>,
    pub(super) live: mpsc::Receiver<Arc<Event>>,
}

impl Watch {
    /// The next event. `None` when the watcher was too slow or the cache has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        match self.backlog.pop_front() {
            Some(event) => Some(event),
            None => self.live.recv().await,
        }
    }

    /// The same as a poll.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<Event>>> {
        match self.backlog.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None => self.live.poll_recv(cx),
        }
    }

    /// The next event if it is here already.
    pub fn ready(&mut self) -> Option<Arc<Event>> {
        self.backlog.pop_front().or_else(|| self.live.try_recv().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::object::{Decoded, Object};

    fn object(key: &str, node: &str) -> Arc<Object> {
        let fields = vec![
            ("metadata.name".to_owned(), key.rsplit('/').next().unwrap().to_owned()),
            ("spec.nodeName".to_owned(), node.to_owned()),
        ];
        let decoded = Decoded { fields, ..Decoded::default() };
        Arc::new(Object { key: key.into(), revision: 1, decoded })
    }

    fn event(object: Arc<Object>, past: Past) -> Arc<Event> {
        Arc::new(Event::new(2, false, object, past, 0))
    }

    #[test]
    fn an_event_wakes_those_it_concerns_and_looks_at_no_others() {
        let mut watchers = Watchers::default();
        let looked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut add = |scope: &str, field: Option<(&str, &str)>| {
            let count = looked.clone();
            let filter = Box::new(move |_: &Event| {
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                true
            });
            let required = |name: &str| field.filter(|(f, _)| *f == name).map(|(_, value)| value);
            watchers.add(Interest::new(scope, filter).with_fields(required))
        };
        let mut all = add("/core/pods/", None);
        let mut here = add("/core/pods/a/", None);
        let mut there = add("/core/pods/b/", None);
        let mut named = add("/core/pods/a/", Some(("metadata.name", "p")));
        let mut elsewhere = add("/core/pods/b/", Some(("metadata.name", "p")));
        let mut nodes: Vec<_> =
            (0..1000).map(|n| add("/core/pods/", Some(("spec.nodeName", &format!("n{n}"))))).collect();
        let moved = event(object("/core/pods/a/p", "n7"), Past::Was(object("/core/pods/a/p", "n3")));
        watchers.offer(&moved);
        let got = |live: &mut mpsc::Receiver<Arc<Event>>| live.try_recv().is_ok();
        assert!(got(&mut all) && got(&mut here) && got(&mut named));
        assert!(!got(&mut there) && !got(&mut elsewhere));
        let woken: Vec<_> = (0..1000).filter(|n| got(&mut nodes[*n])).collect();
        assert_eq!(woken, [3, 7]);
        assert_eq!(looked.load(std::sync::atomic::Ordering::Relaxed), 5);
        assert_eq!(watchers.count(), 1005);
        drop(nodes);
        watchers.offer(&moved);
        assert_eq!(watchers.count(), 1003);
    }
}
