//! Which specs in which order, how long each may take, and what its end means. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::upstream::junit::Outcome;

/// How long one spec may take: upstream's longest, which waits for the API server to forget the past, needs ten minutes.
pub const SPEC: Duration = Duration::from_secs(12 * 60);
/// How long a group may take in all; what has had no turn by then waits for `--resume`.
pub const GROUP: Duration = Duration::from_secs(38 * 60);
/// A spec that could be given less than this is not begun.
const SHORTEST: Duration = Duration::from_secs(60);

/// The specs by group: `sig-node`, ...; only that of `sig` if there is one.
pub fn groups(names: &[String], sig: Option<&str>) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in names {
        let group = name.strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or("other");
        if sig.is_none_or(|sig| group.strip_prefix("sig-") == Some(sig)) {
            groups.entry(group.to_owned()).or_default().push(name.clone());
        }
    }
    groups
}

/// True if nothing else may run beside a spec.
pub fn alone(name: &str) -> bool {
    name.contains("[Serial]") || name.contains("[Disruptive]")
}

/// The order of a run: what is slow first, so that it does not hold up the end; what must be alone last.
pub fn order(names: &[String]) -> (Vec<String>, Vec<String>) {
    let (alone, mut beside): (Vec<String>, Vec<String>) = names.iter().cloned().partition(|name| alone(name));
    beside.sort_by_key(|name| !name.contains("[Slow]"));
    (beside, alone)
}

/// How long a spec may take that begins `since` the group did; none if its turn does not come any more.
pub fn deadline(since: Duration) -> Option<Duration> {
    let left = GROUP.checked_sub(since)?.min(SPEC);
    (left >= SHORTEST).then_some(left)
}

/// What is kept of a spec's end; nothing if it is to be run again because the group had no more time for it.
pub fn settled(outcome: Outcome, deadline: Duration) -> Option<Outcome> {
    match outcome {
        Outcome::Interrupted if deadline < SPEC => None,
        Outcome::Interrupted => {
            Some(Outcome::Failed(format!("no end within {} minutes", SPEC.as_secs() / 60)))
        }
        Outcome::NotRun => Some(Outcome::Failed("the suite did not run it".to_owned())),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn groups_are_told_by_the_first_tag() {
        let all = names(&["[sig-node] a", "[sig-apps] b [sig-node]", "[sig-node] c"]);
        let of_node = groups(&all, Some("node"));
        assert_eq!(
            of_node.into_iter().collect::<Vec<_>>(),
            [("sig-node".into(), names(&["[sig-node] a", "[sig-node] c"]))]
        );
        assert_eq!(groups(&all, None).len(), 2);
    }

    #[test]
    fn slow_specs_begin_and_serial_ones_come_alone() {
        let (beside, alone) = order(&names(&["a", "b [Serial]", "c [Slow]", "d [Disruptive]"]));
        assert_eq!(beside, ["c [Slow]", "a"]);
        assert_eq!(alone, ["b [Serial]", "d [Disruptive]"]);
    }

    #[test]
    fn a_spec_has_its_time_unless_the_group_has_less_left() {
        let minutes = |m: u64| Duration::from_secs(m * 60);
        assert_eq!(deadline(minutes(0)), Some(SPEC));
        assert_eq!(deadline(minutes(30)), Some(minutes(8)));
        assert_eq!(deadline(GROUP - SHORTEST / 2), None);
        assert_eq!(deadline(minutes(60)), None);
    }

    #[test]
    fn a_spec_that_had_its_time_has_failed_and_one_that_had_not_is_run_again() {
        for (outcome, deadline, kept) in [
            (Outcome::Passed, SHORTEST, Some(Outcome::Passed)),
            (Outcome::Interrupted, SHORTEST, None),
            (Outcome::Interrupted, SPEC, Some(Outcome::Failed("no end within 12 minutes".into()))),
            (Outcome::NotRun, SPEC, Some(Outcome::Failed("the suite did not run it".into()))),
        ] {
            assert_eq!(settled(outcome.clone(), deadline), kept, "{outcome:?}");
        }
    }
}
