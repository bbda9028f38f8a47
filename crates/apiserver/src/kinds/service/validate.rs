//! What a Service may not be.

use super::families;
use crate::kinds::fields::{is_unset, items, text};
use crate::kinds::metadata::labels;
use crate::kinds::{Cause, Causes};
use serde_json::Value;
use std::collections::HashSet;
use std::net::IpAddr;
use trine_objects::names;

/// Everything wrong with a Service, and with its change.
pub fn service(obj: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = &obj["spec"];
    let mut causes = Causes::default();
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    if items(spec, "ports").is_empty() && !headless && kind != "ExternalName" {
        causes.add(Cause::required("spec.ports", ""));
    }
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        let detail = format!("may not be set to 'None' for {kind} services");
        causes.add(Cause::invalid("spec.clusterIPs[0]", "None", &detail));
    }
    if kind == "ExternalName" {
        let name = text(spec, "externalName").trim_end_matches('.');
        causes.needed_name("spec.externalName", name, names::dns1123_subdomain);
    }
    causes.one_of(spec, "type", "spec", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    causes.one_of(spec, "sessionAffinity", "spec", &["ClientIP", "None"]);
    causes.one_of(spec, "internalTrafficPolicy", "spec", &["Cluster", "Local"]);
    causes.one_of(spec, "externalTrafficPolicy", "spec", &["Cluster", "Local"]);
    causes.one_of(spec, "ipFamilyPolicy", "spec", &[families::PREFER, families::REQUIRE, families::SINGLE]);
    causes.range(
        &spec["sessionAffinityConfig"]["clientIP"],
        "timeoutSeconds",
        "spec.sessionAffinityConfig.clientIP",
        1,
        86_400,
    );
    causes.extend(labels(spec, "selector", "spec.selector"));
    ports(spec, kind, &mut causes);
    addresses(spec, headless, &mut causes);
    if let Some(old) = old {
        unchanged(spec, &old["spec"], &mut causes);
    }
    causes.0
}

fn ports(spec: &Value, kind: &str, causes: &mut Causes) {
    let ports = items(spec, "ports");
    let (mut names_seen, mut numbers, mut node_ports) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (i, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{i}]");
        let (name, protocol) = (text(port, "name"), text(port, "protocol"));
        if name.is_empty() {
            if ports.len() > 1 {
                causes.add(Cause::required(format!("{path}.name"), ""));
            }
        } else {
            causes.name(&format!("{path}.name"), name, names::dns1123_label);
            if !names_seen.insert(name) {
                causes.add(Cause::duplicate(format!("{path}.name"), name));
            }
        }
        let number = port["port"].as_i64().unwrap_or(0);
        if !(1..=65_535).contains(&number) {
            causes.add(Cause::invalid(
                format!("{path}.port"),
                number,
                "must be between 1 and 65535, inclusive",
            ));
        }
        causes.one_of(port, "protocol", &path, &["SCTP", "TCP", "UDP"]);
        match &port["targetPort"] {
            Value::String(name) => causes.name(&format!("{path}.targetPort"), name, names::port_name),
            _ => causes.range(port, "targetPort", &path, 1, 65_535),
        }
        if !numbers.insert((protocol, number)) {
            let value = serde_json::json!({"port": number, "protocol": protocol});
            causes.add(Cause::duplicate(path.clone(), value));
        }
        let node_port = port["nodePort"].as_i64().unwrap_or(0);
        if node_port != 0 && matches!(kind, "ClusterIP" | "ExternalName") {
            let detail = format!("may not be used when `type` is '{kind}'");
            causes.add(Cause::forbidden(format!("{path}.nodePort"), &detail));
        } else if node_port != 0 && !node_ports.insert((protocol, node_port)) {
            causes.add(Cause::duplicate(format!("{path}.nodePort"), node_port));
        }
    }
}

fn addresses(spec: &Value, headless: bool, causes: &mut Causes) {
    let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    for (i, address) in items(spec, "clusterIPs").iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        if !headless && address.parse::<IpAddr>().is_err() {
            causes.add(Cause::invalid(format!("spec.clusterIPs[{i}]"), address, detail));
        }
    }
    if !is_unset(&spec["clusterIP"]) && spec["clusterIPs"][0] != spec["clusterIP"] {
        let detail = "first value must match `clusterIP`";
        causes.add(Cause::invalid("spec.clusterIPs", spec["clusterIPs"].clone(), detail));
    }
    for (i, address) in items(spec, "externalIPs").iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        let field = format!("spec.externalIPs[{i}]");
        match address.parse::<IpAddr>() {
            Err(_) => causes.add(Cause::invalid(field, address, detail)),
            Ok(ip) if ip.is_unspecified() => {
                causes.add(Cause::invalid(field, address, &format!("may not be unspecified ({address})")));
            }
            Ok(ip) if ip.is_loopback() => {
                causes.add(Cause::invalid(
                    field,
                    address,
                    "may not be in the loopback range (127.0.0.0/8, ::1/128)",
                ));
            }
            Ok(_) => {}
        }
    }
}

fn unchanged(new: &Value, old: &Value, causes: &mut Causes) {
    let without = |spec: &Value| text(spec, "type") == "ExternalName" || is_unset(&spec["clusterIP"]);
    if !without(new) && !without(old) {
        causes.extend(families::unchanged(new, old));
    }
}
