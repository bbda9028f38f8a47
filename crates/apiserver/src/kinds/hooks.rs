//! What the verbs ask of a kind.

use super::{Cause, Column, Cx, Invalid, columns, generic::Generic};
use serde_json::Value;

/// The particulars of a kind. The order at creation is `defaults`, `prepare_create`, `validate`, the write, `Cx::commit`; at
/// an update `defaults`, `prepare_update`, `validate`, the write, `Cx::commit`. Each may be repeated after a lost race. All
/// except those that take a [`Cx`] are pure.
pub trait Hooks: Sync {
    /// Sets what the client left open. Idempotent.
    fn defaults(&self, _obj: &mut Value) {}

    /// What the server decides when the object is made: initial status, allocations, admission.
    fn prepare_create(&self, _obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        Ok(())
    }

    /// What the server decides when the object is changed. `old` is the stored object; the verbs have already kept what the
    /// client may not change here (status, or everything but status).
    fn prepare_update(&self, _new: &mut Value, _old: &Value, _cx: &mut Cx) -> Result<(), Invalid> {
        Ok(())
    }

    /// The object is gone: gives back what it held.
    fn after_delete(&self, _obj: &Value, _cx: &mut Cx) {}

    /// What is wrong with the object, and with the change if there is an old one. Metadata is checked elsewhere.
    fn validate(&self, _obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        Vec::new()
    }

    /// The columns of its table.
    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::AGE] }
    }

    /// Its cells, one for each column.
    fn row(&self, obj: &Value, _now_unix: i64) -> Vec<Value> {
        vec![columns::name(obj), obj["metadata"]["creationTimestamp"].clone()]
    }

    /// The fields that selectors may name, always all of them, with their values in this object.
    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        metadata_fields(obj)
    }
}

/// The fields that every kind supports.
pub(super) fn metadata_fields(obj: &Value) -> Vec<(String, String)> {
    ["name", "namespace"]
        .iter()
        .map(|f| (format!("metadata.{f}"), obj["metadata"][*f].as_str().unwrap_or_default().to_owned()))
        .collect()
}

/// The hooks of a resource; those without particulars have the provided ones.
pub fn hooks(_group: &str, _resource: &str) -> &'static dyn Hooks {
    &Generic
}
