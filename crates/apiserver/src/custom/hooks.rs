//! What the verbs ask of custom kinds, and of the definitions themselves.

use serde_json::{Value, json};
use trine_objects::conditions;
use trine_objects::time;

use super::establish::nothing_accepted;
use super::values::{self, at};
use super::{Version, check, rules};
use crate::kinds::{Cause, Column, Cx, Hooks, Invalid, metadata_fields};
use crate::registry::{now_unix, text};

/// Holds a definition until the last of its objects is gone.
pub(super) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Hooks for Version {
    fn defaults(&self, obj: &mut Value) {
        self.schema.defaults(obj);
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = values::wrong(&self.schema, obj);
        if let Some(old) = old {
            // What was wrong before and is unchanged does no harm: a schema may become stricter around its objects.
            causes.retain(|cause| at(obj, &cause.field) != at(old, &cause.field));
        }
        if causes.is_empty() { rules::against(self, obj, old) } else { causes }
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let mut fields = metadata_fields(obj);
        fields.extend(self.selectable.iter().map(|(name, path)| {
            let found = path.find(obj);
            let value = found.first().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
            (name.clone(), value.unwrap_or_default())
        }));
        fields
    }
}

/// The hooks of `customresourcedefinitions`.
pub struct Definitions;

impl Hooks for Definitions {
    fn defaults(&self, obj: &mut Value) {
        let spec = &mut obj["spec"];
        if !spec.is_object() {
            return;
        }
        let kind = text(&spec["names"]["kind"]).to_owned();
        if !kind.is_empty() {
            let names = &mut spec["names"];
            for (field, default) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
                if text(&names[field]).is_empty() {
                    names[field] = default.into();
                }
            }
        }
        if !spec["conversion"].is_object() {
            spec["conversion"] = json!({"strategy": "None"});
        }
        let service = &mut spec["conversion"]["webhook"]["clientConfig"]["service"];
        if service.is_object() && service["port"].is_null() {
            service["port"] = 443.into();
        }
        prune_null(&mut spec["conversion"]);
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        let storage = storage_version(obj);
        obj["status"] = json!({"conditions": [], "acceptedNames": nothing_accepted(),
            "storedVersions": storage.into_iter().collect::<Vec<_>>()});
        Ok(())
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value, _cx: &mut Cx) -> Result<(), Invalid> {
        if let Some(storage) = storage_version(new) {
            if !new["status"]["storedVersions"].is_array() {
                new["status"]["storedVersions"] = json!([]);
            }
            if let Some(stored) = new["status"]["storedVersions"].as_array_mut()
                && !stored.contains(&json!(storage))
            {
                stored.push(storage.into());
            }
        }
        Ok(())
    }

    fn before_delete(&self, obj: &mut Value) {
        if !obj["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        let mut finalizers = obj["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.contains(&CLEANUP.into()) {
            finalizers.push(CLEANUP.into());
        }
        obj["metadata"]["finalizers"] = finalizers.into();
        let message = "CustomResource deletion is in progress";
        conditions::set(
            obj,
            "Terminating",
            true,
            "InstanceDeletionPending",
            message,
            &time::format(now_unix()),
        );
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        check(obj, old)
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Created At")] }
    }

    fn row(&self, obj: &Value, _now_unix: i64) -> Vec<Value> {
        vec![obj["metadata"]["name"].clone(), obj["metadata"]["creationTimestamp"].clone()]
    }
}

fn storage_version(definition: &Value) -> Option<String> {
    let versions = definition["spec"]["versions"].as_array()?;
    versions.iter().find(|v| v["storage"] == true).map(|v| text(&v["name"]).to_owned())
}

/// Looking into an object with `[]` leaves nulls behind.
fn prune_null(value: &mut Value) {
    if let Value::Object(map) = value {
        map.values_mut().for_each(prune_null);
        map.retain(|_, v| !v.is_null() && v != &json!({}));
    }
}
