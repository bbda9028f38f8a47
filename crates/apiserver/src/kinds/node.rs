//! Nodes.

use super::columns::{age, name, or_none};
use super::fields::{entries, items, set, text};
use super::hooks::metadata_fields;
use super::pod::EFFECTS;
use super::{Cause, Causes, Column, Hooks};
use serde_json::Value;
use std::collections::HashSet;
use trine_objects::{conditions, names};

/// Labels that name the roles of a node.
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

/// The hooks of Nodes. A node registers itself with its status, so nothing of it is reset.
pub struct Nodes;

impl Hooks for Nodes {
    fn defaults(&self, obj: &mut Value) {
        let status = &mut obj["status"];
        if status["capacity"].is_object() && status["allocatable"].is_null() {
            let all = status["capacity"].clone();
            set(status, "allocatable", all);
        }
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        let mut seen = HashSet::new();
        for (i, taint) in items(spec, "taints").iter().enumerate() {
            let path = format!("spec.taints[{i}]");
            causes.needed_name(&format!("{path}.key"), text(taint, "key"), names::qualified_name);
            causes.name(&format!("{path}.value"), text(taint, "value"), names::label_value);
            if text(taint, "effect").is_empty() {
                causes.add(Cause::required(format!("{path}.effect"), ""));
            }
            causes.one_of(taint, "effect", &path, &EFFECTS);
            if !seen.insert((text(taint, "key"), text(taint, "effect"))) {
                causes.add(Cause::duplicate(path, taint.clone()));
            }
        }
        if let Some(old) = old.map(|o| &o["spec"]) {
            for (field, detail) in [
                ("podCIDR", "node updates may not change podCIDR except from \"\" to valid"),
                ("providerID", "node updates may not change providerID except from \"\" to valid"),
            ] {
                if !text(old, field).is_empty() && text(old, field) != text(spec, field) {
                    causes.add(Cause::forbidden(format!("spec.{field}"), detail));
                }
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Status"),
                Column::text("Roles"),
                Column::AGE,
                Column::text("Version"),
                Column::text("Internal-IP").wide(),
                Column::text("External-IP").wide(),
                Column::text("OS-Image").wide(),
                Column::text("Kernel-Version").wide(),
                Column::text("Container-Runtime").wide(),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let info = &obj["status"]["nodeInfo"];
        let known = |field: &str| -> Value {
            let value = text(info, field);
            if value.is_empty() { "<unknown>".into() } else { value.into() }
        };
        vec![
            name(obj),
            state(obj).into(),
            or_none(&roles(obj)),
            age(obj, now_unix),
            text(info, "kubeletVersion").into(),
            or_none(address(obj, "InternalIP")),
            or_none(address(obj, "ExternalIP")),
            known("osImage"),
            known("kernelVersion"),
            known("containerRuntimeVersion"),
        ]
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let mut fields = metadata_fields(obj);
        fields.push(("spec.unschedulable".to_owned(), (obj["spec"]["unschedulable"] == true).to_string()));
        fields
    }
}

fn state(node: &Value) -> String {
    let ready = match conditions::find(node, "Ready").map(|c| text(c, "status")) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    };
    let closed = node["spec"]["unschedulable"] == true;
    if closed { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

fn roles(node: &Value) -> String {
    let mut roles: Vec<&str> = entries(&node["metadata"], "labels")
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) if !role.is_empty() => Some(role),
            _ if key == "kubernetes.io/role" => value.as_str().filter(|v| !v.is_empty()),
            _ => None,
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    roles.join(",")
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    items(&node["status"], "addresses").iter().find(|a| a["type"] == kind).map_or("", |a| text(a, "address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_row_shows_state_roles_and_addresses() {
        let node = json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "edge"}},
            "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "nodeInfo": {"kubeletVersion": "v1.37.0"}}});
        let row = Nodes.row(&node, 0);
        let wanted = json!([
            "n",
            "Ready,SchedulingDisabled",
            "control-plane,edge",
            "<unknown>",
            "v1.37.0",
            "10.0.0.1",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>"
        ]);
        assert_eq!(&row, wanted.as_array().unwrap());
    }

    #[test]
    fn taints_are_checked() {
        let node = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}, {"key": "b"}, {"key": "c", "effect": "X"}]}});
        let found: Vec<String> = Nodes.validate(&node, None).iter().map(|c| c.field.clone()).collect();
        assert_eq!(found, ["spec.taints[1]", "spec.taints[2].effect", "spec.taints[3].effect"]);
    }
}
