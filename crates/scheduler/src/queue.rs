//! When a Pod is decided for: at once, or after its back-off, or when something has happened that can help it. As upstream: active
//! Pods in the order of their priority and then of their coming, those that fitted nowhere aside until an event moves them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use crate::devices::claims::names;
use crate::events::{Event, Plugin, helps};
use crate::pod_info::PodInfo;
use crate::preemption::priority;
use crate::profile::Backoff;

/// After which time a Pod that nothing has helped is tried again all the same. Upstream: 5 min, looked at every 30 s.
pub const FORGOTTEN: Duration = Duration::from_secs(300);

/// The most important first, then who has waited longest: priority, time of coming, number of coming.
type Rank = (Reverse<i32>, Duration, u64);

#[derive(Debug)]
enum Where {
    Active(Rank),
    /// Until then.
    BackingOff(Duration),
    /// Aside since then, kept from nodes by these.
    Aside(Duration, BTreeSet<Plugin>),
    /// A decision is under way.
    Out,
}

#[derive(Debug)]
struct Entry {
    pod: PodInfo,
    since: Duration,
    number: u64,
    attempts: u32,
    place: Where,
    /// When the back-off of the last attempt is over.
    rested: Duration,
}

impl Entry {
    fn rank(&self) -> Rank {
        (Reverse(priority(&self.pod.pod)), self.since, self.number)
    }
}

/// The Pods that wait for a node, by UID. Times are since any fixed start.
#[derive(Debug, Default)]
pub struct Queue {
    entries: HashMap<String, Entry>,
    active: BTreeMap<Rank, String>,
    backing_off: BTreeSet<(Duration, String)>,
    aside: BTreeSet<String>,
    numbers: u64,
    backoff: Backoff,
}

