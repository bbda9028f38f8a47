//! Keys that wait for their reconcile: each once, never two of the same key at a time, later when that was asked for, and ever
//! later after failures.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The wait after a first failure; it doubles with each further one. Upstream: 5 ms.
const FIRST_RETRY: Duration = Duration::from_millis(5);
/// The longest wait after a failure. Upstream waits up to 1,000 s, which its users met as rollouts that stood still.
const LAST_RETRY: Duration = Duration::from_secs(60);

/// What becomes of a key after its reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until somebody adds it.
    Wait,
    /// It is looked at again after this time, at the latest.
    After(Duration),
    /// It failed: it is tried again, later after each failure in a row.
    Retry,
}

/// A queue of keys.
#[derive(Debug)]
pub struct WorkQueue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    ready: VecDeque<T>,
    /// All of `ready`, and what was added while it is worked on.
    wanted: HashSet<T>,
    working: HashSet<T>,
    /// When what waits is due; the number tells apart what is due at the same time.
    later: BTreeMap<(Instant, u64), T>,
    due: HashMap<T, (Instant, u64)>,
    number: u64,
    failures: HashMap<T, u32>,
}

impl<T> Default for WorkQueue<T> {
    fn default() -> Self {
        let state = State {
            ready: VecDeque::new(),
            wanted: HashSet::new(),
            working: HashSet::new(),
            later: BTreeMap::new(),
            due: HashMap::new(),
            number: 0,
            failures: HashMap::new(),
        };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl<T: Clone + Eq + Hash + Debug + Send + 'static> WorkQueue<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key is looked at as soon as a worker is free; if it is being worked on, once more after that.
    pub fn add(&self, key: T) {
        self.state().add(key);
        self.changed.notify_one();
    }

    /// The key is looked at after `wait`, or earlier if that was asked for before.
    pub fn add_after(&self, key: T, wait: Duration) {
        self.state().add_at(key, Instant::now() + wait);
        self.changed.notify_one();
    }

    /// Works on keys, on at most `workers` at a time, until `stop`. A reconcile that panics counts as failed.
    pub async fn work<F, Fut>(self: &Arc<Self>, workers: usize, stop: &CancellationToken, reconcile: F)
    where
        F: Fn(T) -> Fut,
        Fut: Future<Output = Next> + Send + 'static,
    {
        let free = Arc::new(Semaphore::new(workers));
        let tasks = TaskTracker::new();
        while !stop.is_cancelled() {
            let turn = tokio::select! {
                () = stop.cancelled() => break,
                turn = Arc::clone(&free).acquire_owned() => turn,
            };
            let key = tokio::select! {
                () = stop.cancelled() => break,
                key = self.next() => key,
            };
            let end = End { queue: Arc::clone(self), key: key.clone(), next: Next::Retry };
            let work = reconcile(key);
            tasks.spawn(async move {
                let (_turn, mut end) = (turn, end);
                end.next = work.await;
            });
        }
        tasks.close();
        tasks.wait().await;
    }

    /// The next key, once it is due.
    async fn next(&self) -> T {
        loop {
            let due = match self.state().take(Instant::now()) {
                Ok(key) => return key,
                Err(due) => due,
            };
            let wait = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = wait => {}
            }
        }
    }
}

impl<T: Clone + Eq + Hash> State<T> {
    fn add(&mut self, key: T) {
        if self.wanted.insert(key.clone()) && !self.working.contains(&key) {
            self.ready.push_back(key);
        }
    }

    fn add_at(&mut self, key: T, at: Instant) {
        if let Some(due) = self.due.get(&key).copied() {
            if due.0 <= at {
                return;
            }
            self.later.remove(&due);
        }
        self.number += 1;
        self.later.insert((at, self.number), key.clone());
        self.due.insert(key, (at, self.number));
    }

    /// A key to work on, or when the next is due.
    fn take(&mut self, now: Instant) -> Result<T, Option<Instant>> {
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            self.due.remove(&key);
            self.add(key);
        }
        let Some(key) = self.ready.pop_front() else {
            return Err(self.later.keys().next().map(|(at, _)| *at));
        };
        self.wanted.remove(&key);
        self.working.insert(key.clone());
        Ok(key)
    }

    fn done(&mut self, key: T, next: Next, now: Instant) {
        self.working.remove(&key);
        if self.wanted.contains(&key) {
            self.ready.push_back(key.clone());
        }
        match next {
            Next::Wait => {
                self.failures.remove(&key);
            }
            Next::After(wait) => {
                self.failures.remove(&key);
                self.add_at(key, now + wait);
            }
            Next::Retry => {
                let failures = self.failures.entry(key.clone()).or_default();
                let wait = FIRST_RETRY.saturating_mul(1 << (*failures).min(20)).min(LAST_RETRY);
                *failures += 1;
                self.add_at(key, now + wait);
            }
        }
    }
}

