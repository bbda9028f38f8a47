//! Which claims a Pod's ephemeral volumes still need. Pure.

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trine_typed::kube::ResourceExt;
use trine_typed::pods::{claim_name, is_made_for, not_made_for};

/// What is to be done for a Pod.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Claims to be made, with the volume that each is for.
    pub make: Vec<(String, PersistentVolumeClaim)>,
    /// The first volume whose claim cannot be, and why.
    pub failed: Option<(String, String)>,
}

/// What is to be done for `pod`; `claim` finds what is there by name. A claim that is not the Pod's own stands in the way until it is
/// gone: the Pod must not get somebody's data.
pub fn plan(pod: &Pod, claim: impl Fn(&str) -> Option<Arc<PersistentVolumeClaim>>) -> Plan {
    let mut plan = Plan::default();
    if pod.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let Some(wanted) = wanted(pod, volume) else { continue };
        match claim(&wanted.name_any()) {
            None => plan.make.push((volume.name.clone(), wanted)),
            Some(there) if is_made_for(&there.metadata, pod) => {}
            Some(there) => {
                plan.failed = Some((volume.name.clone(), not_made_for(&there, pod)));
                break;
            }
        }
    }
    plan
}

/// The claim of an ephemeral volume: its template's, owned by the Pod, with which it goes.
fn wanted(pod: &Pod, volume: &Volume) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let meta = template.metadata.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: claim_name(pod, volume),
            namespace: pod.namespace(),
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(volumes: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "1"},
            "spec": {"containers": [], "volumes": volumes}}))
        .unwrap()
    }

    fn scratch() -> Value {
        json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}})
    }

    fn claim(name: &str, owner: Option<&str>) -> Arc<PersistentVolumeClaim> {
        let owner = owner.map(
            |uid| json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true}]),
        );
        let claim = json!({"metadata": {"name": name, "namespace": "ns", "ownerReferences": owner}});
        Arc::new(serde_json::from_value(claim).unwrap())
    }

    #[test]
    fn each_ephemeral_volume_has_a_claim_of_its_template_that_the_pod_owns() {
        let other = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
        let plan = plan(&pod(&json!([other, scratch()])), |_| None);
        let [(volume, made)] = plan.make.as_slice() else { panic!("{plan:?}") };
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true,
            "blockOwnerDeletion": true}]);
        assert_eq!((volume.as_str(), plan.failed), ("scratch", None));
        assert_eq!(
            serde_json::to_value(made).unwrap(),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "p-scratch", "namespace": "ns",
                "labels": {"a": "b"}, "annotations": {"c": "d"}, "ownerReferences": owner},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        );
    }

    #[test]
    fn a_claim_is_made_once_and_somebody_elses_stands_in_the_way() {
        let found = |owner: Option<&'static str>| move |name: &str| Some(claim(name, owner));
        assert_eq!(plan(&pod(&json!([scratch()])), found(Some("1"))), Plan::default());
        for owner in [None, Some("2")] {
            let plan = plan(&pod(&json!([scratch()])), found(owner));
            let why = "PVC ns/p-scratch was not created for pod ns/p (pod is not owner)";
            assert_eq!(plan.failed, Some(("scratch".to_owned(), why.to_owned())), "{owner:?}");
            assert!(plan.make.is_empty());
        }
    }

    #[test]
    fn a_pod_that_goes_gets_none() {
        let mut pod = pod(&json!([scratch()]));
        pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(plan(&pod, |_| None), Plan::default());
    }
}
