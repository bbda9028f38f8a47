//! What a claim's volume is to be copied from, and whether it may. Pure.

use trine_contracts::csi::VolumeContentSource;
use trine_contracts::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};

use super::topology;
use crate::resize::plan::bytes;
use crate::snapshot::kinds::{GROUP, VolumeSnapshot, VolumeSnapshotContent};
use crate::snapshot::plan::NODE;

/// Keeps a claim while it is cloned.
pub const CLONING: &str = "provisioner.storage.kubernetes.io/cloning-protection";
/// On a content whose volume may be used in the other mode.
const MODE_MAY_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

/// What a claim names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'a> {
    /// Nothing.
    Nothing,
    /// A snapshot.
    Snapshot(&'a str),
    /// A claim.
    Claim(&'a str),
    /// Something that a populator fills volumes from.
    Other,
}

/// What `claim` names.
#[must_use]
pub fn named(claim: &PersistentVolumeClaim) -> Named<'_> {
    let Some(spec) = &claim.spec else { return Named::Nothing };
    let (group, kind, name) = match (&spec.data_source_ref, &spec.data_source) {
        (Some(reference), _) => {
            let elsewhere =
                reference.namespace.as_ref().is_some_and(|ns| Some(ns) != claim.metadata.namespace.as_ref());
            if elsewhere {
                return Named::Other;
            }
            (reference.api_group.as_deref(), reference.kind.as_str(), reference.name.as_str())
        }
        (None, Some(source)) => (source.api_group.as_deref(), source.kind.as_str(), source.name.as_str()),
        (None, None) => return Named::Nothing,
    };
    match (group.unwrap_or_default(), kind) {
        (GROUP, "VolumeSnapshot") => Named::Snapshot(name),
        ("", "PersistentVolumeClaim") => Named::Claim(name),
        _ => Named::Other,
    }
}

/// Why a volume is not made of it, for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Text for the event.
    Text(String),
    /// It lies on this node, which has a driver of its own.
    Elsewhere(String),
}

fn refused<T>(text: String) -> Result<T, Refusal> {
    Err(Refusal::Text(text))
}

fn mode(mode: Option<&String>) -> &str {
    mode.map_or("Filesystem", String::as_str)
}

fn wanted(claim: &PersistentVolumeClaim) -> i64 {
    let resources = claim.spec.as_ref().and_then(|s| s.resources.as_ref());
    bytes(resources.and_then(|r| r.requests.as_ref())).unwrap_or_default()
}

