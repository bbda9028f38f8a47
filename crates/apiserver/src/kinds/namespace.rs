//! Namespaces.

use super::columns::{age, name};
use super::fields::{child, default, set, text};
use super::hooks::metadata_fields;
use super::{Cause, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};
use trine_objects::names;

/// Carries the namespace's own name, for selectors.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Labels that say how much Pods may ask of their node.
const SECURITY_PREFIX: &str = "pod-security.kubernetes.io/";

/// The hooks of Namespaces.
pub struct Namespaces;

impl Hooks for Namespaces {
    fn name(&self, name: &str) -> names::Checked {
        names::dns1123_label(name)
    }

    fn defaults(&self, obj: &mut Value) {
        let own = text(&obj["metadata"], "name").to_owned();
        if !own.is_empty() {
            let labels = child(child(obj, "metadata"), "labels");
            set(labels, NAME_LABEL, own);
        }
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({"phase": "Active"}));
        let spec = child(obj, "spec");
        default(spec, "finalizers", json!([]));
        if let Some(list) = spec["finalizers"].as_array_mut()
            && !list.iter().any(|f| f == "kubernetes")
        {
            list.push("kubernetes".into());
        }
        Ok(())
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _cx: &mut Cx) -> Result<(), Invalid> {
        // Only `namespaces/finalize` changes these.
        set(child(new, "spec"), "finalizers", old["spec"]["finalizers"].clone());
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        for mode in ["enforce", "audit", "warn"] {
            let key = format!("{SECURITY_PREFIX}{mode}");
            let level = &obj["metadata"]["labels"][&key];
            let known = ["privileged", "baseline", "restricted"];
            let changed = old.is_none_or(|old| old["metadata"]["labels"][&key] != *level);
            if !level.is_null() && changed && !known.contains(&level.as_str().unwrap_or_default()) {
                let detail = "must be one of privileged, baseline, restricted";
                causes.push(Cause::invalid(format!("metadata.labels[{key}]"), level.clone(), detail));
            }
        }
        causes
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Status"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        vec![name(obj), text(&obj["status"], "phase").into(), age(obj, now_unix)]
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let mut fields = metadata_fields(obj);
        fields.push(("status.phase".to_owned(), text(&obj["status"], "phase").to_owned()));
        fields
    }
}
