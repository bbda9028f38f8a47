//! The status of a Pod that the node does not take. It has neither a start nor containers, as upstream's.

use trine_typed::k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::container::resources;

/// What the Pod had, and that it failed.
#[must_use]
pub fn refused(pod: &Pod, reason: &str, message: &str) -> PodStatus {
    let old = pod.status.clone().unwrap_or_default();
    PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        qos_class: old.qos_class.clone().or_else(|| Some(resources::qos(pod).to_owned())),
        observed_generation: pod.metadata.generation,
        ..old
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refused_pod_fails_without_having_begun() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "generation": 1}, "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}}))
        .unwrap();
        let status = serde_json::to_value(refused(&pod, "NodePorts", "taken")).unwrap();
        let expected = json!({"phase": "Failed", "reason": "NodePorts", "message": "taken", "qosClass": "BestEffort",
            "observedGeneration": 1, "conditions": [{"type": "PodScheduled", "status": "True"}]});
        assert_eq!(status, expected);
    }
}
