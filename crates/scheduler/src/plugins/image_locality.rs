//! ImageLocality: nodes that have a Pod's images already are liked, large images more than small ones.

use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::snapshot::{NodeInfo, Snapshot};

const SMALLEST: i64 = 23 << 20;
const LARGEST: i64 = 1000 << 20;

/// 0 to 100. An image counts the less, the fewer nodes have it, so that not all Pods go where the first one went.
#[must_use]
pub fn score(pod: &Pod, node: &NodeInfo, snapshot: &Snapshot) -> i64 {
    let containers =
        pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let images: Vec<&str> = containers.filter_map(|container| container.image.as_deref()).collect();
    let nodes = i64::try_from(snapshot.nodes.len()).unwrap_or(i64::MAX).max(1);
    let one = |image: &&str| {
        let size = size_on(node, image)?;
        let have = snapshot.nodes.values().filter(|other| size_on(other, image).is_some()).count();
        Some(size / nodes * i64::try_from(have).unwrap_or_default())
    };
    let sum: i64 = images.iter().filter_map(one).sum();
    let largest = LARGEST * i64::try_from(images.len()).unwrap_or(1).max(1);
    (sum.clamp(SMALLEST, largest) - SMALLEST) * 100 / (largest - SMALLEST)
}

fn size_on(node: &NodeInfo, image: &str) -> Option<i64> {
    let images = node.node.status.as_ref()?.images.as_ref()?;
    let tagged = |name: &String| name == image || name.strip_suffix(":latest") == Some(image);
    images.iter().find(|one| one.names.iter().flatten().any(tagged))?.size_bytes
}
