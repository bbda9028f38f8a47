//! What a Pod's containers may not be.

use super::validate;
use super::{probe, volume};
use crate::kinds::fields::{is_unset, items, text};
use crate::kinds::{Cause, Causes};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use trine_objects::names;

/// Fields of a Pod that a variable may show.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Checks the containers of all sorts.
pub fn all(spec: &Value, path: &str, volumes: &HashMap<&str, &Value>, causes: &mut Causes) {
    if items(spec, "containers").is_empty() {
        causes.add(Cause::required(format!("{path}.containers"), ""));
    }
    let mut names_seen = HashSet::new();
    let mut host_ports = HashSet::new();
    let host_network = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for (i, container) in items(spec, list).iter().enumerate() {
            let path = format!("{path}.{list}[{i}]");
            let name = text(container, "name");
            causes.needed_name(&format!("{path}.name"), name, names::dns1123_label);
            if !name.is_empty() && !names_seen.insert(name) {
                causes.add(Cause::duplicate(format!("{path}.name"), name));
            }
            one(container, &path, volumes, causes);
            ports(container, &path, host_network, &mut host_ports, causes);
            handlers(container, &path, list == "initContainers", causes);
        }
    }
}

fn one(container: &Value, path: &str, volumes: &HashMap<&str, &Value>, causes: &mut Causes) {
    let image = text(container, "image");
    if image.is_empty() {
        causes.add(Cause::required(format!("{path}.image"), ""));
    } else if image != image.trim() {
        let detail = "must not have leading or trailing whitespace";
        causes.add(Cause::invalid(format!("{path}.image"), image, detail));
    }
    causes.one_of(container, "imagePullPolicy", path, &["Always", "IfNotPresent", "Never"]);
    causes.one_of(container, "terminationMessagePolicy", path, &["FallbackToLogsOnError", "File"]);
    env(container, path, causes);
    volume::uses(container, path, volumes, causes);
    validate::resources(&container["resources"], &format!("{path}.resources"), causes);
    validate::security(&container["securityContext"], &format!("{path}.securityContext"), causes);
}

fn ports<'a>(
    container: &'a Value,
    path: &str,
    host_network: bool,
    host_ports: &mut HashSet<(&'a str, &'a str, i64)>,
    causes: &mut Causes,
) {
    let mut seen = HashSet::new();
    for (i, port) in items(container, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{i}]");
        let name = text(port, "name");
        if !name.is_empty() {
            causes.name(&format!("{path}.name"), name, names::port_name);
            if !seen.insert(name) {
                causes.add(Cause::duplicate(format!("{path}.name"), name));
            }
        }
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => causes.add(Cause::required(format!("{path}.containerPort"), "")),
            _ => causes.range(port, "containerPort", &path, 1, 65_535),
        }
        causes.one_of(port, "protocol", &path, &["SCTP", "TCP", "UDP"]);
        let host_port = port["hostPort"].as_i64().unwrap_or(0);
        if host_port == 0 {
            continue;
        }
        causes.range(port, "hostPort", &path, 1, 65_535);
        // A template may leave it open: its Pods are given it.
        if host_network && host_port != 0 && port["hostPort"] != port["containerPort"] {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            causes.add(Cause::invalid(format!("{path}.hostPort"), host_port, detail));
        }
        let (protocol, ip) = (text(port, "protocol"), text(port, "hostIP"));
        if !host_ports.insert((protocol, ip, host_port)) {
            causes.add(Cause::duplicate(format!("{path}.hostPort"), format!("{protocol}/{ip}/{host_port}")));
        }
    }
}

fn env(container: &Value, path: &str, causes: &mut Causes) {
    for (i, variable) in items(container, "env").iter().enumerate() {
        let path = format!("{path}.env[{i}]");
        causes.needed_name(&format!("{path}.name"), text(variable, "name"), names::env_var_name);
        if variable["valueFrom"].is_object() {
            env_source(variable, &format!("{path}.valueFrom"), causes);
        }
    }
    for (i, source) in items(container, "envFrom").iter().enumerate() {
        let path = format!("{path}.envFrom[{i}]");
        let given: Vec<&str> =
            ["configMapRef", "secretRef"].into_iter().filter(|k| source[*k].is_object()).collect();
        match given.as_slice() {
            [] => causes.add(Cause::invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")),
            [one] => causes.needed(&source[*one], "name", &format!("{path}.{one}")),
            _ => causes.add(Cause::invalid(path, "", "may not have more than one field specified at a time")),
        }
    }
}

fn env_source(variable: &Value, path: &str, causes: &mut Causes) {
    let source = &variable["valueFrom"];
    if !is_unset(&variable["value"]) {
        causes.add(Cause::invalid(path, "", "may not be specified when `value` is not empty"));
    }
    let known = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let given: Vec<&str> = known.into_iter().filter(|k| source[*k].is_object()).collect();
    let kind = match given.as_slice() {
        [] => {
            let detail = "must specify one of: `configMapKeyRef`, `fieldRef`, `fileKeyRef`, `resourceFieldRef` or `secretKeyRef`";
            return causes.add(Cause::invalid(path, "", detail));
        }
        [one] => *one,
        _ => {
            return causes.add(Cause::invalid(
                path,
                "",
                "may not have more than one field specified at a time",
            ));
        }
    };
    let (source, path) = (&source[kind], format!("{path}.{kind}"));
    match kind {
        "fieldRef" => {
            let field = text(source, "fieldPath");
            let keyed = field.starts_with("metadata.labels['") || field.starts_with("metadata.annotations['");
            causes.needed(source, "fieldPath", &path);
            if !field.is_empty() && !keyed && !ENV_FIELDS.contains(&field) {
                causes.add(Cause::not_supported(format!("{path}.fieldPath"), field, &ENV_FIELDS));
            }
        }
        "resourceFieldRef" => causes.needed(source, "resource", &path),
        "configMapKeyRef" | "secretKeyRef" => {
            causes.needed(source, "name", &path);
            causes.needed_name(&format!("{path}.key"), text(source, "key"), names::config_key);
        }
        _ => {}
    }
}

fn handlers(container: &Value, path: &str, init: bool, causes: &mut Causes) {
    let policy = text(container, "restartPolicy");
    let sidecar = policy == "Always";
    if init && !policy.is_empty() && !["Always", "OnFailure", "Never"].contains(&policy) {
        causes.one_of(container, "restartPolicy", path, &["Always", "Never", "OnFailure"]);
    }
    for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if !container[key].is_object() {
            continue;
        }
        let path = format!("{path}.{key}");
        if init && !sidecar {
            causes.add(Cause::forbidden(
                path,
                "may not be set for init containers without restartPolicy=Always",
            ));
        } else if key == "lifecycle" {
            probe::lifecycle(&container[key], &path, causes);
        } else {
            probe::probe(&container[key], &path, key != "readinessProbe", causes);
        }
    }
}
