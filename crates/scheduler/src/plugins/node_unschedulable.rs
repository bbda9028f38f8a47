//! NodeUnschedulable: cordoned nodes are left out unless the Pod tolerates it.

use trine_typed::k8s_openapi::api::core::v1::{Pod, Taint};

use super::taint_toleration::tolerates;
use crate::framework::Rejection;
use crate::snapshot::NodeInfo;

/// # Errors
/// The node is cordoned.
pub fn filter(pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
    if !node.node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or_default() {
        return Ok(());
    }
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    if !tolerates(pod, &taint) {
        return Err(Rejection::lasting("node(s) were unschedulable"));
    }
    Ok(())
}
