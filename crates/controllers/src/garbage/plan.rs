//! What follows for one object from its owners and from what it owns.

use super::graph::{Node, Owner};

/// Holds an object until what it owns has forgotten it.
pub const ORPHAN: &str = "orphan";
/// Holds an object until what it owns is gone.
pub const FOREGROUND: &str = "foregroundDeletion";

/// How an owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is there.
    Solid,
    /// It is not there.
    Gone,
    /// It is being deleted, and waits for what it owns.
    Waiting,
    /// Nobody can say: its kind is not served, or cannot own this object.
    Unknown,
}

/// How an object is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// What it owns follows.
    Background,
    /// What it owns goes first.
    Foreground,
    /// What it owns stays.
    Orphan,
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// What it owns forgets it, then it goes.
    Orphan {
        /// The UIDs of what it owns.
        dependents: Vec<String>,
    },
    /// Nothing holds it up any more: it goes.
    Finish,
    /// It waits; what it owns is looked at.
    Wait {
        /// The UIDs of what it owns.
        dependents: Vec<String>,
    },
    /// It forgets owners that are gone or wait for it, since it has others.
    Forget {
        /// Their UIDs.
        owners: Vec<String>,
    },
    /// It goes.
    Delete {
        /// How.
        policy: Policy,
        /// Its owners stop waiting for it first: it waits for one of those that wait for it.
        unblock: bool,
    },
}

/// Decides.
#[must_use]
pub fn decide(node: &Node, owners: &[(Owner, Standing)], dependents: &[Node]) -> Step {
    let uids = || dependents.iter().map(|d| d.uid.clone()).collect();
    if node.deleting && node.holds(ORPHAN) {
        return Step::Orphan { dependents: uids() };
    }
    if node.deleting && node.holds(FOREGROUND) {
        let blocks = |d: &Node| d.owners.iter().any(|o| o.uid == node.uid && o.blocks);
        return if dependents.iter().any(blocks) { Step::Wait { dependents: uids() } } else { Step::Finish };
    }
    if node.deleting || owners.is_empty() {
        return Step::Rest;
    }
    let with = |standing: Standing| owners.iter().filter(move |(_, s)| *s == standing);
    if with(Standing::Unknown).next().is_some() {
        return Step::Rest;
    }
    if with(Standing::Solid).next().is_some() {
        let left = with(Standing::Gone).chain(with(Standing::Waiting));
        let owners: Vec<String> = left.map(|(o, _)| o.uid.clone()).collect();
        return if owners.is_empty() { Step::Rest } else { Step::Forget { owners } };
    }
    if with(Standing::Waiting).next().is_some() && !dependents.is_empty() {
        let circle = dependents.iter().any(|d| d.deleting && d.holds(FOREGROUND));
        return Step::Delete { policy: Policy::Foreground, unblock: circle };
    }
    let policy = match () {
        () if node.holds(ORPHAN) => Policy::Orphan,
        () if node.holds(FOREGROUND) => Policy::Foreground,
        () => Policy::Background,
    };
    Step::Delete { policy, unblock: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: &str, blocks: bool) -> Owner {
        Owner { uid: uid.to_owned(), name: uid.to_owned(), blocks, ..Owner::default() }
    }

    fn node(uid: &str, deleting: bool, finalizers: &[&str], owners: &[Owner]) -> Node {
        let finalizers = finalizers.iter().map(|f| (*f).to_owned()).collect();
        Node { uid: uid.to_owned(), deleting, finalizers, owners: owners.to_vec(), ..Node::default() }
    }

    #[test]
    fn each_case_has_its_step() {
        use Standing::{Gone, Solid, Unknown, Waiting};
        let child = |blocks| node("c", false, &[], &[owner("n", blocks)]);
        let delete = |policy| Step::Delete { policy, unblock: false };
        let rows = [
            ("no owners", node("n", false, &[], &[]), vec![], vec![], Step::Rest),
            ("an owner that is there", node("n", false, &[], &[]), vec![Solid], vec![], Step::Rest),
            (
                "all owners gone",
                node("n", false, &[], &[]),
                vec![Gone, Gone],
                vec![child(true)],
                delete(Policy::Background),
            ),
            (
                "gone, and asked to wait",
                node("n", false, &[FOREGROUND], &[]),
                vec![Gone],
                vec![],
                delete(Policy::Foreground),
            ),
            (
                "gone, and asked to leave behind",
                node("n", false, &[ORPHAN], &[]),
                vec![Gone],
                vec![],
                delete(Policy::Orphan),
            ),
            (
                "one there, one gone, one waiting",
                node("n", false, &[], &[]),
                vec![Solid, Gone, Waiting],
                vec![],
                Step::Forget { owners: vec!["o1".to_owned(), "o2".to_owned()] },
            ),
            (
                "an owner waits for a leaf",
                node("n", false, &[], &[]),
                vec![Waiting],
                vec![],
                delete(Policy::Background),
            ),
            (
                "an owner waits for a branch",
                node("n", false, &[], &[]),
                vec![Waiting],
                vec![child(true)],
                delete(Policy::Foreground),
            ),
            (
                "in a circle",
                node("n", false, &[], &[]),
                vec![Waiting],
                vec![node("c", true, &[FOREGROUND], &[owner("n", true)])],
                Step::Delete { policy: Policy::Foreground, unblock: true },
            ),
            (
                "an owner of a kind that is not served",
                node("n", false, &[], &[]),
                vec![Unknown, Gone],
                vec![],
                Step::Rest,
            ),
            ("goes already", node("n", true, &["x"], &[]), vec![Gone], vec![], Step::Rest),
            (
                "waits for what blocks",
                node("n", true, &[FOREGROUND], &[]),
                vec![],
                vec![child(true)],
                Step::Wait { dependents: vec!["c".to_owned()] },
            ),
            (
                "does not wait for what does not block",
                node("n", true, &[FOREGROUND], &[]),
                vec![],
                vec![child(false)],
                Step::Finish,
            ),
            ("waited for all", node("n", true, &[FOREGROUND], &[]), vec![], vec![], Step::Finish),
            (
                "leaves behind",
                node("n", true, &[ORPHAN], &[]),
                vec![],
                vec![child(true)],
                Step::Orphan { dependents: vec!["c".to_owned()] },
            ),
        ];
        for (name, node, standings, dependents, wanted) in rows {
            let owners: Vec<(Owner, Standing)> =
                standings.into_iter().enumerate().map(|(i, s)| (owner(&format!("o{i}"), true), s)).collect();
            assert_eq!(decide(&node, &owners, &dependents), wanted, "{name}");
        }
    }
}