/// A clone: of a bound claim's volume.
///
/// # Errors
/// [`Refusal`].
pub fn of_claim(
    claim: &PersistentVolumeClaim,
    source: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
    driver: &str,
    here: Option<(&str, &Node)>,
) -> Result<VolumeContentSource, Refusal> {
    let name = source.metadata.name.as_deref().unwrap_or_default();
    if source.metadata.deletion_timestamp.is_some() {
        return refused(format!("the source PVC {name} is being deleted"));
    }
    let phase = source.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending");
    let (Some(volume), "Bound") = (volume, phase) else {
        return refused(format!("the PVC DataSource {name} must be in Bound phase, but is {phase}"));
    };
    let spec = volume.spec.clone().unwrap_or_default();
    let Some(csi) = spec.csi.as_ref().filter(|csi| csi.driver == driver) else {
        return refused(format!("the PVC DataSource {name} is not a volume of driver {driver}"));
    };
    if spec.claim_ref.as_ref().and_then(|r| r.uid.as_ref()) != source.metadata.uid.as_ref() {
        return refused(format!("the volume of the PVC DataSource {name} is bound to another claim"));
    }
    let (from, to) =
        (mode(spec.volume_mode.as_ref()), mode(claim.spec.as_ref().and_then(|s| s.volume_mode.as_ref())));
    if from != to {
        return refused(format!(
            "the source PVC and destination PVCs must have same volume mode for cloning. Source is {from}, but new PVC requested {to}"
        ));
    }
    let has = bytes(spec.capacity.as_ref()).unwrap_or_default();
    if wanted(claim) < has {
        return refused(format!(
            "error, new PVC request must be greater than or equal in size to the specified PVC data source, requested {} but source is {has}",
            wanted(claim)
        ));
    }
    if let Some((_, node)) = here
        && !topology::allows(spec.node_affinity.as_ref(), node)
    {
        return Err(Refusal::Elsewhere(topology::values(spec.node_affinity.as_ref()).join(", ")));
    }
    let volume_id = csi.volume_handle.clone();
    Ok(VolumeContentSource { r#type: Some(Type::Volume(VolumeSource { volume_id })) })
}

/// A volume with what a snapshot has.
///
/// # Errors
/// [`Refusal`].
pub fn of_snapshot(
    claim: &PersistentVolumeClaim,
    snapshot: &VolumeSnapshot,
    content: Option<&VolumeSnapshotContent>,
    driver: &str,
    here: Option<&str>,
) -> Result<VolumeContentSource, Refusal> {
    let name = snapshot.metadata.name.as_deref().unwrap_or_default();
    if snapshot.metadata.deletion_timestamp.is_some() {
        return refused(format!("snapshot {name} is currently being deleted"));
    }
    let ready = snapshot.status.as_ref().is_some_and(|s| s.ready_to_use == Some(true));
    let (Some(content), true) = (content, ready) else {
        return refused(format!("snapshot {name} is not Ready"));
    };
    let reference = &content.spec.volume_snapshot_ref;
    if reference.uid != snapshot.metadata.uid || reference.name != snapshot.metadata.name {
        return refused(format!("snapshot {name} is not bound to its content"));
    }
    if content.spec.driver != driver {
        return refused(format!("snapshot {name} is of driver {}, not of {driver}", content.spec.driver));
    }
    let handle = content.status.as_ref().and_then(|s| s.snapshot_handle.clone());
    let Some(snapshot_id) = handle else { return refused(format!("snapshot {name} has no handle")) };
    let least = content.status.as_ref().and_then(|s| s.restore_size).unwrap_or_default();
    if wanted(claim) < least {
        return refused(format!(
            "requested volume size {} is less than the size {least} for the source snapshot {name}",
            wanted(claim)
        ));
    }
    let asked = mode(claim.spec.as_ref().and_then(|s| s.volume_mode.as_ref()));
    let may = content
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(MODE_MAY_CHANGE))
        .is_some_and(|v| v == "true");
    if content.spec.source_volume_mode.as_ref().is_some_and(|from| from != asked) && !may {
        return refused(format!(
            "requested volume {} modifies the mode of the source volume but does not have permission to do so. {MODE_MAY_CHANGE} annotation is not present on snapshotcontent {}",
            claim.metadata.name.as_deref().unwrap_or_default(),
            content.metadata.name.as_deref().unwrap_or_default()
        ));
    }
    let on = content.metadata.labels.as_ref().and_then(|l| l.get(NODE));
    if let (Some(here), Some(on)) = (here, on)
        && here != on
    {
        return Err(Refusal::Elsewhere(on.clone()));
    }
    Ok(VolumeContentSource { r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id })) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(size: &str, mode: &str, source: &Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": "new", "namespace": "ns"}, "spec": {
            "volumeMode": mode, "dataSource": source, "resources": {"requests": {"storage": size}}}}))
        .unwrap()
    }

    fn merged<T: serde::de::DeserializeOwned>(mut base: Value, change: &Value) -> T {
        fn merge(base: &mut Value, change: &Value) {
            match (base, change) {
                (Value::Object(base), Value::Object(change)) => {
                    change.iter().for_each(|(k, v)| merge(base.entry(k).or_insert(Value::Null), v))
                }
                (base, change) => *base = change.clone(),
            }
        }
        merge(&mut base, change);
        serde_json::from_value(base).unwrap()
    }

    #[test]
    fn a_source_is_known_by_group_and_kind() {
        let of = |source: Value| format!("{:?}", named(&claim("1Gi", "Filesystem", &source)));
        assert_eq!(of(Value::Null), "Nothing");
        assert_eq!(of(json!({"kind": "PersistentVolumeClaim", "name": "a"})), "Claim(\"a\")");
        assert_eq!(of(json!({"apiGroup": GROUP, "kind": "VolumeSnapshot", "name": "s"})), "Snapshot(\"s\")");
        assert_eq!(of(json!({"apiGroup": "x.y", "kind": "VolumeSnapshot", "name": "s"})), "Other");
    }

    #[test]
    fn a_volume_is_made_of_a_snapshot_that_is_ready_large_and_near_enough() {
        let snapshot = |change: Value| -> VolumeSnapshot {
            merged(
                json!({"metadata": {"name": "s", "namespace": "ns", "uid": "u"},
                    "spec": {"source": {}}, "status": {"readyToUse": true}}),
                &change,
            )
        };
        let content = |change: Value| -> VolumeSnapshotContent {
            merged(
                json!({"metadata": {"name": "c", "labels": {NODE: "n1"}}, "spec": {"driver": "d", "sourceVolumeMode": "Filesystem",
                    "volumeSnapshotRef": {"name": "s", "uid": "u"}}, "status": {"snapshotHandle": "h", "restoreSize": 1 << 30}}),
                &change,
            )
        };
        let fs = claim("1Gi", "Filesystem", &Value::Null);
        let none = json!({});
        let may = json!({"metadata": {"annotations": {MODE_MAY_CHANGE: "true"}}});
        for (name, claim, s, c, here, expected) in [
            ("ready", &fs, &none, &none, Some("n1"), ""),
            ("one driver for all", &fs, &none, &none, None, ""),
            ("on another node", &fs, &none, &none, Some("n2"), "Elsewhere(\"n1\")"),
            ("not ready", &fs, &json!({"status": {"readyToUse": false}}), &none, None, "is not Ready"),
            (
                "another's content",
                &fs,
                &none,
                &json!({"spec": {"volumeSnapshotRef": {"uid": "x"}}}),
                None,
                "not bound",
            ),
            ("of another driver", &fs, &none, &json!({"spec": {"driver": "e"}}), None, "of driver e"),
            (
                "too small",
                &claim("1Mi", "Filesystem", &Value::Null),
                &none,
                &none,
                None,
                "is less than the size",
            ),
            (
                "the other mode",
                &claim("1Gi", "Block", &Value::Null),
                &none,
                &none,
                None,
                "does not have permission",
            ),
            ("the other mode, allowed", &claim("1Gi", "Block", &Value::Null), &none, &may, None, ""),
        ] {
            let got = of_snapshot(claim, &snapshot(s.clone()), Some(&content(c.clone())), "d", here);
            let said = got.as_ref().err().map(|e| format!("{e:?}")).unwrap_or_default();
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{name}: {said}");
        }
        assert!(of_snapshot(&fs, &snapshot(none), None, "d", None).is_err());
    }

    #[test]
    fn a_volume_is_cloned_from_a_bound_one_of_its_mode_and_not_larger() {
        let source: PersistentVolumeClaim = serde_json::from_value(
            json!({"metadata": {"name": "old", "uid": "u"}, "status": {"phase": "Bound"}}),
        )
        .unwrap();
        let pending: PersistentVolumeClaim = serde_json::from_value(
            json!({"metadata": {"name": "old", "uid": "u"}, "status": {"phase": "Pending"}}),
        )
        .unwrap();
        let volume: PersistentVolume = serde_json::from_value(json!({"spec": {"capacity": {"storage": "1Gi"},
            "claimRef": {"uid": "u"}, "csi": {"driver": "d", "volumeHandle": "h"}, "nodeAffinity": {"required":
                {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["n1"]}]}]}}}}))
        .unwrap();
        let node = |name: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"labels": {"k": name}}})).unwrap()
        };
        let (n1, n2) = (node("n1"), node("n2"));
        let new = |size: &str, mode: &str| claim(size, mode, &Value::Null);
        for (name, claim, source, driver, here, expected) in [
            ("bound", new("1Gi", "Filesystem"), &source, "d", Some(&n1), ""),
            ("larger", new("2Gi", "Filesystem"), &source, "d", None, ""),
            ("smaller", new("1Mi", "Filesystem"), &source, "d", None, "must be greater"),
            ("other mode", new("1Gi", "Block"), &source, "d", None, "same volume mode"),
            ("other driver", new("1Gi", "Filesystem"), &source, "e", None, "of driver e"),
            ("pending", new("1Gi", "Filesystem"), &pending, "d", None, "must be in Bound phase"),
            ("on another node", new("1Gi", "Filesystem"), &source, "d", Some(&n2), "Elsewhere(\"n1\")"),
        ] {
            let got = of_claim(&claim, source, Some(&volume), driver, here.map(|n| ("here", n)));
            let said = got.as_ref().err().map(|e| format!("{e:?}")).unwrap_or_default();
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{name}: {said}");
        }
    }
}
