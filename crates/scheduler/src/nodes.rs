//! The nodes, each with what is placed on it. A node has a number as long as it is there, so that counts by node are lists.

use std::collections::{BTreeMap, HashMap};
use std::ops::Index;
use std::sync::Arc;

use trine_typed::demand::allocatable;
use trine_typed::k8s_openapi::api::core::v1::Node;

use crate::amounts::Resources;
use crate::pod_info::PodInfo;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

/// One node with what is placed on it.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    /// The object.
    pub node: Arc<Node>,
    /// Pods that are bound or assumed here and not finished.
    pub pods: Vec<PodInfo>,
    /// Sum of the requests of `pods`.
    pub requested: Resources,
    /// The same where nodes are compared.
    pub scored: Resources,
    /// What the node has to give.
    pub allocatable: Resources,
    /// How many Pods want ports of the node.
    with_ports: usize,
    slot: usize,
}

impl NodeInfo {
    /// A node with nothing on it.
    #[must_use]
    pub fn new(node: Arc<Node>) -> Self {
        let allocatable = allocatable(&node).into();
        Self::holding_nothing(node, allocatable, 0)
    }

    /// This node without its Pods.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self::holding_nothing(Arc::clone(&self.node), self.allocatable.clone(), self.slot)
    }

    fn holding_nothing(node: Arc<Node>, allocatable: Resources, slot: usize) -> Self {
        let (requested, scored) = (Resources::default(), Resources::default());
        Self { node, pods: Vec::new(), requested, scored, allocatable, with_ports: 0, slot }
    }

    /// Places `pod` here.
    pub fn add(&mut self, pod: impl Into<PodInfo>) {
        let pod = pod.into();
        self.requested.add(&pod.requests);
        self.scored.add(&pod.scored);
        self.with_ports += usize::from(!pod.ports.is_empty());
        self.pods.push(pod);
    }

    /// Takes the Pod of this UID away.
    pub fn remove(&mut self, uid: &str) -> Option<PodInfo> {
        let at = self.pods.iter().position(|pod| pod.uid() == uid)?;
        let pod = self.pods.remove(at);
        self.requested.subtract(&pod.requests);
        self.scored.subtract(&pod.scored);
        self.with_ports -= usize::from(!pod.ports.is_empty());
        Some(pod)
    }

    /// The Pods that want ports of the node.
    pub fn pods_with_ports(&self) -> impl Iterator<Item = &PodInfo> {
        let pods = if self.with_ports == 0 { &[] } else { self.pods.as_slice() };
        pods.iter().filter(|pod| !pod.ports.is_empty())
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.node.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Its number among the nodes.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.slot
    }
}

/// All nodes.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    slots: Vec<Option<NodeInfo>>,
    by_name: BTreeMap<String, usize>,
    /// Numbers in the order in which nodes are tried.
    order: Vec<usize>,
}

impl Index<&str> for Nodes {
    type Output = NodeInfo;

    /// # Panics
    /// If there is no node of that name.
    fn index(&self, name: &str) -> &NodeInfo {
        match self.get(name) {
            Some(node) => node,
            None => panic!("no node {name}"),
        }
    }
}

impl Nodes {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// One above the highest number that a node has had.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// A node by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&NodeInfo> {
        self.at(*self.by_name.get(name)?)
    }

    /// A node by its number.
    #[must_use]
    pub fn at(&self, slot: usize) -> Option<&NodeInfo> {
        self.slots.get(slot)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut NodeInfo> {
        self.slots.get_mut(*self.by_name.get(name)?)?.as_mut()
    }

    /// All, by name.
    pub fn values(&self) -> impl Iterator<Item = &NodeInfo> {
        self.by_name.values().filter_map(|slot| self.at(*slot))
    }

    /// All in the order in which they are tried, from the `start`-th on and around.
    pub fn from(&self, start: usize) -> impl Iterator<Item = &NodeInfo> {
        let (before, after) = self.order.split_at(start % self.order.len().max(1));
        after.iter().chain(before).filter_map(|slot| self.at(*slot))
    }

    /// Puts a node among them, or another in its place.
    pub(crate) fn put(&mut self, mut info: NodeInfo) -> usize {
        let name = info.name().to_owned();
        if let Some(slot) = self.by_name.get(&name).copied() {
            info.slot = slot;
            let moved = self.at(slot).is_none_or(|old| zone(old) != zone(&info));
            self.slots[slot] = Some(info);
            if moved {
                self.order_anew();
            }
            return slot;
        }
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.slots.len());
        info.slot = slot;
        if free.is_none() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(info);
        self.by_name.insert(name, slot);
        self.order_anew();
        slot
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<NodeInfo> {
        let slot = self.by_name.remove(name)?;
        let info = self.slots.get_mut(slot)?.take();
        self.order_anew();
        info
    }

    /// One of each zone in turn, as upstream's node tree: a part of all nodes is a part of all zones.
    fn order_anew(&mut self) {
        let mut zones: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for (node, slot) in self.by_name.values().filter_map(|slot| Some((self.at(*slot)?, *slot))) {
            zones.entry(zone(node)).or_default().push(slot);
        }
        let longest = zones.values().map(Vec::len).max().unwrap_or_default();
        let rounds = (0..longest).flat_map(|round| zones.values().filter_map(move |zone| zone.get(round)));
        self.order = rounds.copied().collect();
    }
}

