//! VolumeZone: a volume whose labels name zones or regions is reached from nodes in these alone. Newer volumes say it by node affinity.

use trine_typed::k8s_openapi::api::core::v1::PersistentVolume;

use crate::framework::Rejection;
use crate::snapshot::NodeInfo;

/// The labels, each with its name of before.
const LABELS: [(&str, &str); 2] = [
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
];
/// What stands between the values of a label of a volume.
const BETWEEN: &str = "__";

/// # Errors
/// The node is elsewhere.
pub fn filter<'a>(
    volumes: impl Iterator<Item = &'a PersistentVolume>,
    node: &NodeInfo,
) -> Result<(), Rejection> {
    let here: Vec<Option<&str>> =
        LABELS.iter().map(|(new, old)| node.label(new).or_else(|| node.label(old))).collect();
    if here.iter().all(Option::is_none) {
        return Ok(());
    }
    for labels in volumes.filter_map(|volume| volume.metadata.labels.as_ref()) {
        for ((new, old), here) in LABELS.iter().zip(&here) {
            let Some(wanted) = labels.get(*new).or_else(|| labels.get(*old)) else { continue };
            if !here.is_some_and(|here| wanted.split(BETWEEN).any(|value| value == here)) {
                return Err(Rejection::lasting("node(s) had no available volume zone"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_is_reached_from_its_zones() {
        let zone = "topology.kubernetes.io/zone";
        let rows = [
            (json!({zone: "a"}), json!({zone: "a"}), true),
            (json!({zone: "a__b"}), json!({zone: "b"}), true),
            (json!({zone: "a"}), json!({"failure-domain.beta.kubernetes.io/zone": "a"}), true),
            (json!({zone: "a"}), json!({zone: "b"}), false),
            (json!({"topology.kubernetes.io/region": "r"}), json!({zone: "a"}), false),
            (json!({}), json!({zone: "b"}), true),
            (json!({zone: "a"}), json!({}), true),
        ];
        for (volume, node, reached) in rows {
            let volume: PersistentVolume =
                serde_json::from_value(json!({"metadata": {"labels": volume}})).unwrap();
            let node = NodeInfo::new(Arc::new(
                serde_json::from_value(json!({"metadata": {"labels": node}})).unwrap(),
            ));
            assert_eq!(filter([&volume].into_iter(), &node).is_ok(), reached, "{volume:?} {node:?}");
        }
    }
}
