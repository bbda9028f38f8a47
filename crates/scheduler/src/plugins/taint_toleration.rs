//! TaintToleration: a node's NoSchedule and NoExecute taints must be tolerated.

use trine_typed::k8s_openapi::api::core::v1::{Pod, Taint};
use trine_typed::placement;

use crate::framework::Rejection;
use crate::snapshot::NodeInfo;

/// # Errors
/// A taint is not tolerated.
pub fn filter(pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
    let taints = node.node.spec.as_ref().and_then(|s| s.taints.as_ref());
    for taint in taints.into_iter().flatten() {
        let hard = taint.effect == "NoSchedule" || taint.effect == "NoExecute";
        if hard && !tolerates(pod, taint) {
            return Err(Rejection::lasting("node(s) had untolerated taint(s)"));
        }
    }
    Ok(())
}

/// How many PreferNoSchedule taints are not tolerated; the fewer the better.
#[must_use]
pub fn dislikes(pod: &Pod, node: &NodeInfo) -> i64 {
    let taints = node.node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let soft = taints.filter(|taint| taint.effect == "PreferNoSchedule" && !tolerates(pod, taint)).count();
    i64::try_from(soft).unwrap_or(i64::MAX)
}

/// True if one of the Pod's tolerations covers `taint`.
#[must_use]
pub fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_deref());
    placement::tolerates(tolerations.unwrap_or_default(), taint)
}
