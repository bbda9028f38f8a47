//! PersistentVolumeClaims.

use super::{access_modes, class_of, short_modes, size};
use crate::kinds::columns::{age, name, or_unset};
use crate::kinds::fields::{add_finalizer, child, default, is_unset, items, set, take, text};
use crate::kinds::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};
use trine_objects::{names, quantity};

/// Holds a claim while a Pod uses it.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Marks the class of claims that name none.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// The hooks of PersistentVolumeClaims.
pub struct Claims;

impl Hooks for Claims {
    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        default(spec, "volumeMode", "Filesystem");
        default(spec, "resources", json!({}));
        // Both names of the source of a claim's first content say the same, unless it lies in another namespace.
        if spec["dataSourceRef"].is_null() && !spec["dataSource"].is_null() {
            let source = spec["dataSource"].clone();
            set(spec, "dataSourceRef", source);
        } else if spec["dataSource"].is_null()
            && spec["dataSourceRef"].is_object()
            && spec["dataSourceRef"]["namespace"].is_null()
        {
            let source = spec["dataSourceRef"].clone();
            set(spec, "dataSource", source);
        }
    }

    fn prepare_create(&self, obj: &mut Value, cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({"phase": "Pending"}));
        add_finalizer(obj, PROTECTION);
        let beta = &obj["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
        if obj["spec"]["storageClassName"].is_null()
            && beta.is_null()
            && let Some(class) = default_class(cx)
        {
            set(&mut obj["spec"], "storageClassName", class);
        }
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        access_modes(spec, "at least 1 access mode is required", &mut causes);
        size(&spec["resources"]["requests"]["storage"], "spec.resources[storage]", &mut causes);
        if !is_unset(&spec["storageClassName"]) {
            causes.name("spec.storageClassName", text(spec, "storageClassName"), names::dns1123_subdomain);
        }
        causes.one_of(spec, "volumeMode", "spec", &["Block", "Filesystem"]);
        if let Some(old) = old {
            unchanged(obj, old, &mut causes);
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Status"),
                Column::text("Volume"),
                Column::text("Capacity"),
                Column::text("Access Modes"),
                Column::text("StorageClass"),
                Column::text("VolumeAttributesClass"),
                Column::AGE,
                Column::text("VolumeMode").wide(),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let (spec, status) = (&obj["spec"], &obj["status"]);
        let leaving = !obj["metadata"]["deletionTimestamp"].is_null();
        let phase = if leaving { "Terminating" } else { text(status, "phase") };
        let bound = !is_unset(&spec["volumeName"]);
        let (capacity, modes) = if bound {
            (text(&status["capacity"], "storage"), short_modes(items(status, "accessModes")))
        } else {
            ("", String::new())
        };
        vec![
            name(obj),
            phase.into(),
            text(spec, "volumeName").into(),
            capacity.into(),
            modes.into(),
            class_of(obj).into(),
            or_unset(text(spec, "volumeAttributesClassName")),
            age(obj, now_unix),
            or_unset(text(spec, "volumeMode")),
        ]
    }
}

/// The newest class that is marked as the default, by name among equals.
fn default_class(cx: &Cx) -> Option<String> {
    let is_default =
        |class: &Value| DEFAULT_CLASS.iter().any(|a| class["metadata"]["annotations"][*a] == "true");
    let mut classes = cx.objects.list("storage.k8s.io", "storageclasses");
    classes.retain(is_default);
    let key = |class: &Value, field: &str| text(&class["metadata"], field).to_owned();
    classes.sort_by_key(|c| (std::cmp::Reverse(key(c, "creationTimestamp")), key(c, "name")));
    classes.first().map(|c| key(c, "name"))
}

/// Whether a claim asks for more than it did.
pub fn wants_more(new: &Value, old: &Value) -> bool {
    let asked = |claim: &Value| quantity::from_value(&claim["spec"]["resources"]["requests"]["storage"]).ok();
    asked(old).is_some_and(|old| asked(new).is_some_and(|new| new > old))
}

/// Only a bound claim's size and attributes change; the volume and the class are named once.
fn unchanged(new: &Value, old: &Value, causes: &mut Causes) {
    let bound = old["status"]["phase"] == "Bound";
    let (mut after, mut before) = (new["spec"].clone(), old["spec"].clone());
    if is_unset(&before["volumeName"]) {
        take(&mut after, "volumeName");
        take(&mut before, "volumeName");
    }
    if before["storageClassName"].is_null() {
        take(&mut after, "storageClassName");
        take(&mut before, "storageClassName");
    }
    if bound {
        for spec in [&mut after, &mut before] {
            take(&mut spec["resources"], "requests");
            take(spec, "volumeAttributesClassName");
        }
    }
    if after != before {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.add(Cause::forbidden("spec", detail));
    }
    let asked = quantity::from_value(&new["spec"]["resources"]["requests"]["storage"]);
    let asked_before = quantity::from_value(&old["spec"]["resources"]["requests"]["storage"]);
    let has = quantity::from_value(&old["status"]["capacity"]["storage"]);
    if let (Ok(asked), Ok(before)) = (asked, asked_before)
        && asked < before
        && has.is_ok_and(|has| asked <= has)
    {
        let detail = "field can not be less than status.capacity";
        causes.add(Cause::forbidden("spec.resources.requests.storage", detail));
    }
}
