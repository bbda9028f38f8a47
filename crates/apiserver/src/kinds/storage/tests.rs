//! Claims, volumes and classes, case by case.

use super::*;
use crate::kinds::service::Allocators;
use crate::kinds::testing::{Nothing, These};
use crate::kinds::{Cx, Hooks, Objects};
use serde_json::json;

fn created(hooks: &dyn Hooks, mut obj: Value, objects: &dyn Objects) -> Value {
    let pools = Allocators::new("10.0.0.0/24").unwrap();
    hooks.defaults(&mut obj);
    let mut cx = Cx::new(objects, &pools, 86_400);
    hooks.prepare_create(&mut obj, &mut cx).unwrap();
    obj
}

fn messages(hooks: &dyn Hooks, obj: &Value, old: Option<&Value>) -> Vec<String> {
    hooks.validate(obj, old).iter().map(ToString::to_string).collect()
}

fn claim() -> Value {
    json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

#[test]
fn a_claim_without_class_takes_the_newest_default_one() {
    let class = |name: &str, made: &str, default: &str| {
        (
            "storageclasses",
            json!({"metadata": {"name": name, "creationTimestamp": made,
            "annotations": {"storageclass.kubernetes.io/is-default-class": default}}}),
        )
    };
    let cluster = These(vec![
        class("old", "2026-01-01T00:00:00Z", "true"),
        class("new", "2026-02-01T00:00:00Z", "true"),
        class("newest", "2026-03-01T00:00:00Z", "false"),
    ]);
    let made = created(&Claims, claim(), &cluster);
    assert_eq!(made["spec"]["storageClassName"], "new");
    assert_eq!(made["status"]["phase"], "Pending");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let mut explicit = claim();
    explicit["spec"]["storageClassName"] = json!("");
    assert_eq!(created(&Claims, explicit, &cluster)["spec"]["storageClassName"], "");
    assert!(created(&Claims, claim(), &Nothing)["spec"]["storageClassName"].is_null());
}

#[test]
fn faults_of_a_claim_are_named() {
    for (change, wanted) in [
        (json!({"accessModes": []}), "spec.accessModes: Required value: at least 1 access mode is required"),
        (json!({"accessModes": ["X"]}), "spec.accessModes: Unsupported value: \"X\""),
        (json!({"resources": {}}), "spec.resources[storage]: Required value"),
        (
            json!({"resources": {"requests": {"storage": "0"}}}),
            "spec.resources[storage]: Invalid value: \"0\": must be greater than zero",
        ),
        (json!({"volumeMode": "Tape"}), "spec.volumeMode: Unsupported value: \"Tape\""),
    ] {
        let mut obj = claim();
        obj["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let found = messages(&Claims, &obj, None);
        assert!(found.iter().any(|m| m.starts_with(wanted)), "{found:?}");
    }
}

#[test]
fn a_claim_changes_only_its_volume_once_and_its_size_when_bound() {
    let old = created(&Claims, claim(), &Nothing);
    let mut bound = old.clone();
    bound["spec"]["volumeName"] = json!("pv1");
    assert!(messages(&Claims, &bound, Some(&old)).is_empty());
    bound["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
    let with = |size: &str, volume: &str| {
        let mut claim = bound.clone();
        claim["spec"]["resources"]["requests"]["storage"] = json!(size);
        claim["spec"]["volumeName"] = json!(volume);
        claim
    };
    assert!(messages(&Claims, &with("2Gi", "pv1"), Some(&bound)).is_empty());
    assert!(
        messages(&Claims, &with("1Gi", "pv2"), Some(&bound))[0]
            .starts_with("spec: Forbidden: spec is immutable")
    );
    assert!(
        messages(&Claims, &with("512Mi", "pv1"), Some(&bound))[0]
            .contains("can not be less than status.capacity")
    );
    assert!(
        super::wants_more(&with("2Gi", "pv1"), &bound) && !super::wants_more(&with("512Mi", "pv1"), &bound)
    );
}

#[test]
fn a_volume_is_filled_protected_and_keeps_its_source() {
    let pv = json!({"metadata": {"name": "pv"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "csi": {"driver": "disk.csi.trine.dev", "volumeHandle": "h"}}});
    let made = created(&Volumes, pv, &Nothing);
    assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    assert!(messages(&Volumes, &made, None).is_empty());
    let mut other = made.clone();
    other["spec"]["csi"]["volumeHandle"] = json!("g");
    assert!(messages(&Volumes, &other, Some(&made))[0].starts_with("spec.persistentvolumesource: Forbidden"));
    let mut without = made.clone();
    without["spec"].as_object_mut().unwrap().remove("csi");
    assert_eq!(messages(&Volumes, &without, None), ["spec: Required value: must specify a volume type"]);
    let row = Volumes.row(&made, 86_400);
    assert_eq!(row[1..6], [json!("1Gi"), json!("RWO"), json!("Retain"), json!("Pending"), json!("")]);
}

#[test]
fn a_class_is_filled_and_fixed() {
    let class =
        created(&Classes, json!({"metadata": {"name": "c"}, "provisioner": "disk.csi.trine.dev"}), &Nothing);
    assert_eq!(
        (&class["reclaimPolicy"], &class["volumeBindingMode"]),
        (&json!("Delete"), &json!("Immediate"))
    );
    assert!(messages(&Classes, &class, None).is_empty());
    let mut other = class.clone();
    other["parameters"] = json!({"fs": "xfs"});
    assert_eq!(
        messages(&Classes, &other, Some(&class)),
        ["parameters: Forbidden: updates to parameters are forbidden."]
    );
}

#[test]
fn an_attachment_needs_its_parts_and_does_not_move() {
    let good = json!({"spec": {"attacher": "disk.csi.trine.dev", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}});
    assert!(messages(&Attachments, &good, None).is_empty());
    let mut moved = good.clone();
    moved["spec"]["nodeName"] = json!("m");
    assert!(messages(&Attachments, &moved, Some(&good))[0].ends_with("field is immutable"));
    assert_eq!(messages(&Attachments, &json!({"spec": {}}), None).len(), 3);
}
