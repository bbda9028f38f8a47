//! Who owns whom: the metadata of all objects, by UID.

use std::collections::{BTreeSet, HashMap};

/// A reference to an owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its UID.
    pub uid: String,
    /// Its API version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Whether the owner waits for this object when it waits at all.
    pub blocks: bool,
}

/// An object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Its UID.
    pub uid: String,
    /// Which of the watched resources it is of.
    pub resource: usize,
    /// Its namespace; empty outside of namespaces.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its owners.
    pub owners: Vec<Owner>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What holds it.
    pub finalizers: Vec<String>,
}

impl Node {
    /// Whether a finalizer holds it.
    #[must_use]
    pub fn holds(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| f == finalizer)
    }
}

/// All objects that are known, and which of them changed.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: HashMap<String, Node>,
    dependents: HashMap<String, BTreeSet<String>>,
    changed: BTreeSet<String>,
}

impl Graph {
    /// An object is there, as it is now. Those around it are to be looked at if that makes a difference.
    pub fn set(&mut self, node: Node) {
        let before = self.nodes.get(&node.uid);
        if before == Some(&node) {
            return;
        }
        // Once an object does not hold its owner up any more, that may go on.
        let former: Vec<String> = before.into_iter().flat_map(|b| &b.owners).map(|o| o.uid.clone()).collect();
        for uid in &former {
            self.unlink(uid, &node.uid);
        }
        self.changed.extend(former);
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(node.uid.clone());
            self.changed.insert(owner.uid.clone());
        }
        if node.deleting
            && let Some(dependents) = self.dependents.get(&node.uid)
        {
            self.changed.extend(dependents.iter().cloned());
        }
        self.changed.insert(node.uid.clone());
        self.nodes.insert(node.uid.clone(), node);
    }

    /// An object is gone: what it owned and who owned it are to be looked at.
    pub fn remove(&mut self, uid: &str) {
        let Some(node) = self.nodes.remove(uid) else { return };
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
            self.changed.insert(owner.uid.clone());
        }
        if let Some(dependents) = self.dependents.get(uid) {
            self.changed.extend(dependents.iter().cloned());
        }
        self.changed.remove(uid);
    }

    /// Of a resource there are only these objects: the others are gone.
    pub fn retain(&mut self, resource: usize, seen: &BTreeSet<String>) {
        let of_it = self.nodes.values().filter(|n| n.resource == resource && !seen.contains(&n.uid));
        let gone: Vec<String> = of_it.map(|n| n.uid.clone()).collect();
        gone.iter().for_each(|uid| self.remove(uid));
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(set) = self.dependents.get_mut(owner) {
            set.remove(dependent);
            if set.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    /// An object.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// What an object owns.
    #[must_use]
    pub fn dependents(&self, uid: &str) -> Vec<Node> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| self.nodes.get(uid)).cloned().collect()
    }

    /// Objects are to be looked at.
    pub fn mark(&mut self, uids: impl IntoIterator<Item = String>) {
        self.changed.extend(uids);
    }

    /// All that have owners are to be looked at.
    pub fn mark_owned(&mut self) {
        let owned = self.nodes.values().filter(|n| !n.owners.is_empty()).map(|n| n.uid.clone());
        self.changed.extend(owned);
    }

    /// What is to be looked at, since this was asked last.
    pub fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(uid: &str, owners: &[&str]) -> Node {
        let owners = owners.iter().map(|o| Owner { uid: (*o).to_owned(), ..Owner::default() }).collect();
        Node { uid: uid.to_owned(), owners, ..Node::default() }
    }

    fn changed(graph: &mut Graph) -> Vec<String> {
        graph.take_changed().into_iter().collect()
    }

    #[test]
    fn those_around_a_change_are_looked_at() {
        let mut graph = Graph::default();
        graph.set(node("a", &[]));
        graph.set(node("b", &["a"]));
        graph.set(node("c", &["b"]));
        assert_eq!(changed(&mut graph), ["a", "b", "c"]);
        graph.set(node("c", &["b"]));
        assert_eq!(changed(&mut graph), Vec::<String>::new(), "nothing changed");
        graph.remove("b");
        assert_eq!(changed(&mut graph), ["a", "c"]);
        assert!(graph.dependents("a").is_empty());
        assert_eq!(graph.dependents("b").len(), 1, "it is remembered who had been owned");
        graph.set(node("c", &["a"]));
        assert_eq!(changed(&mut graph), ["a", "b", "c"]);
    }

    #[test]
    fn a_new_list_takes_away_what_is_not_on_it() {
        let mut graph = Graph::default();
        graph.set(node("a", &[]));
        graph.set(Node { resource: 1, ..node("b", &["a"]) });
        graph.take_changed();
        graph.retain(0, &BTreeSet::new());
        assert!(graph.get("a").is_none() && graph.get("b").is_some());
        assert_eq!(changed(&mut graph), ["b"]);
    }
}
