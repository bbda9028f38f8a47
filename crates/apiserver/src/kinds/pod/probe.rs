//! What probes and lifecycle hooks may not be.

use crate::kinds::fields::{items, text};
use crate::kinds::{Cause, Causes};
use serde_json::Value;
use trine_objects::names;

/// A probe; those that end a container count one success as enough.
pub fn probe(probe: &Value, path: &str, one_success: bool, causes: &mut Causes) {
    handler(probe, path, &["exec", "httpGet", "tcpSocket", "grpc"], causes);
    for key in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        causes.not_negative(probe, key, path);
    }
    if probe["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s <= 0) {
        let value = probe["terminationGracePeriodSeconds"].clone();
        causes.add(Cause::invalid(
            format!("{path}.terminationGracePeriodSeconds"),
            value,
            "must be greater than 0",
        ));
    }
    if one_success && probe["successThreshold"].as_i64().is_some_and(|n| n != 1) {
        causes.add(Cause::invalid(
            format!("{path}.successThreshold"),
            probe["successThreshold"].clone(),
            "must be 1",
        ));
    }
}

/// Hooks after the start and before the stop.
pub fn lifecycle(lifecycle: &Value, path: &str, causes: &mut Causes) {
    for hook in ["postStart", "preStop"] {
        if lifecycle[hook].is_object() {
            handler(
                &lifecycle[hook],
                &format!("{path}.{hook}"),
                &["exec", "httpGet", "tcpSocket", "sleep"],
                causes,
            );
        }
    }
}

fn handler(object: &Value, path: &str, kinds: &[&str], causes: &mut Causes) {
    let given: Vec<&str> = kinds.iter().copied().filter(|k| object[*k].is_object()).collect();
    let kind = match given.as_slice() {
        [] => return causes.add(Cause::required(path, "must specify a handler type")),
        [one] => *one,
        [_, second, ..] => {
            return causes.add(Cause::forbidden(
                format!("{path}.{second}"),
                "may not specify more than 1 handler type",
            ));
        }
    };
    let (action, path) = (&object[kind], format!("{path}.{kind}"));
    match kind {
        "exec" if items(action, "command").is_empty() => {
            causes.add(Cause::required(format!("{path}.command"), ""))
        }
        "httpGet" => {
            causes.needed(action, "path", &path);
            port(action, &path, causes);
            causes.one_of(action, "scheme", &path, &["HTTP", "HTTPS"]);
        }
        "tcpSocket" => port(action, &path, causes),
        "grpc" => causes.range(action, "port", &path, 1, 65_535),
        _ => {}
    }
}

/// A port by number or by name.
fn port(action: &Value, path: &str, causes: &mut Causes) {
    let port = &action["port"];
    match port {
        Value::String(_) => causes.name(&format!("{path}.port"), text(action, "port"), names::port_name),
        _ if (1..=65_535).contains(&port.as_i64().unwrap_or(0)) => {}
        _ => {
            let detail = "must be between 1 and 65535, inclusive";
            causes.add(Cause::invalid(format!("{path}.port"), port.as_i64().unwrap_or(0), detail));
        }
    }
}
