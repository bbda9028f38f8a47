//! Whether the claims of a StatefulSet go with it, or with a Pod that is scaled away: told by who owns them.

use trine_typed::k8s_openapi::api::apps::v1::StatefulSet;
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use trine_typed::kube::{Resource, ResourceExt};

use super::identity::{is_wanted, ordinal};
use crate::workload::claim::reference;

/// Whether claims go with the set.
#[must_use]
pub fn goes_with_set(set: &StatefulSet) -> bool {
    let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
    policy.and_then(|p| p.when_deleted.as_deref()) == Some("Delete")
}

/// Whether claims go with Pods that are scaled away.
#[must_use]
pub fn goes_with_scale(set: &StatefulSet) -> bool {
    let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
    policy.and_then(|p| p.when_scaled.as_deref()) == Some("Delete")
}

fn names<O: Resource<DynamicType = ()>>(owner: &OwnerReference, object: &O) -> bool {
    owner.kind == O::kind(&()) && owner.api_version == O::api_version(&()) && owner.name == object.name_any()
}

fn is<O: Resource<DynamicType = ()>>(owner: &OwnerReference, object: &O) -> bool {
    Some(&owner.uid) == object.uid().as_ref()
}

/// The owners that a claim should have: none if those that it has are right.
#[must_use]
pub fn owners(claim: &PersistentVolumeClaim, set: &StatefulSet, pod: &Pod) -> Option<Vec<OwnerReference>> {
    let have = claim.metadata.owner_references.clone().unwrap_or_default();
    // One that was is named, but not meant: whoever cleans up after it also decides about its claims.
    let stale = |o: &OwnerReference| (names(o, set) && !is(o, set)) || (names(o, pod) && !is(o, pod));
    if have.iter().any(stale) {
        return None;
    }
    let ours = |o: &OwnerReference| names(o, set) || names(o, pod);
    let mut wanted: Vec<OwnerReference> = have.iter().filter(|o| !ours(o)).cloned().collect();
    let foreign = wanted.iter().any(|o| o.controller == Some(true));
    let retains = !goes_with_set(set) && !goes_with_scale(set);
    if !foreign || retains {
        wanted.extend(owner(set, pod));
    }
    (wanted != have).then_some(wanted)
}

/// Whom of the two a claim goes with.
fn owner(set: &StatefulSet, pod: &Pod) -> Option<OwnerReference> {
    let scaled_away = ordinal(set, pod).is_some_and(|ordinal| !is_wanted(set, ordinal));
    match (goes_with_set(set), goes_with_scale(set)) {
        (_, true) if scaled_away => Some(reference(pod)),
        (true, _) => Some(reference(set)),
        _ => None,
    }
}

/// Whether a claim is on its way out with an earlier Pod of its ordinal: a new Pod has to wait for that.
#[must_use]
pub fn is_stale(claim: &PersistentVolumeClaim, set: &StatefulSet, pod: &Pod) -> bool {
    let owners = claim.metadata.owner_references.iter().flatten();
    goes_with_scale(set) && owners.into_iter().any(|o| names(o, pod) && !is(o, pod))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(deleted: &str, scaled: &str) -> StatefulSet {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "ns", "uid": "set"}, "spec": {"replicas": 1,
            "selector": {}, "template": {}, "persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled}}}))
        .unwrap()
    }

    fn pod(ordinal: i32) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": format!("web-{ordinal}"), "uid": format!("pod{ordinal}")}}),
        )
        .unwrap()
    }

    fn claim(owners: &[(&str, &str, &str)]) -> PersistentVolumeClaim {
        let one = |(kind, name, uid): &(&str, &str, &str)| {
            let version = if *kind == "StatefulSet" { "apps/v1" } else { "v1" };
            json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true})
        };
        let owners: Vec<Value> = owners.iter().map(one).collect();
        serde_json::from_value(json!({"metadata": {"name": "c", "ownerReferences": owners}})).unwrap()
    }

    #[test]
    fn a_claim_is_owned_by_whom_it_goes_with() {
        let of_set = ("StatefulSet", "web", "set");
        let of_pod = ("Pod", "web-3", "pod3");
        type Owners<'a> = &'a [(&'a str, &'a str, &'a str)];
        // The policy, the ordinal (0 is wanted, 3 is scaled away), the owners, and those that it should have.
        type Row<'a> = (&'a str, &'a str, i32, Owners<'a>, Option<&'a [&'a str]>);
        let rows: [Row; 12] = [
            ("Retain", "Retain", 0, &[], None),
            ("Retain", "Retain", 0, &[of_set], Some(&[])),
            ("Delete", "Retain", 0, &[], Some(&["set"])),
            ("Delete", "Retain", 3, &[of_set], None),
            ("Retain", "Delete", 0, &[], None),
            ("Retain", "Delete", 3, &[], Some(&["pod3"])),
            ("Delete", "Delete", 0, &[of_set], None),
            ("Delete", "Delete", 3, &[of_set], Some(&["pod3"])),
            ("Delete", "Delete", 3, &[of_pod], None),
            ("Delete", "Delete", 0, &[("StatefulSet", "web", "earlier")], None),
            ("Delete", "Delete", 0, &[("Other", "x", "other")], None),
            ("Delete", "Delete", 0, &[("Other", "x", "other"), of_set], Some(&["other"])),
        ];
        for (deleted, scaled, ordinal, have, expected) in rows {
            let found = owners(&claim(have), &set(deleted, scaled), &pod(ordinal));
            let found = found.map(|owners| owners.into_iter().map(|o| o.uid).collect::<Vec<_>>());
            let expected = expected.map(|owners| owners.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>());
            assert_eq!(found, expected, "{deleted} {scaled} {ordinal} {have:?}");
        }
    }

    #[test]
    fn a_claim_of_an_earlier_pod_makes_the_next_one_wait() {
        let earlier = claim(&[("Pod", "web-0", "earlier")]);
        assert!(is_stale(&earlier, &set("Retain", "Delete"), &pod(0)));
        assert!(!is_stale(&earlier, &set("Retain", "Retain"), &pod(0)));
        assert!(!is_stale(&claim(&[]), &set("Retain", "Delete"), &pod(0)));
    }
}
