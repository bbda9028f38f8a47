//! ImageLocality: nodes that have a Pod's images already are liked, large images more than small ones.

use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::snapshot::{NodeInfo, Snapshot};

const SMALLEST: i64 = 23 << 20;
const LARGEST: i64 = 1000 << 20;

/// What is known before the nodes are looked at.
pub struct State<'a> {
    /// The Pod's images, and how many nodes have each.
    images: Vec<(&'a str, i64)>,
    nodes: i64,
}

impl<'a> State<'a> {
    /// Counts the nodes that have the Pod's images.
    #[must_use]
    pub fn of(pod: &'a Pod, snapshot: &Snapshot) -> Self {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let nodes = || snapshot.nodes.values();
        let containers = pod
            .spec
            .iter()
            .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        let images = containers
            .filter_map(|container| container.image.as_deref())
            .map(|image| (image, count(nodes().filter(|node| size_on(node, image).is_some()).count())));
        Self { images: images.collect(), nodes: count(snapshot.nodes.len()).max(1) }
    }

    /// 0 to 100. An image counts the less, the fewer nodes have it, so that not all Pods go where the first one went.
    #[must_use]
    pub fn score(&self, node: &NodeInfo) -> i64 {
        let one = |(image, have): &(&str, i64)| Some(size_on(node, image)? / self.nodes * have);
        let sum: i64 = self.images.iter().filter_map(one).sum();
        let largest = LARGEST * i64::try_from(self.images.len()).unwrap_or(1).max(1);
        (sum.clamp(SMALLEST, largest) - SMALLEST) * 100 / (largest - SMALLEST)
    }
}

fn size_on(node: &NodeInfo, image: &str) -> Option<i64> {
    let images = node.node.status.as_ref()?.images.as_ref()?;
    let tagged = |name: &String| name == image || name.strip_suffix(":latest") == Some(image);
    images.iter().find(|one| one.names.iter().flatten().any(tagged))?.size_bytes
}
