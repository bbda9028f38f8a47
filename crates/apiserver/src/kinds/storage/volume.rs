//! PersistentVolumes.

use super::{access_modes, class_of, dns_name, short_modes, size};
use crate::kinds::columns::{age, name, or_unset};
use crate::kinds::fields::{add_finalizer, child, default, is_unset, items, set, text};
use crate::kinds::pod::node_selector;
use crate::kinds::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};
use trine_objects::time;

/// Holds a volume while it is bound.
const PROTECTION: &str = "kubernetes.io/pv-protection";
/// The fields of a spec that are not the source.
const NOT_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// The hooks of PersistentVolumes.
pub struct Volumes;

impl Hooks for Volumes {
    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        default(spec, "persistentVolumeReclaimPolicy", "Retain");
        default(spec, "volumeMode", "Filesystem");
        if spec["hostPath"].is_object() && spec["hostPath"]["type"].is_null() {
            set(&mut spec["hostPath"], "type", "");
        }
        if spec["claimRef"].is_object() {
            default(&mut spec["claimRef"], "kind", "PersistentVolumeClaim");
            default(&mut spec["claimRef"], "apiVersion", "v1");
        }
    }

    fn prepare_create(&self, obj: &mut Value, cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({"phase": "Pending", "lastPhaseTransitionTime": time::format(cx.now_unix)}));
        add_finalizer(obj, PROTECTION);
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        access_modes(spec, "", &mut causes);
        size(&spec["capacity"]["storage"], "spec.capacity[storage]", &mut causes);
        source(spec, &mut causes);
        causes.one_of(spec, "persistentVolumeReclaimPolicy", "spec", &["Delete", "Recycle", "Retain"]);
        causes.one_of(spec, "volumeMode", "spec", &["Block", "Filesystem"]);
        if spec["nodeAffinity"]["required"].is_object() {
            node_selector(&spec["nodeAffinity"]["required"], "spec.nodeAffinity.required", &mut causes);
        }
        if let Some(old) = old {
            unchanged(spec, &old["spec"], &mut causes);
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Capacity"),
                Column::text("Access Modes"),
                Column::text("Reclaim Policy"),
                Column::text("Status"),
                Column::text("Claim"),
                Column::text("StorageClass"),
                Column::text("VolumeAttributesClass"),
                Column::text("Reason"),
                Column::AGE,
                Column::text("VolumeMode").wide(),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let (spec, status) = (&obj["spec"], &obj["status"]);
        let leaving = !obj["metadata"]["deletionTimestamp"].is_null();
        let claim = &spec["claimRef"];
        let claim = if claim.is_object() {
            format!("{}/{}", text(claim, "namespace"), text(claim, "name"))
        } else {
            String::new()
        };
        vec![
            name(obj),
            text(&spec["capacity"], "storage").into(),
            short_modes(items(spec, "accessModes")).into(),
            text(spec, "persistentVolumeReclaimPolicy").into(),
            if leaving { "Terminating" } else { text(status, "phase") }.into(),
            claim.into(),
            class_of(obj).into(),
            or_unset(text(spec, "volumeAttributesClassName")),
            text(status, "reason").into(),
            age(obj, now_unix),
            or_unset(text(spec, "volumeMode")),
        ]
    }
}

fn sources(spec: &Value) -> Vec<(&str, &Value)> {
    let all = spec.as_object().into_iter().flatten();
    all.filter(|(k, v)| !v.is_null() && !NOT_SOURCE.contains(&k.as_str()))
        .map(|(k, v)| (k.as_str(), v))
        .collect()
}

fn source(spec: &Value, causes: &mut Causes) {
    let sources = sources(spec);
    let (kind, source) = match sources.as_slice() {
        [] => return causes.add(Cause::required("spec", "must specify a volume type")),
        [one] => *one,
        [_, (second, _), ..] => {
            return causes
                .add(Cause::forbidden(format!("spec.{second}"), "may not specify more than 1 volume type"));
        }
    };
    let path = format!("spec.{kind}");
    match kind {
        "csi" => {
            dns_name(source, "driver", &format!("{path}.driver"), causes);
            causes.needed(source, "volumeHandle", &path);
        }
        "hostPath" => {
            causes.needed(source, "path", &path);
            if text(source, "path").split('/').any(|step| step == "..") {
                causes.add(Cause::invalid(
                    format!("{path}.path"),
                    text(source, "path"),
                    "must not contain '..'",
                ));
            }
        }
        "local" => {
            causes.needed(source, "path", &path);
            if !spec["nodeAffinity"]["required"].is_object() {
                causes.add(Cause::required("spec.nodeAffinity", "Local volume requires node affinity"));
            }
        }
        "nfs" => {
            causes.needed(source, "server", &path);
            causes.needed(source, "path", &path);
        }
        _ => {}
    }
}

fn unchanged(new: &Value, old: &Value, causes: &mut Causes) {
    let bare = |spec: &Value| -> Vec<(String, Value)> {
        let mut list: Vec<(String, Value)> =
            sources(spec).into_iter().map(|(k, v)| (k.to_owned(), v.clone())).collect();
        // Where secrets lie may change: it says how to reach the volume, not which one it is.
        for (_, source) in &mut list {
            if let Some(map) = source.as_object_mut() {
                map.retain(|k, _| !k.ends_with("SecretRef"));
            }
        }
        list
    };
    if bare(new) != bare(old) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        causes.add(Cause::forbidden("spec.persistentvolumesource", detail));
    }
    if new["volumeMode"] != old["volumeMode"] {
        causes.add(Cause::invalid("spec.volumeMode", new["volumeMode"].clone(), "field is immutable"));
    }
    if !is_unset(&old["nodeAffinity"]) && new["nodeAffinity"] != old["nodeAffinity"] {
        let detail = "field is immutable, except for updating from beta label to GA";
        causes.add(Cause::invalid("spec.nodeAffinity", new["nodeAffinity"].clone(), detail));
    }
}
