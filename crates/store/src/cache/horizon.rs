//! From which revision on the whole past is promised. As in etcd, which is compacted as a whole, what others write moves it
//! for everybody: a list that is continued too late is told so, even if nothing was changed in it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Seconds that the past is promised for; upstream compacts every 5 minutes.
const AGE: u64 = 300;
/// Seconds between two marks.
const STEP: u64 = 5;

/// The newest revision that is shown, and the oldest that can be listed.
#[derive(Debug, Default)]
pub struct Horizon {
    shown: AtomicU64,
    oldest: AtomicU64,
    /// A revision and when it was written, seconds since 1970, every few seconds.
    marks: Mutex<VecDeque<(u64, u64)>>,
}

impl Horizon {
    /// The newest revision up to which everything is in the cache.
    pub fn shown(&self) -> u64 {
        self.shown.load(Ordering::Acquire)
    }

    /// Everything up to a revision is in the cache.
    pub fn show(&self, revision: u64) {
        self.shown.store(revision, Ordering::Release);
    }

    /// The oldest revision that can be listed.
    pub fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Acquire)
    }

    /// A revision was written at a time, seconds since 1970.
    pub fn note(&self, revision: u64, at: u64) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.back().is_none_or(|(_, last)| at >= last + STEP) {
            marks.push_back((revision, at));
        }
        while marks.front().is_some_and(|(_, written)| written + AGE <= at) {
            if let Some((revision, _)) = marks.pop_front() {
                self.oldest.store(revision, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_promised_for_five_minutes_whoever_writes() {
        let horizon = Horizon::default();
        for (revision, at) in [(2, 1000), (3, 1001), (4, 1010), (9, 1299)] {
            horizon.note(revision, at);
            assert_eq!(horizon.oldest(), 0, "at {at}");
        }
        horizon.note(10, 1300);
        assert_eq!(horizon.oldest(), 2);
        horizon.note(11, 1310);
        assert_eq!(horizon.oldest(), 4);
        horizon.note(12, 9000);
        assert_eq!(horizon.oldest(), 11);
    }
}
