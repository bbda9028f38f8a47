//! Namespaces.

use super::columns::{age, name};
use super::fields::{child, default, set, text};
use super::hooks::metadata_fields;
use super::{Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};
use trine_objects::names;

/// Carries the namespace's own name, for selectors.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

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
