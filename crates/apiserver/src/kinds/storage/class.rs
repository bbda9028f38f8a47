//! StorageClasses and VolumeAttributesClasses.

use super::dns_name;
use crate::kinds::columns::{age, name};
use crate::kinds::fields::{default, text};
use crate::kinds::{Cause, Causes, Column, Hooks};
use serde_json::Value;

/// The hooks of StorageClasses.
pub struct Classes;

impl Hooks for Classes {
    fn defaults(&self, obj: &mut Value) {
        default(obj, "reclaimPolicy", "Delete");
        default(obj, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        dns_or_path(obj, &mut causes);
        for (field, known) in [
            ("reclaimPolicy", ["Delete", "Retain"]),
            ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
        ] {
            let value = text(obj, field);
            if !known.contains(&value) {
                causes.add(Cause::not_supported(field, value, &known));
            }
        }
        if obj["parameters"].as_object().is_some_and(|p| p.keys().any(String::is_empty)) {
            causes.add(Cause::invalid("parameters", "", "field must not be empty."));
        }
        let Some(old) = old else { return causes.0 };
        for field in ["parameters", "provisioner", "reclaimPolicy"] {
            if obj[field] != old[field] {
                causes.add(Cause::forbidden(field, &format!("updates to {field} are forbidden.")));
            }
        }
        if obj["volumeBindingMode"] != old["volumeBindingMode"] {
            causes.add(Cause::invalid(
                "volumeBindingMode",
                obj["volumeBindingMode"].clone(),
                "field is immutable",
            ));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Provisioner"),
                Column::text("ReclaimPolicy"),
                Column::text("VolumeBindingMode"),
                Column { type_: "boolean", ..Column::text("AllowVolumeExpansion") },
                Column::AGE,
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let annotations = &obj["metadata"]["annotations"];
        let is_default = annotations["storageclass.kubernetes.io/is-default-class"] == "true";
        let shown = text(&obj["metadata"], "name");
        vec![
            if is_default { format!("{shown} (default)") } else { shown.to_owned() }.into(),
            text(obj, "provisioner").into(),
            text(obj, "reclaimPolicy").into(),
            text(obj, "volumeBindingMode").into(),
            (obj["allowVolumeExpansion"] == true).into(),
            age(obj, now_unix),
        ]
    }
}

/// A provisioner is a qualified name, as `kubernetes.io/no-provisioner` or a driver's.
fn dns_or_path(obj: &Value, causes: &mut Causes) {
    let provisioner = text(obj, "provisioner").to_ascii_lowercase();
    causes.needed_name("provisioner", &provisioner, trine_objects::names::qualified_name);
}

/// The hooks of VolumeAttributesClasses.
pub struct AttributesClasses;

impl Hooks for AttributesClasses {
    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        dns_name(obj, "driverName", "driverName", &mut causes);
        if obj["parameters"].as_object().is_none_or(serde_json::Map::is_empty) {
            causes.add(Cause::required("parameters", "must contain at least one key/value pair"));
        }
        for field in ["driverName", "parameters"] {
            if old.is_some_and(|old| old[field] != obj[field]) {
                causes.add(Cause::invalid(field, obj[field].clone(), "field is immutable"));
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("DriverName"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        vec![name(obj), text(obj, "driverName").into(), age(obj, now_unix)]
    }
}
