//! One act per object at a time, failed ones later and later again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use trine_typed::kube;

/// The first pause after a failure, and
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// the longest (upstream's `--retry-interval-start` and `-max`).
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The pause after a success: the watch has to bring the result first, or the act would be done again.
const SETTLE: Duration = Duration::from_millis(50);

/// Acts at once (upstream: 100 workers for provisioning, 10 for attaching).
const AT_ONCE: usize = 32;

/// How an act ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Done,
    /// Not well; again after a pause that doubles.
    Retry,
    /// A mistake in the request: again after the longest pause only.
    Slow,
}

/// How an act ended whose last word is the API server's: a race is seen at the next look, and what is gone has no need of
/// anything.
pub(crate) fn settled(done: Result<Outcome, kube::Error>, about: &'static str) -> Outcome {
    match done {
        Ok(outcome) => outcome,
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Outcome::Done,
        Err(error) => {
            tracing::warn!(%error, about, "csi-controllers: a write was refused");
            Outcome::Retry
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    running: bool,
    failures: u32,
    not_before: Instant,
}

/// The acts under way and those that wait.
#[derive(Debug, Clone)]
pub struct Work {
    attempts: Arc<Mutex<BTreeMap<String, Attempt>>>,
    changed: Arc<Notify>,
}

impl Work {
    /// `changed` is notified whenever an act ends.
    #[must_use]
    pub fn new(changed: Arc<Notify>) -> Self {
        Self { attempts: Arc::default(), changed }
    }

    /// Starts `act` for the object `key`, unless one is under way or has to wait.
    pub fn start<F>(&self, key: &str, act: F)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        if !self.begin(key, Instant::now()) {
            return;
        }
        let (work, key) = (self.clone(), key.to_owned());
        tokio::spawn(async move {
            // A panic in one act is the failure of that act.
            let outcome = tokio::spawn(act).await.unwrap_or(Outcome::Retry);
            work.end(&key, outcome, Instant::now());
            work.changed.notify_one();
        });
    }

    /// The time until the next act that waits may start.
    #[must_use]
    pub fn next_due(&self, now: Instant) -> Option<Duration> {
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.values().filter(|a| !a.running).map(|a| a.not_before.saturating_duration_since(now)).min()
    }

    /// Forgets objects that are gone, and their failures.
    pub fn keep(&self, wanted: impl Fn(&str) -> bool) {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.retain(|key, attempt| attempt.running || wanted(key));
    }

    fn begin(&self, key: &str, now: Instant) -> bool {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if attempts.values().filter(|a| a.running).count() >= AT_ONCE {
            return false;
        }
        let attempt = attempts.entry(key.to_owned()).or_insert(Attempt {
            running: false,
            failures: 0,
            not_before: now,
        });
        if attempt.running || attempt.not_before > now {
            return false;
        }
        attempt.running = true;
        true
    }

    fn end(&self, key: &str, outcome: Outcome, now: Instant) {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(attempt) = attempts.get_mut(key) else { return };
        attempt.running = false;
        attempt.failures = if outcome == Outcome::Done { 0 } else { attempt.failures + 1 };
        attempt.not_before = now + pause(outcome, attempt.failures);
    }
}

fn pause(outcome: Outcome, failures: u32) -> Duration {
    match outcome {
        Outcome::Done => SETTLE,
        Outcome::Retry => (FIRST_PAUSE * 2_u32.pow(failures.saturating_sub(1).min(16))).min(LONGEST_PAUSE),
        Outcome::Slow => LONGEST_PAUSE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let seconds = |failures| pause(Outcome::Retry, failures).as_secs();
        assert_eq!([1, 2, 3, 9, 10, 90].map(seconds), [1, 2, 4, 256, 300, 300]);
        assert_eq!(pause(Outcome::Slow, 1), LONGEST_PAUSE);
    }

    #[test]
    fn an_object_is_worked_on_once_and_waits_after_a_failure() {
        let work = Work::new(Arc::default());
        let now = Instant::now();
        assert!(work.begin("a", now));
        assert!(!work.begin("a", now));
        assert!(work.begin("b", now));
        work.end("a", Outcome::Retry, now);
        assert!(!work.begin("a", now));
        assert_eq!(work.next_due(now), Some(FIRST_PAUSE));
        assert!(work.begin("a", now + FIRST_PAUSE));
        work.end("b", Outcome::Retry, now);
        work.keep(|key| key == "a");
        assert!(work.begin("b", now), "what was forgotten starts afresh");
    }
}