impl Queue {
    /// An empty one.
    #[must_use]
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, ..Self::default() }
    }

    /// A Pod waits, or one that waits has changed. What it asks for may be other than before: it need not wait for an event.
    pub fn put(&mut self, pod: PodInfo, now: Duration) {
        let uid = pod.uid().to_owned();
        let Some(mut entry) = self.lift(&uid) else {
            self.numbers += 1;
            let number = self.numbers;
            let entry =
                Entry { pod, since: now, number, attempts: 0, place: Where::Out, rested: Duration::ZERO };
            return self.wake(uid, entry, now);
        };
        let asks_anew = asks_anew(&entry.pod, &pod);
        entry.pod = pod;
        match entry.place {
            Where::Aside(..) if asks_anew => self.wake(uid, entry, now),
            Where::Active(_) => self.wake(uid, entry, now),
            _ => self.lay(uid, entry),
        }
    }

    /// A Pod waits no more.
    pub fn remove(&mut self, uid: &str) {
        drop(self.lift(uid));
    }

    /// The next Pod. It stays among those that wait until it is removed or put back.
    pub fn next(&mut self, now: Duration) -> Option<PodInfo> {
        self.rest_ends(now);
        let (_, uid) = self.active.pop_first()?;
        let entry = self.entries.get_mut(&uid)?;
        entry.place = Where::Out;
        Some(entry.pod.clone())
    }

    /// A Pod had no place: these have kept it from nodes.
    pub fn set_aside(&mut self, uid: &str, rejected_by: BTreeSet<Plugin>, now: Duration) {
        if let Some(mut entry) = self.lift(uid) {
            entry.tried(now, self.backoff);
            entry.place = Where::Aside(now, rejected_by);
            self.lay(uid.to_owned(), entry);
        }
    }

    /// Something went wrong: the Pod is tried again after its back-off, whatever happens.
    pub fn put_back(&mut self, uid: &str, now: Duration) {
        if let Some(mut entry) = self.lift(uid) {
            entry.tried(now, self.backoff);
            self.wake(uid.to_owned(), entry, now);
        }
    }

    /// Something has happened.
    pub fn happened(&mut self, event: Event, now: Duration) {
        let helped = |entry: &Entry| matches!(&entry.place, Where::Aside(_, by) if helps(event, by));
        self.wake_those(helped, now);
    }

    /// Claims of devices have changed, by namespace and name: who asks for one of them is woken.
    pub fn claims_changed(&mut self, claims: &HashSet<(String, String)>, now: Duration) {
        let asks = |entry: &Entry| {
            let pod = &entry.pod.pod;
            let kept = matches!(&entry.place, Where::Aside(_, by) if by.contains(&Plugin::DynamicResources));
            let namespace = || pod.metadata.namespace.clone().unwrap_or_default();
            kept && names(pod).any(|name| claims.contains(&(namespace(), name.to_owned())))
        };
        if !claims.is_empty() {
            self.wake_those(asks, now);
        }
    }

    /// Wakes those that have been forgotten.
    pub fn flush(&mut self, now: Duration) {
        let old = |entry: &Entry| matches!(entry.place, Where::Aside(since, _) if since + FORGOTTEN <= now);
        self.wake_those(old, now);
    }

    /// The Pods that wait.
    pub fn pods(&self) -> impl Iterator<Item = &PodInfo> {
        self.entries.values().map(|entry| &entry.pod)
    }

    /// A Pod that waits.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&PodInfo> {
        self.entries.get(uid).map(|entry| &entry.pod)
    }

    /// When the next back-off is over, if a Pod is in one; now if one is due.
    #[must_use]
    pub fn due_at(&self) -> Option<Duration> {
        if !self.active.is_empty() {
            return Some(Duration::ZERO);
        }
        self.backing_off.first().map(|(until, _)| *until)
    }

    fn wake_those(&mut self, which: impl Fn(&Entry) -> bool, now: Duration) {
        if self.aside.is_empty() {
            return;
        }
        let woken = self.aside.iter().filter(|uid| self.entries.get(*uid).is_some_and(&which));
        for uid in woken.cloned().collect::<Vec<_>>() {
            if let Some(entry) = self.lift(&uid) {
                self.wake(uid, entry, now);
            }
        }
    }

    fn rest_ends(&mut self, now: Duration) {
        while self.backing_off.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, uid)) = self.backing_off.pop_first() else { return };
            if let Some(entry) = self.lift(&uid) {
                self.wake(uid, entry, now);
            }
        }
    }

    /// Takes an entry out of all orders.
    fn lift(&mut self, uid: &str) -> Option<Entry> {
        let entry = self.entries.remove(uid)?;
        match &entry.place {
            Where::Active(rank) => drop(self.active.remove(rank)),
            Where::BackingOff(until) => drop(self.backing_off.remove(&(*until, uid.to_owned()))),
            Where::Aside(..) => drop(self.aside.remove(uid)),
            Where::Out => {}
        }
        Some(entry)
    }

    /// Active, or in back-off as long as that of the last attempt lasts.
    fn wake(&mut self, uid: String, mut entry: Entry, now: Duration) {
        let rested = entry.rested <= now;
        entry.place = if rested { Where::Active(entry.rank()) } else { Where::BackingOff(entry.rested) };
        self.lay(uid, entry);
    }

    fn lay(&mut self, uid: String, entry: Entry) {
        match &entry.place {
            Where::Active(rank) => drop(self.active.insert(*rank, uid.clone())),
            Where::BackingOff(until) => drop(self.backing_off.insert((*until, uid.clone()))),
            Where::Aside(..) => drop(self.aside.insert(uid.clone())),
            Where::Out => {}
        }
        self.entries.insert(uid, entry);
    }
}

impl Entry {
    fn tried(&mut self, now: Duration, backoff: Backoff) {
        self.rested = now + backoff.after(self.attempts);
        self.attempts += 1;
    }
}

/// Whether a Pod that waits may fit now where it did not before, by a change of its own.
fn asks_anew(old: &PodInfo, new: &PodInfo) -> bool {
    let claims = |pod: &PodInfo| {
        let status = pod.pod.status.as_ref();
        status.and_then(|status| status.resource_claim_statuses.clone())
    };
    old.pod.spec != new.pod.spec
        || old.pod.metadata.labels != new.pod.metadata.labels
        || claims(old) != claims(new)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