/// Gives the key back when its reconcile has ended, in whichever way.
struct End<T: Clone + Eq + Hash + Debug + Send + 'static> {
    queue: Arc<WorkQueue<T>>,
    key: T,
    next: Next,
}

impl<T: Clone + Eq + Hash + Debug + Send + 'static> Drop for End<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(key = ?self.key, "a reconcile panicked; it will be tried again");
        }
        self.queue.state().done(self.key.clone(), self.next, Instant::now());
        self.queue.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Log = Arc<Mutex<Vec<(&'static str, Duration)>>>;

    /// Works with what `reconcile` says for the how-manieth time, for ten minutes.
    async fn worked(
        queue: &Arc<WorkQueue<&'static str>>,
        reconcile: impl Fn(usize) -> Next + Send + Sync + 'static,
    ) -> Vec<(&'static str, Duration)> {
        let (log, start, stop) = (Log::default(), Instant::now(), CancellationToken::new());
        let reconcile = Arc::new(reconcile);
        let work = queue.work(2, &stop, |key| {
            let (log, reconcile) = (Arc::clone(&log), Arc::clone(&reconcile));
            async move {
                let count = log.lock().unwrap().len();
                log.lock().unwrap().push((key, start.elapsed()));
                reconcile(count)
            }
        });
        let end = async {
            tokio::time::sleep(Duration::from_secs(600)).await;
            stop.cancel();
        };
        tokio::join!(work, end);
        log.lock().unwrap().clone()
    }

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_often_is_worked_on_once() {
        let queue = Arc::new(WorkQueue::default());
        for key in ["a", "b", "a", "a"] {
            queue.add(key);
        }
        let log = worked(&queue, |_| Next::Wait).await;
        assert_eq!(log.iter().map(|(key, _)| *key).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_of_several_times_counts() {
        let queue = Arc::new(WorkQueue::default());
        queue.add_after("a", MS * 900);
        queue.add_after("a", MS * 300);
        queue.add_after("a", MS * 500);
        assert_eq!(worked(&queue, |_| Next::Wait).await, [("a", MS * 300)]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_make_the_wait_longer_until_a_success() {
        let queue = Arc::new(WorkQueue::default());
        queue.add("a");
        let log = worked(&queue, |count| match count {
            2 => Next::After(MS * 1000),
            0 | 1 | 3 => Next::Retry,
            _ => Next::Wait,
        });
        let times: Vec<u128> = log.await.iter().map(|(_, at)| at.as_millis()).collect();
        assert_eq!(times, [0, 5, 15, 1015, 1020]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_after_failures_has_an_end() {
        let queue = Arc::new(WorkQueue::default());
        queue.add("a");
        let log = worked(&queue, |_| Next::Retry).await;
        let last = log[log.len() - 1].1 - log[log.len() - 2].1;
        assert_eq!(last, LAST_RETRY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_never_worked_on_twice_at_a_time_and_again_if_added_meanwhile() {
        let queue = Arc::new(WorkQueue::default());
        queue.add("a");
        let (stop, running) = (CancellationToken::new(), Arc::new(Mutex::new((0, 0))));
        let work = queue.work(4, &stop, |_| {
            let (queue, running) = (Arc::clone(&queue), Arc::clone(&running));
            async move {
                let (now, runs) = &mut *running.lock().unwrap();
                (*now, *runs) = (*now + 1, *runs + 1);
                assert_eq!(*now, 1, "one at a time");
                if *runs < 3 {
                    queue.add("a");
                }
                *now -= 1;
                Next::Wait
            }
        });
        let end = async {
            tokio::time::sleep(MS * 100).await;
            stop.cancel();
        };
        tokio::join!(work, end);
        assert_eq!(running.lock().unwrap().1, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_panics_is_tried_again() {
        let queue = Arc::new(WorkQueue::default());
        queue.add("a");
        let log = worked(&queue, |count| {
            assert!(count > 0, "the first one fails");
            Next::Wait
        });
        assert_eq!(log.await, [("a", Duration::ZERO), ("a", FIRST_RETRY)]);
    }
}
