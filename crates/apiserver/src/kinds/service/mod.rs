//! Services.
//!
//! - `pool`, `allocate` cluster IPs and ports of nodes
//! - `validate` what is refused
//! - `table` how `kubectl get` sees one

mod allocate;
mod families;
mod pool;
mod table;
mod validate;

use super::fields::{child, default, is_unset, items, items_mut, set, take, text};
use super::hooks::metadata_fields;
use super::{Cause, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};
use trine_objects::names;

pub use allocate::{Allocators, Held, holdings};

/// How long a client stays with its endpoint, in seconds: three hours, as upstream.
const AFFINITY_SECONDS: i64 = 10_800;

/// The hooks of Services.
pub struct Services;

impl Hooks for Services {
    fn name(&self, name: &str) -> names::Checked {
        names::dns1035_label(name)
    }

    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        default(spec, "sessionAffinity", "None");
        default(spec, "type", "ClusterIP");
        if spec["sessionAffinity"] == "ClientIP" {
            default(
                child(child(spec, "sessionAffinityConfig"), "clientIP"),
                "timeoutSeconds",
                AFFINITY_SECONDS,
            );
        }
        for port in items_mut(spec, "ports") {
            default(port, "protocol", "TCP");
            if is_unset(&port["targetPort"]) || port["targetPort"] == 0 {
                let number = port["port"].clone();
                set(port, "targetPort", number);
            }
        }
        match text(spec, "type") {
            "ExternalName" => {}
            "NodePort" | "LoadBalancer" => {
                default(spec, "externalTrafficPolicy", "Cluster");
                default(spec, "internalTrafficPolicy", "Cluster");
            }
            _ => default(spec, "internalTrafficPolicy", "Cluster"),
        }
        if spec["type"] == "LoadBalancer" {
            default(spec, "allocateLoadBalancerNodePorts", true);
        }
    }

    fn prepare_create(&self, obj: &mut Value, cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({"loadBalancer": {}}));
        allocate::allocate(obj, None, cx)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, cx: &mut Cx) -> Result<(), Invalid> {
        keep_allocated(new, old);
        allocate::allocate(new, Some(old), cx)
    }

    fn after_delete(&self, obj: &Value, cx: &mut Cx) {
        cx.freed.extend(allocate::holdings(obj));
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        validate::service(obj, old)
    }

    fn columns(&self) -> &'static [Column] {
        table::COLUMNS
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        table::row(obj, now_unix)
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let mut fields = metadata_fields(obj);
        for field in ["clusterIP", "type"] {
            fields.push((format!("spec.{field}"), text(&obj["spec"], field).to_owned()));
        }
        fields
    }
}

/// A client that sends what it first sent keeps what it was given; a change of type drops what the new type has not.
fn keep_allocated(new: &mut Value, old: &Value) {
    let (was, old) = (text(&old["spec"], "type").to_owned(), &old["spec"]);
    let spec = child(new, "spec");
    let is = text(spec, "type").to_owned();
    if is != "ExternalName" && was != "ExternalName" {
        if is_unset(&spec["clusterIP"]) && items(spec, "clusterIPs").is_empty() {
            for field in ["clusterIP", "clusterIPs"] {
                set(spec, field, old[field].clone());
            }
        } else if is_unset(&spec["clusterIP"]) {
            let first = spec["clusterIPs"][0].clone();
            set(spec, "clusterIP", first);
        } else if spec["clusterIP"] == old["clusterIP"] && items(spec, "clusterIPs").is_empty() {
            set(spec, "clusterIPs", old["clusterIPs"].clone());
        }
        default(spec, "ipFamilies", old["ipFamilies"].clone());
    }
    let has_node_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    let before = items(old, "ports").to_vec();
    for port in items_mut(spec, "ports") {
        let same = |p: &&Value| p["port"] == port["port"] && p["protocol"] == port["protocol"];
        let number = before.iter().find(same).map(|p| p["nodePort"].clone()).unwrap_or(Value::Null);
        let unset = port["nodePort"].as_i64().unwrap_or(0) == 0;
        if has_node_ports(&is) && unset && !number.is_null() {
            set(port, "nodePort", number);
        } else if !has_node_ports(&is) && has_node_ports(&was) && port["nodePort"] == number {
            take(port, "nodePort");
        }
    }
}

#[cfg(test)]
mod tests;
