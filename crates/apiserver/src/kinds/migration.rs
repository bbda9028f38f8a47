//! StorageVersionMigrations: wishes to write all objects of a resource anew.

use super::columns::name;
use super::fields::{set, text};
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};
use trine_objects::conditions;

/// The hooks of StorageVersionMigrations.
pub struct Migrations;

impl Hooks for Migrations {
    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({}));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        causes.needed(&obj["spec"]["resource"], "resource", "spec.resource");
        if old.is_some_and(|old| old["spec"] != obj["spec"]) {
            causes.add(Cause::invalid("spec", obj["spec"].clone(), "field is immutable"));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Resource"), Column::text("Status")] }
    }

    fn row(&self, obj: &Value, _now_unix: i64) -> Vec<Value> {
        let resource = &obj["spec"]["resource"];
        let group = text(resource, "group");
        let shown = if group.is_empty() {
            text(resource, "resource").to_owned()
        } else {
            format!("{}.{group}", text(resource, "resource"))
        };
        let states = ["Succeeded", "Failed", "Running"];
        let state = states.into_iter().find(|s| conditions::is_true(obj, s)).unwrap_or("Unknown");
        vec![name(obj), shown.into(), state.into()]
    }
}
