//! Growing pauses, by key; upstream's rules: the first retry is free, then the pause doubles, and a key that was
//! quiet for twice the longest pause starts afresh.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    delay: Duration,
    updated: Timestamp,
}

/// Pauses by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoffs {
    first: Duration,
    longest: Duration,
    entries: BTreeMap<String, Entry>,
}

impl Backoffs {
    /// Pauses from `first` to `longest`.
    #[must_use]
    pub fn new((first, longest): (Duration, Duration)) -> Self {
        Self { first, longest, entries: BTreeMap::new() }
    }

    /// The end of the pause after something that happened at `since`; `None` if it is over.
    #[must_use]
    pub fn until(&self, key: &str, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let entry = self.entries.get(key).filter(|e| !self.expired(e, now))?;
        let end = since.checked_add(entry.delay).ok()?;
        (end > now).then_some(end)
    }

    /// The pause of `key` as it is now.
    #[must_use]
    pub fn delay(&self, key: &str) -> Duration {
        self.entries.get(key).map_or(self.first, |e| e.delay)
    }

    /// Notes another attempt: the pause begins, or doubles. Returns it.
    pub fn next(&mut self, key: &str, now: Timestamp) -> Duration {
        let delay = match self.entries.get(key) {
            Some(entry) if !self.expired(entry, now) => (entry.delay * 2).min(self.longest),
            _ => self.first,
        };
        self.entries.insert(key.to_owned(), Entry { delay, updated: now });
        delay
    }

    /// Forgets `key`.
    pub fn reset(&mut self, key: &str) {
        self.entries.remove(key);
    }

    fn expired(&self, entry: &Entry, now: Timestamp) -> bool {
        entry.updated.checked_add(self.longest * 2).is_ok_and(|end| now > end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_is_free_and_the_pause_doubles_to_its_cap_and_resets_when_quiet() {
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        let mut backoffs = Backoffs::new((Duration::from_secs(10), Duration::from_secs(300)));
        assert_eq!(backoffs.until("c", at(0), at(0)), None);
        let mut delays = Vec::new();
        let mut now = 0;
        for _ in 0..7 {
            delays.push(backoffs.next("c", at(now)).as_secs());
            now += 300;
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoffs.until("c", at(1800), at(1801)), Some(at(2100)));
        assert_eq!(backoffs.until("c", at(1800), at(2100)), None);
        assert_eq!(backoffs.next("c", at(1800 + 601)).as_secs(), 10);
    }
}
