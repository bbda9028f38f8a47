//! Sets of fields.

use super::step::Step;
use std::cmp::Ordering;

/// A set of fields of an object: a tree of steps. A field can be in the set without what lies below it, and what lies below
/// can be in the set without the field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    /// Ordered by step; each is a member or has something below it.
    nodes: Vec<Node>,
}

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The step to it.
    pub step: Step,
    /// Whether the field itself is in the set.
    pub member: bool,
    /// What lies below it.
    pub below: Set,
}

impl Set {
    /// Nothing.
    pub const EMPTY: Self = Self { nodes: Vec::new() };

    /// The set of these fields, each given by the names on the way to it.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::EMPTY;
        for path in paths {
            set.insert(&path.iter().map(|name| Step::field(name)).collect::<Vec<_>>());
        }
        set
    }

    /// Its fields at the top.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Its fields at the top, to be changed in place. The steps must stay.
    pub(super) fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn find(&self, step: &Step) -> Result<usize, usize> {
        self.nodes.binary_search_by(|n| n.step.cmp(step))
    }

    /// The field at a step.
    pub fn get(&self, step: &Step) -> Option<&Node> {
        self.find(step).ok().map(|at| &self.nodes[at])
    }

    /// Whether the field at the path is in it. The whole object never is.
    pub fn contains(&self, path: &[Step]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|n| n.member),
            [first, rest @ ..] => self.get(first).is_some_and(|n| n.below.contains(rest)),
        }
    }

    /// Puts the field at the path in.
    pub fn insert(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => self.add(last.clone(), true, Self::EMPTY),
            [first, rest @ ..] => {
                let at = self.find(first).unwrap_or_else(|at| {
                    self.nodes.insert(at, Node { step: first.clone(), member: false, below: Self::EMPTY });
                    at
                });
                self.nodes[at].below.insert(rest);
            }
        }
    }

    /// Puts a field with what lies below it in. Nothing happens if that is nothing.
    pub(super) fn add(&mut self, step: Step, member: bool, below: Self) {
        if !member && below.is_empty() {
            return;
        }
        if self.nodes.last().is_none_or(|last| last.step < step) {
            return self.nodes.push(Node { step, member, below });
        }
        match self.find(&step) {
            Ok(at) => {
                let node = &mut self.nodes[at];
                node.member |= member;
                node.below = std::mem::take(&mut node.below).union(below);
            }
            Err(at) => self.nodes.insert(at, Node { step, member, below }),
        }
    }

    /// What is in either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let (mut left, mut right) = (self.nodes.into_iter().peekable(), other.nodes.into_iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) => a.step.cmp(&b.step),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { nodes },
            };
            match order {
                Ordering::Less => nodes.extend(left.next()),
                Ordering::Greater => nodes.extend(right.next()),
                Ordering::Equal => nodes.extend(left.next().zip(right.next()).map(|(a, b)| Node {
                    step: a.step,
                    member: a.member || b.member,
                    below: a.below.union(b.below),
                })),
            }
        }
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::EMPTY;
        for node in &self.nodes {
            if let Some(same) = other.get(&node.step) {
                let below = node.below.intersection(&same.below);
                out.add(node.step.clone(), node.member && same.member, below);
            }
        }
        out
    }

    /// What is in it and not in the other. A field goes without what lies below it.
    #[must_use]
    pub fn difference(mut self, other: &Self) -> Self {
        self.subtract(other, false);
        self
    }

    /// What is in it and neither in the other nor below a field of the other.
    #[must_use]
    pub fn without(mut self, other: &Self) -> Self {
        self.subtract(other, true);
        self
    }

    fn subtract(&mut self, other: &Self, with_below: bool) {
        if other.is_empty() {
            return;
        }
        self.nodes.retain_mut(|node| {
            let Some(gone) = other.get(&node.step) else { return true };
            if gone.member && with_below {
                return false;
            }
            node.member &= !gone.member;
            node.below.subtract(&gone.below, with_below);
            node.member || !node.below.is_empty()
        });
    }

    /// What is in it and also in the other or below a field of the other.
    #[must_use]
    pub fn within(mut self, other: &Self) -> Self {
        self.nodes.retain_mut(|node| match other.get(&node.step) {
            None => false,
            Some(kept) if kept.member => true,
            Some(kept) => {
                node.member = false;
                node.below = std::mem::take(&mut node.below).within(&kept.below);
                !node.below.is_empty()
            }
        });
        self
    }

    /// Its fields as paths: at each object first the fields there, then what lies below them.
    pub fn paths(&self) -> Vec<Vec<Step>> {
        fn walk(set: &Set, prefix: &mut Vec<Step>, out: &mut Vec<Vec<Step>>) {
            for node in set.nodes.iter().filter(|n| n.member) {
                let mut path = prefix.clone();
                path.push(node.step.clone());
                out.push(path);
            }
            for node in &set.nodes {
                prefix.push(node.step.clone());
                walk(&node.below, prefix, out);
                prefix.pop();
            }
        }
        let mut out = Vec::new();
        walk(self, &mut Vec::new(), &mut out);
        out
    }
}

/// A path as conflicts name it: `.spec.containers[name="web"].image`.
pub fn shown(path: &[Step]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(paths: &str) -> Set {
        let mut set = Set::EMPTY;
        for path in paths.split_whitespace() {
            set.insert(&path.split('.').map(Step::field).collect::<Vec<_>>());
        }
        set
    }

    fn text(set: &Set) -> String {
        let paths: Vec<String> = set.paths().iter().map(|p| shown(p)[1..].to_owned()).collect();
        paths.join(" ")
    }

    #[test]
    fn sets_are_united_intersected_and_subtracted() {
        let cases = [
            // left, right, union, intersection, difference, without, within
            ("a b", "b c", "a b c", "b", "a", "a", "b"),
            ("a.b a.c", "a.b", "a.b a.c", "a.b", "a.c", "a.c", "a.b"),
            ("a a.b", "a", "a a.b", "a", "a.b", "", "a a.b"),
            ("a", "a.b", "a a.b", "", "a", "a", ""),
            ("a.b.c a.d", "a.b", "a.b a.d a.b.c", "", "a.d a.b.c", "a.d", "a.b.c"),
            ("", "x", "x", "", "", "", ""),
            ("x", "", "x", "", "x", "x", ""),
        ];
        for (left, right, union, intersection, difference, without, within) in cases {
            let (l, r) = (set(left), set(right));
            let case = format!("{left:?} and {right:?}");
            assert_eq!(text(&l.clone().union(r.clone())), union, "{case}");
            assert_eq!(l.clone().union(r.clone()), r.clone().union(l.clone()), "{case}");
            assert_eq!(text(&l.intersection(&r)), intersection, "{case}");
            assert_eq!(text(&l.clone().difference(&r)), difference, "{case}");
            assert_eq!(text(&l.clone().without(&r)), without, "{case}");
            assert_eq!(text(&l.clone().within(&r)), within, "{case}");
        }
    }

    #[test]
    fn membership_is_of_the_field_alone() {
        let set = set("a.b c");
        let path = |p: &str| p.split('.').map(Step::field).collect::<Vec<_>>();
        for (field, there) in [("a", false), ("a.b", true), ("a.b.c", false), ("c", true), ("d", false)] {
            assert_eq!(set.contains(&path(field)), there, "{field}");
        }
        assert!(!set.contains(&[]));
    }
}
