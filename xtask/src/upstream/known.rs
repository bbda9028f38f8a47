//! The failures that are known: `tests/upstream/known-failures/SUITE.txt`, one spec a line, and behind a tab why. In the same form
//! `tests/upstream/not-here/SUITE.txt` names what cannot be run at all. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Names and reasons; a reason may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known(pub BTreeMap<String, String>);

impl Known {
    /// Reads a list. Lines that begin with `#` are for people.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let pair = |line: &str| {
            let (name, reason) = line.split_once('\t').unwrap_or((line, ""));
            (name.trim().to_owned(), reason.trim().to_owned())
        };
        Self(lines.map(pair).collect())
    }

    /// The list with what was seen: `failed` is on it and `passed` is not, all else stays. Reasons stay, too; a new failure's is
    /// what it said.
    #[must_use]
    pub fn blessed(&self, failed: &BTreeMap<String, String>, passed: &BTreeSet<String>) -> Self {
        let mut known: BTreeMap<String, String> = self
            .0
            .iter()
            .filter(|(name, _)| !passed.contains(*name))
            .map(|(n, r)| (n.clone(), r.clone()))
            .collect();
        for (name, why) in failed {
            known.entry(name.clone()).or_insert_with(|| why.clone());
        }
        Self(known)
    }

    /// The list as it is kept.
    #[must_use]
    pub fn write(&self, suite: &str) -> String {
        let mut text = format!(
            "# Specs of {suite} that fail today, and behind a tab why. `cargo xtask upstream {suite}` fails when another one\n\
             # does, and when one of these passes: then it is taken off.\n"
        );
        for (name, reason) in &self.0 {
            text.push_str(name);
            if !reason.is_empty() {
                text.push('\t');
                text.push_str(reason);
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let known = Known::read("# people\n\nb [x] #1\tno hostPort\na\n");
        assert_eq!(known.0.len(), 2);
        assert_eq!(known.0["b [x] #1"], "no hostPort");
        assert_eq!(Known::read(&known.write("critest")), known);
    }

    #[test]
    fn blessing_changes_only_what_was_run_and_keeps_reasons() {
        let known = Known::read("fails\told reason\nnow passes\tx\nnot run\ty\n");
        let failed = BTreeMap::from([("fails".into(), "said".into()), ("new".into(), "said".into())]);
        let blessed = known.blessed(&failed, &BTreeSet::from(["now passes".into(), "other".into()]));
        assert_eq!(blessed, Known::read("fails\told reason\nnew\tsaid\nnot run\ty\n"));
    }
}