fn zone(node: &NodeInfo) -> (&str, &str) {
    (node.label(REGION).unwrap_or_default(), node.label(ZONE).unwrap_or_default())
}

/// Which nodes have an image, with its size there, by the names that it goes by.
#[derive(Debug, Clone, Default)]
pub struct Images {
    by_name: HashMap<String, BTreeMap<usize, i64>>,
}

impl Images {
    /// The nodes that have `image`, by number, with its size.
    #[must_use]
    pub fn of(&self, image: &str) -> Option<&BTreeMap<usize, i64>> {
        self.by_name.get(image.strip_suffix(":latest").unwrap_or(image))
    }

    pub(crate) fn add(&mut self, info: &NodeInfo) {
        for (name, size) in images(&info.node) {
            self.by_name.entry(name.to_owned()).or_default().entry(info.slot).or_insert(size);
        }
    }

    pub(crate) fn remove(&mut self, info: &NodeInfo) {
        for (name, _) in images(&info.node) {
            if let Some(nodes) = self.by_name.get_mut(name) {
                nodes.remove(&info.slot);
                if nodes.is_empty() {
                    self.by_name.remove(name);
                }
            }
        }
    }
}

fn images(node: &Node) -> impl Iterator<Item = (&str, i64)> {
    let all = node.status.iter().flat_map(|status| status.images.iter().flatten());
    let sized = all.filter_map(|image| Some((image.names.as_ref()?, image.size_bytes?)));
    sized.flat_map(|(names, size)| {
        names.iter().map(move |name| (name.strip_suffix(":latest").unwrap_or(name), size))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, zone: &str) -> NodeInfo {
        let node = json!({"metadata": {"name": name, "labels": {ZONE: zone}},
            "status": {"images": [{"names": ["web:latest", "web@sha256:1"], "sizeBytes": 7}]}});
        NodeInfo::new(Arc::new(serde_json::from_value(node).unwrap()))
    }

    fn names(nodes: &Nodes, start: usize) -> Vec<&str> {
        nodes.from(start).map(NodeInfo::name).collect()
    }

    #[test]
    fn zones_take_turns_and_each_start_goes_around() {
        let mut nodes = Nodes::default();
        for (name, zone) in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")] {
            nodes.put(node(name, zone));
        }
        assert_eq!(names(&nodes, 0), ["a1", "b1", "a2", "a3"]);
        assert_eq!(names(&nodes, 6), ["a2", "a3", "a1", "b1"]);
        nodes.put(node("a2", "b"));
        assert_eq!(names(&nodes, 0), ["a1", "a2", "a3", "b1"]);
        nodes.take("a1");
        assert_eq!((names(&nodes, 0), nodes.len()), (vec!["a3", "a2", "b1"], 3));
        assert_eq!(nodes.put(node("c", "c")), 0, "a number is given again");
        assert_eq!(nodes.slots(), 4);
        assert_eq!(Nodes::default().from(3).count(), 0);
    }

    #[test]
    fn an_image_is_found_by_each_of_its_names() {
        let mut images = Images::default();
        let node = node("n", "a");
        images.add(&node);
        assert_eq!(images.of("web").map(BTreeMap::len), Some(1));
        assert_eq!(images.of("web:latest").and_then(|nodes| nodes.get(&0)), Some(&7));
        assert!(images.of("web@sha256:1").is_some() && images.of("db").is_none());
        images.remove(&node);
        assert!(images.by_name.is_empty());
    }
}
