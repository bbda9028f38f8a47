//! What a run means, given the failures that are known. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::junit::{Case, Outcome};
use super::known::Known;

/// A run, counted and judged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// What holds.
    pub passed: BTreeSet<String>,
    /// What does not, and why.
    pub failed: BTreeMap<String, String>,
    /// What cannot be tried, and why.
    pub skipped: BTreeMap<String, String>,
    /// What was broken off or had no turn.
    pub unfinished: BTreeSet<String>,
    /// Failures that nobody knew of.
    pub unknown: Vec<String>,
    /// Known failures that are none any more.
    pub mended: Vec<String>,
}

impl Verdict {
    /// Judges `cases`. A spec that was not run counts only if `wanted` says that it should have been.
    #[must_use]
    pub fn of(cases: &[Case], known: &Known, wanted: impl Fn(&str) -> bool) -> Self {
        let mut verdict = Self::default();
        for Case { name, outcome } in cases {
            let name = name.clone();
            match outcome {
                Outcome::Passed => drop(verdict.passed.insert(name)),
                Outcome::Failed(why) => drop(verdict.failed.insert(name, why.clone())),
                Outcome::Skipped(why) => drop(verdict.skipped.insert(name, why.clone())),
                Outcome::Interrupted => drop(verdict.unfinished.insert(name)),
                Outcome::NotRun if wanted(&name) => drop(verdict.unfinished.insert(name)),
                Outcome::NotRun => {}
            }
        }
        // Two specs may have one name: it fails if one of them does.
        let failed = &verdict.failed;
        verdict.passed.retain(|name| !failed.contains_key(name));
        verdict.unknown = failed.keys().filter(|name| !known.0.contains_key(*name)).cloned().collect();
        verdict.mended = known.0.keys().filter(|name| verdict.passed.contains(*name)).cloned().collect();
        verdict
    }

    /// What is wrong, one line each; nothing if the run is as it is known to be.
    #[must_use]
    pub fn complaints(&self, list: &str) -> Vec<String> {
        let unknown = self
            .unknown
            .iter()
            .map(|name| format!("fails, and is not known to: {name}: {}", self.failed[name]));
        let mended = self.mended.iter().map(|name| format!("passes: take it off {list}: {name}"));
        let unfinished = self.unfinished.iter().map(|name| format!("was not brought to an end: {name}"));
        unknown.chain(mended).chain(unfinished).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, outcome: Outcome) -> Case {
        Case { name: name.to_owned(), outcome }
    }

    #[test]
    fn known_failures_are_borne_and_every_other_change_is_told() {
        let known = Known::read("known\t\nmended\t\nnot run\t\n");
        let cases = [
            case("known", Outcome::Failed("a".into())),
            case("new", Outcome::Failed("b".into())),
            case("mended", Outcome::Passed),
            case("good", Outcome::Passed),
            case("elsewhere", Outcome::Skipped("no IPv6".into())),
            case("slow", Outcome::Interrupted),
            case("no turn", Outcome::NotRun),
            case("not run", Outcome::NotRun),
        ];
        let verdict = Verdict::of(&cases, &known, |name| name == "no turn");
        assert_eq!(
            verdict.complaints("L"),
            [
                "fails, and is not known to: new: b",
                "passes: take it off L: mended",
                "was not brought to an end: no turn",
                "was not brought to an end: slow"
            ]
        );
        assert_eq!((verdict.passed.len(), verdict.failed.len(), verdict.skipped.len()), (2, 2, 1));
    }

    #[test]
    fn a_name_that_two_specs_bear_passes_only_if_both_do() {
        let cases = [case("twin", Outcome::Failed("x".into())), case("twin", Outcome::Passed)];
        let verdict = Verdict::of(&cases, &Known::read("twin\t\n"), |_| true);
        assert!(verdict.complaints("L").is_empty());
        assert!(verdict.passed.is_empty());
    }
}
