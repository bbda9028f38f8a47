//! VolumeAttachments.

use super::dns_name;
use crate::kinds::columns::{age, name};
use crate::kinds::fields::{set, text};
use crate::kinds::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};

/// The hooks of VolumeAttachments.
pub struct Attachments;

impl Hooks for Attachments {
    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({"attached": false}));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        dns_name(spec, "attacher", "spec.attacher", &mut causes);
        causes.needed(spec, "nodeName", "spec");
        let source = &spec["source"];
        match (source["persistentVolumeName"].is_string(), source["inlineVolumeSpec"].is_object()) {
            (false, false) => {
                causes.add(Cause::required(
                    "spec.source",
                    "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                ));
            }
            (true, true) => {
                let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                causes.add(Cause::forbidden("spec.source", detail));
            }
            _ => {}
        }
        if old.is_some_and(|old| old["spec"] != *spec) {
            causes.add(Cause::invalid("spec", spec.clone(), "field is immutable"));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Attacher"),
                Column::text("PV"),
                Column::text("Node"),
                Column { type_: "boolean", ..Column::text("Attached") },
                Column::AGE,
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let spec = &obj["spec"];
        vec![
            name(obj),
            text(spec, "attacher").into(),
            text(&spec["source"], "persistentVolumeName").into(),
            text(spec, "nodeName").into(),
            (obj["status"]["attached"] == true).into(),
            age(obj, now_unix),
        ]
    }
}
