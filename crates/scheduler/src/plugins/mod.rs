//! The plugins, one file each, named as upstream's; `allocation` is how NodeResourcesFit and NodeResourcesBalancedAllocation score.

pub mod allocation;
pub mod dynamic_resources;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_affinity;
pub mod node_ports;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod node_volume_limits;
pub mod pod_topology_spread;
pub mod taint_toleration;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Lets a selector ask for the values that a Pod itself has of some labels (KEP-3633, KEP-3243): `operator` is `In` or `NotIn`.
pub(crate) fn match_label_keys<'a>(
    selector: &mut LabelSelector,
    keys: impl Iterator<Item = &'a String>,
    pod: &Pod,
    operator: &str,
) {
    for key in keys {
        if let Some(value) = pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)) {
            selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                key: key.clone(),
                operator: operator.to_owned(),
                values: Some(vec![value.clone()]),
            });
        }
    }
}
