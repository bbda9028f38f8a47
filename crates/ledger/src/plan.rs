//! Records against reality, decided purely.

use std::collections::{BTreeMap, BTreeSet};

/// What to do about one key after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<R> {
    /// Recorded and there: carry on with it.
    Adopt(String, R),
    /// Recorded, not there (any more): finish the undoing and drop the record.
    Forget(String, R),
    /// There under our name, without a record: remove it.
    Leaked(String),
}

/// Compares `records` with the keys that were `observed` (only those that carry our instance's name).
#[must_use]
pub fn reconcile<R: Clone>(records: &BTreeMap<String, R>, observed: &BTreeSet<String>) -> Vec<Verdict<R>> {
    let known = records.iter().map(|(key, record)| {
        if observed.contains(key) {
            Verdict::Adopt(key.clone(), record.clone())
        } else {
            Verdict::Forget(key.clone(), record.clone())
        }
    });
    let leaked =
        observed.iter().filter(|key| !records.contains_key(*key)).map(|key| Verdict::Leaked(key.clone()));
    known.chain(leaked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_reality_give_three_verdicts() {
        let records = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        let observed = BTreeSet::from(["b".to_owned(), "c".to_owned()]);
        assert_eq!(
            reconcile(&records, &observed),
            vec![
                Verdict::Forget("a".to_owned(), 1),
                Verdict::Adopt("b".to_owned(), 2),
                Verdict::Leaked("c".to_owned())
            ]
        );
    }
}
