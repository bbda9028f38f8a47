//! Who a Pod of a StatefulSet is: its ordinal, its name, its claims. All of it lasts longer than the Pod.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::apps::v1::StatefulSet;
use trine_typed::k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trine_typed::kube::ResourceExt;

use crate::workload::pods::from_template;

/// The label with the Pod's own name.
pub const NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label with its ordinal.
const INDEX: &str = "apps.kubernetes.io/pod-index";
/// The label with the name of its revision.
pub const REVISION: &str = "controller-revision-hash";

/// The ordinal of a Pod of this set; none if its name is none of the set's.
#[must_use]
pub fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let name = pod.metadata.name.as_deref()?;
    let digits = name.strip_prefix(set.metadata.name.as_deref()?)?.strip_prefix('-')?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// The first ordinal.
#[must_use]
pub fn start(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().and_then(|o| o.start).unwrap_or_default()
}

/// How many Pods are wanted.
#[must_use]
pub fn wanted(set: &StatefulSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

/// Whether an ordinal is one of those that are wanted.
#[must_use]
pub fn is_wanted(set: &StatefulSet, ordinal: i32) -> bool {
    (start(set)..start(set).saturating_add(wanted(set))).contains(&ordinal)
}

/// The name of the revision of a Pod.
#[must_use]
pub fn revision(pod: &Pod) -> Option<&str> {
    pod.labels().get(REVISION).map(String::as_str)
}

/// The Pod of an ordinal, of a template and the revision that keeps it.
#[must_use]
pub fn pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let mut pod = from_template(set, template);
    let name = format!("{}-{ordinal}", set.name_any());
    pod.metadata.generate_name = None;
    pod.metadata.name = Some(name.clone());
    let labels = pod.labels_mut();
    labels.insert(NAME.to_owned(), name.clone());
    labels.insert(INDEX.to_owned(), ordinal.to_string());
    labels.insert(REVISION.to_owned(), revision.to_owned());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain = set.spec.service_name.clone().filter(|name| !name.is_empty());
    let claims = claims(set, ordinal);
    let mut volumes: Vec<Volume> =
        claims.iter().map(|(volume, claim)| of_claim(volume, &claim.name_any())).collect();
    volumes.extend(
        spec.volumes.take().unwrap_or_default().into_iter().filter(|v| !claims.contains_key(&v.name)),
    );
    spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
    pod
}

fn of_claim(volume: &str, claim: &str) -> Volume {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim.to_owned(), read_only: None };
    Volume { name: volume.to_owned(), persistent_volume_claim: Some(source), ..Default::default() }
}

/// The claims of an ordinal, by the name of their template.
#[must_use]
pub fn claims(set: &StatefulSet, ordinal: i32) -> BTreeMap<String, PersistentVolumeClaim> {
    let one = |template: &PersistentVolumeClaim| {
        let volume = template.name_any();
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(set.spec.selector.match_labels.clone().unwrap_or_default());
        let metadata = ObjectMeta {
            name: Some(format!("{volume}-{}-{ordinal}", set.name_any())),
            namespace: set.namespace(),
            labels: Some(labels),
            annotations: template.metadata.annotations.clone(),
            ..Default::default()
        };
        (volume, PersistentVolumeClaim { metadata, spec: template.spec.clone(), status: None })
    };
    set.spec.volume_claim_templates.iter().flatten().map(one).collect()
}

/// Whether a claim of this name would be one of the set's.
#[must_use]
pub fn is_claim_of(set: &StatefulSet, claim: &str) -> bool {
    set.spec.volume_claim_templates.iter().flatten().any(|template| {
        let rest = claim.strip_prefix(&format!("{}-{}-", template.name_any(), set.name_any()));
        rest.is_some_and(|ordinal| ordinal.parse::<i32>().is_ok())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> StatefulSet {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "ns", "uid": "u"}, "spec": {
            "serviceName": "svc", "replicas": 3, "ordinals": {"start": 2}, "selector": {"matchLabels": {"app": "web"}},
            "template": {}, "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"x": "y"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}]}}))
        .unwrap()
    }

    #[test]
    fn an_ordinal_is_read_from_the_name() {
        for (name, expected) in [
            ("web-0", Some(0)),
            ("web-12", Some(12)),
            ("web-", None),
            ("web-x", None),
            ("web--1", None),
            ("web-+1", None),
            ("other-1", None),
            ("web-a-1", None),
        ] {
            let pod = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            assert_eq!(ordinal(&set(), &pod), expected, "{name}");
        }
        assert_eq!([1, 2, 4, 5].map(|ordinal| is_wanted(&set(), ordinal)), [false, true, true, false]);
    }

    #[test]
    fn a_pod_is_known_by_its_ordinal_everywhere() {
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}});
        let found = json!(pod(&set(), &serde_json::from_value(template).unwrap(), "web-abc", 3));
        assert_eq!(found["metadata"]["name"], "web-3");
        assert_eq!(
            found["metadata"]["labels"],
            json!({"app": "web", NAME: "web-3", INDEX: "3", REVISION: "web-abc"})
        );
        assert_eq!(
            (&found["spec"]["hostname"], &found["spec"]["subdomain"]),
            (&json!("web-3"), &json!("svc"))
        );
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-3"}}, {"name": "tmp", "emptyDir": {}}]);
        assert_eq!(found["spec"]["volumes"], volumes);
        let claim = json!(claims(&set(), 3)["data"]);
        assert_eq!(
            claim["metadata"],
            json!({"name": "data-web-3", "namespace": "ns", "labels": {"app": "web", "x": "y"}})
        );
        assert!(is_claim_of(&set(), "data-web-3") && !is_claim_of(&set(), "data-web-x"));
    }
}
