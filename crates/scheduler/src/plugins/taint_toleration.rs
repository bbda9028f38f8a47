//! TaintToleration: a node's NoSchedule and NoExecute taints must be tolerated.

use trine_typed::k8s_openapi::api::core::v1::{Pod, Taint, Toleration};

use crate::framework::Rejection;
use crate::snapshot::NodeInfo;

/// # Errors
/// A taint is not tolerated.
pub fn filter(pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
    let taints = node.node.spec.as_ref().and_then(|s| s.taints.as_ref());
    for taint in taints.into_iter().flatten() {
        let hard = taint.effect == "NoSchedule" || taint.effect == "NoExecute";
        if hard && !tolerates(pod, taint) {
            let value = taint.value.as_deref().unwrap_or_default();
            return Err(Rejection::lasting(format!(
                "node(s) had untolerated taint {{{}: {value}}}",
                taint.key
            )));
        }
    }
    Ok(())
}

/// True if one of the Pod's tolerations covers `taint`.
#[must_use]
pub fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_ref());
    tolerations.into_iter().flatten().any(|t| covers(t, taint))
}

fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = toleration.value.as_deref().unwrap_or_default();
    (effect.is_empty() || effect == taint.effect)
        && ((key.is_empty() && exists) || key == taint.key)
        && (exists || value == taint.value.as_deref().unwrap_or_default())
}
