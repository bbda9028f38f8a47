//! CSIDrivers, CSINodes and CSIStorageCapacities.

use super::dns_name;
use crate::kinds::columns::{age, name, or_unset};
use crate::kinds::fields::{child, default, items, text};
use crate::kinds::{Cause, Causes, Column, Hooks};
use serde_json::{Value, json};
use std::collections::HashSet;

/// The hooks of CSIDrivers.
pub struct Drivers;

impl Hooks for Drivers {
    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        default(spec, "attachRequired", true);
        for field in ["podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity"] {
            default(spec, field, false);
        }
        default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if items(spec, "volumeLifecycleModes").is_empty() {
            spec["volumeLifecycleModes"] = json!(["Persistent"]);
        }
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        causes.one_of(spec, "fsGroupPolicy", "spec", &["File", "None", "ReadWriteOnceWithFSType"]);
        for mode in items(spec, "volumeLifecycleModes").iter().filter_map(Value::as_str) {
            if !["Ephemeral", "Persistent"].contains(&mode) {
                causes.add(Cause::not_supported(
                    "spec.volumeLifecycleModes",
                    mode,
                    &["Ephemeral", "Persistent"],
                ));
            }
        }
        for field in ["attachRequired", "volumeLifecycleModes"] {
            if old.is_some_and(|old| old["spec"][field] != spec[field]) {
                causes.add(Cause::invalid(
                    format!("spec.{field}"),
                    spec[field].clone(),
                    "field is immutable",
                ));
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column { type_: "boolean", ..Column::text("AttachRequired") },
                Column { type_: "boolean", ..Column::text("PodInfoOnMount") },
                Column { type_: "boolean", ..Column::text("StorageCapacity") },
                Column::text("TokenRequests"),
                Column { type_: "boolean", ..Column::text("RequiresRepublish") },
                Column::text("Modes"),
                Column::AGE,
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let spec = &obj["spec"];
        let tokens: Vec<&str> = items(spec, "tokenRequests").iter().map(|t| text(t, "audience")).collect();
        let modes: Vec<&str> = items(spec, "volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
        vec![
            name(obj),
            (spec["attachRequired"] != false).into(),
            (spec["podInfoOnMount"] == true).into(),
            (spec["storageCapacity"] == true).into(),
            or_unset(&tokens.join(",")),
            (spec["requiresRepublish"] == true).into(),
            if modes.is_empty() { "<none>".to_owned() } else { modes.join(",") }.into(),
            age(obj, now_unix),
        ]
    }
}

/// The hooks of CSINodes.
pub struct NodeDrivers;

impl Hooks for NodeDrivers {
    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let mut seen = HashSet::new();
        for (i, driver) in items(&obj["spec"], "drivers").iter().enumerate() {
            let path = format!("spec.drivers[{i}]");
            dns_name(driver, "name", &format!("{path}.name"), &mut causes);
            causes.needed(driver, "nodeID", &path);
            if !seen.insert(text(driver, "name")) {
                causes.add(Cause::duplicate(format!("{path}.name"), text(driver, "name")));
            }
            if driver["allocatable"]["count"].as_i64().is_some_and(|n| n < 0) {
                let field = format!("{path}.allocatable.count");
                causes.add(Cause::invalid(
                    field,
                    driver["allocatable"]["count"].clone(),
                    "must be greater than or equal to 0",
                ));
            }
            let before = old
                .into_iter()
                .flat_map(|o| items(&o["spec"], "drivers"))
                .find(|d| d["name"] == driver["name"]);
            let bare = |d: &Value| (d["nodeID"].clone(), d["topologyKeys"].clone());
            if before.is_some_and(|b| bare(b) != bare(driver)) {
                causes.add(Cause::invalid(path, driver.clone(), "field is immutable"));
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::integer("Drivers"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        vec![name(obj), items(&obj["spec"], "drivers").len().into(), age(obj, now_unix)]
    }
}

/// The hooks of CSIStorageCapacities.
pub struct Capacities;

impl Hooks for Capacities {
    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        dns_name(obj, "storageClassName", "storageClassName", &mut causes);
        for field in ["nodeTopology", "storageClassName"] {
            if old.is_some_and(|old| old[field] != obj[field]) {
                causes.add(Cause::invalid(field, obj[field].clone(), "field is immutable"));
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("StorageClassName"), Column::text("Capacity")] }
    }

    fn row(&self, obj: &Value, _now_unix: i64) -> Vec<Value> {
        vec![name(obj), text(obj, "storageClassName").into(), or_unset(text(obj, "capacity"))]
    }
}
