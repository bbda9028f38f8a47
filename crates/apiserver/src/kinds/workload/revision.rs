//! ControllerRevisions: what a DaemonSet or StatefulSet was at some time.

use super::default_number;
use crate::kinds::columns::{age, name, or_none};
use crate::kinds::fields::{items, text};
use crate::kinds::{Cause, Causes, Column, Hooks};
use serde_json::Value;
use trine_objects::resources::split_api_version;

/// The hooks of ControllerRevisions.
pub struct Revisions;

impl Hooks for Revisions {
    fn defaults(&self, obj: &mut Value) {
        default_number(obj, "revision", 0);
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        causes.not_negative(obj, "revision", "");
        match old {
            None if obj["data"].is_null() => causes.add(Cause::required("data", "data is mandatory")),
            None if !obj["data"].is_object() => {
                causes.add(Cause::required("data", "data must be a valid JSON object"));
            }
            Some(old) if old["data"] != obj["data"] => {
                causes.add(Cause::invalid("data", obj["data"].clone(), "field is immutable"));
            }
            _ => {}
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Controller"), Column::text("Revision"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let owners = items(&obj["metadata"], "ownerReferences");
        let controller = owners.iter().find(|o| o["controller"] == true).map(|owner| {
            let (group, _) = split_api_version(text(owner, "apiVersion"));
            let kind = text(owner, "kind").to_lowercase();
            let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
            format!("{kind}/{}", text(owner, "name"))
        });
        let revision = obj["revision"].as_i64().unwrap_or(0).to_string();
        vec![name(obj), or_none(&controller.unwrap_or_default()), revision.into(), age(obj, now_unix)]
    }
}
