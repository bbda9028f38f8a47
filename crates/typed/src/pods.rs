//! What many parts ask of a Pod.

use k8s_openapi::api::core::v1::Pod;

/// True for Succeeded and Failed Pods.
#[must_use]
pub fn is_finished(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Whether a Pod uses a claim.
#[must_use]
pub fn has_claims(pod: &Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_ref());
    volumes.into_iter().flatten().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some())
}

/// Names of the claims that a Pod uses, generic ephemeral volumes included.
#[must_use]
pub fn claim_names(pod: &Pod) -> Vec<String> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_ref());
    let claim = |v: &k8s_openapi::api::core::v1::Volume| {
        let named = v.persistent_volume_claim.as_ref().map(|c| c.claim_name.clone());
        named.or_else(|| v.ephemeral.as_ref().map(|_| format!("{pod_name}-{}", v.name)))
    };
    volumes.into_iter().flatten().filter_map(claim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ephemeral_volumes_have_claims_too() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "c", "emptyDir": {}}]}});
        let pod = serde_json::from_value(pod).unwrap();
        assert_eq!(claim_names(&pod), ["data", "p-b"]);
        assert!(has_claims(&pod) && !has_claims(&Pod::default()));
    }
}
