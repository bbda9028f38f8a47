//! ImageLocality: nodes that have a Pod's images already are liked, large images more than small ones.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::snapshot::{NodeInfo, Snapshot};

const SMALLEST: i64 = 23 << 20;
const LARGEST: i64 = 1000 << 20;

/// What is known before the nodes are looked at.
pub struct State<'a> {
    /// The nodes that have each image of the Pod, with its size there.
    images: Vec<Option<&'a BTreeMap<usize, i64>>>,
    nodes: i64,
}

impl<'a> State<'a> {
    /// Finds the nodes that have the Pod's images.
    #[must_use]
    pub fn of(pod: &Pod, snapshot: &'a Snapshot) -> Self {
        let containers = pod
            .spec
            .iter()
            .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        let images = containers.filter_map(|container| container.image.as_deref());
        let images = images.map(|image| snapshot.images.of(image)).collect();
        Self { images, nodes: count(snapshot.nodes.len()).max(1) }
    }

    /// 0 to 100. An image counts the less, the fewer nodes have it, so that not all Pods go where the first one went.
    #[must_use]
    pub fn score(&self, node: &NodeInfo) -> i64 {
        let have = self.images.iter().flatten();
        let sum: i64 =
            have.filter_map(|nodes| Some(nodes.get(&node.slot())? / self.nodes * count(nodes.len()))).sum();
        let largest = LARGEST * count(self.images.len()).max(1);
        (sum.clamp(SMALLEST, largest) - SMALLEST) * 100 / (largest - SMALLEST)
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
