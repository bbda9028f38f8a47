//! When a Pod that fitted nowhere is tried again: at the next change, but not before its back-off has passed.

use std::collections::BTreeMap;
use std::time::Duration;

/// First back-off; doubles with each attempt. Upstream: `podInitialBackoffSeconds`.
pub const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Longest back-off. Upstream: `podMaxBackoffSeconds`.
pub const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Attempts and the time of the next one, by Pod uid. Times are since any fixed start.
#[derive(Debug, Default)]
pub struct Backoff {
    tried: BTreeMap<String, (u32, Duration)>,
}

impl Backoff {
    /// True if the Pod may be tried at `now`.
    #[must_use]
    pub fn is_due(&self, uid: &str, now: Duration) -> bool {
        self.tried.get(uid).is_none_or(|(_, next)| *next <= now)
    }

    /// Counts a failed attempt.
    pub fn failed(&mut self, uid: &str, now: Duration) {
        let (attempts, next) = self.tried.entry(uid.to_owned()).or_default();
        let wait = INITIAL_BACKOFF.saturating_mul(1 << (*attempts).min(8)).min(MAX_BACKOFF);
        *attempts += 1;
        *next = now + wait;
    }

    /// Forgets all Pods but those for which `keep` holds.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.tried.retain(|uid, _| keep(uid));
    }

    /// The earliest next attempt, if any Pod waits for one.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.tried.values().map(|(_, next)| *next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_from_one_second_to_ten() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..6)
            .map(|_| {
                backoff.failed("u", Duration::ZERO);
                backoff.next().unwrap().as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
        assert!(!backoff.is_due("u", Duration::from_secs(9)));
        assert!(backoff.is_due("u", Duration::from_secs(10)));
        backoff.retain(|_| false);
        assert!(backoff.is_due("u", Duration::ZERO));
    }
}
