//! NodeAffinity: `nodeSelector` and the required part of node affinity.

use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::placement::is_selected;

use crate::framework::Rejection;
use crate::snapshot::NodeInfo;

/// # Errors
/// The node does not match.
pub fn filter(pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
    match &pod.spec {
        Some(spec) if !is_selected(spec, &node.node) => {
            Err(Rejection::lasting("node(s) didn't match Pod's node affinity/selector"))
        }
        _ => Ok(()),
    }
}
