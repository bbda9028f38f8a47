//! Whether a lease may be taken. Clocks of different machines are never compared: a lease has run out when it was not
//! changed for its duration while we looked.

use std::time::{Duration, Instant};

/// A lease as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Who holds it; empty for nobody.
    pub holder: String,
    /// Its resourceVersion: changes with each renewal.
    pub version: String,
    /// For how long it counts after a change.
    pub duration: Duration,
}

/// When a version of it was first seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The version.
    pub version: String,
    /// When.
    pub at: Instant,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is another's.
    Wait,
    /// It is ours.
    Renew,
    /// It is nobody's any more.
    Take,
}

/// Decides, and gives what is to be remembered for the next time.
#[must_use]
pub fn step(held: &Held, me: &str, seen: Option<Seen>, now: Instant) -> (Step, Seen) {
    let seen = seen
        .filter(|s| s.version == held.version)
        .unwrap_or_else(|| Seen { version: held.version.clone(), at: now });
    let step = if held.holder == me {
        Step::Renew
    } else if held.holder.is_empty() || now.saturating_duration_since(seen.at) >= held.duration {
        Step::Take
    } else {
        Step::Wait
    };
    (step, seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_when_it_is_free_or_was_not_renewed_while_we_looked() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let held = |holder: &str, version: &str| Held {
            holder: holder.to_owned(),
            version: version.to_owned(),
            duration: Duration::from_secs(15),
        };
        let seen = |version: &str, seconds| Some(Seen { version: version.to_owned(), at: at(seconds) });
        let rows = [
            ("ours", held("me", "1"), None, Step::Renew),
            ("ours though it ran out", held("me", "1"), seen("1", 0), Step::Renew),
            ("given back", held("", "1"), None, Step::Take),
            ("another's, first seen now", held("you", "1"), None, Step::Wait),
            ("another's, renewed since", held("you", "2"), seen("1", 0), Step::Wait),
            ("another's, seen not long ago", held("you", "1"), seen("1", 6), Step::Wait),
            ("another's, not renewed for its duration", held("you", "1"), seen("1", 5), Step::Take),
        ];
        for (name, held, seen, wanted) in rows {
            assert_eq!(step(&held, "me", seen, at(20)).0, wanted, "{name}");
        }
    }

    #[test]
    fn what_was_seen_is_remembered_until_it_changes() {
        let now = Instant::now();
        let held = Held { holder: "you".into(), version: "7".into(), duration: Duration::from_secs(15) };
        let (_, first) = step(&held, "me", None, now);
        let later = now + Duration::from_secs(3);
        assert_eq!(step(&held, "me", Some(first.clone()), later).1, first);
        let renewed = Held { version: "8".into(), ..held };
        assert_eq!(step(&renewed, "me", Some(first), later).1, Seen { version: "8".into(), at: later });
    }
}
