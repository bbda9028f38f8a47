//! What many parts ask of a Pod.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::mirror::controller_of;

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
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_ref());
    volumes.into_iter().flatten().filter_map(|volume| claim_name(pod, volume)).collect()
}

/// Name of the claim behind a volume of the Pod's: the one that it names, or the one that is made for it.
#[must_use]
pub fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    let named = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    named.or_else(|| volume.ephemeral.as_ref().map(|_| format!("{pod_name}-{}", volume.name)))
}

/// Whether a claim, of a volume or of devices, was made for this very Pod; another of the same name must not get what is its.
#[must_use]
pub fn is_made_for(claim: &ObjectMeta, pod: &Pod) -> bool {
    controller_of(claim).is_some_and(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref())
}

/// Whether a claim of devices counts the Pod among its users.
#[must_use]
pub fn is_user(pod: &Pod, claim: &ResourceClaim) -> bool {
    let mut users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    users.any(|user| Some(&user.uid) == pod.metadata.uid.as_ref())
}

/// Upstream's words for a claim that has the name of one of the Pod's and was not made for it.
#[must_use]
pub fn not_made_for(claim: &PersistentVolumeClaim, pod: &Pod) -> String {
    let key = |meta: &ObjectMeta| {
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{}/{}", part(&meta.namespace), part(&meta.name))
    };
    let (claim, pod) = (key(&claim.metadata), key(&pod.metadata));
    format!("PVC {claim} was not created for pod {pod} (pod is not owner)")
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

    #[test]
    fn a_claim_is_made_for_one_pod_alone() {
        let pod = |uid: &str| {
            serde_json::from_value::<Pod>(json!({"metadata": {"namespace": "ns", "name": "p", "uid": uid}}))
                .unwrap()
        };
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": "p-b",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true}]}}))
        .unwrap();
        assert!(is_made_for(&claim.metadata, &pod("1")) && !is_made_for(&claim.metadata, &pod("2")));
        assert_eq!(
            not_made_for(&claim, &pod("2")),
            "PVC ns/p-b was not created for pod ns/p (pod is not owner)"
        );
    }
}
