//! What a Pod's wishes for its node may not be.

use crate::kinds::fields::{is_unset, items, text};
use crate::kinds::{Cause, Causes};
use serde_json::Value;
use trine_objects::names;

/// The effects of a taint.
pub const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Tolerations of taints.
pub fn tolerations(spec: &Value, path: &str, causes: &mut Causes) {
    for (i, toleration) in items(spec, "tolerations").iter().enumerate() {
        let path = format!("{path}.tolerations[{i}]");
        if !is_unset(&toleration["key"]) {
            causes.name(&format!("{path}.key"), text(toleration, "key"), names::qualified_name);
        } else if text(toleration, "operator") != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            causes.add(Cause::invalid(format!("{path}.operator"), text(toleration, "operator"), detail));
        }
        if !toleration["tolerationSeconds"].is_null() && text(toleration, "effect") != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            causes.add(Cause::invalid(format!("{path}.effect"), text(toleration, "effect"), detail));
        }
        match text(toleration, "operator") {
            "" | "Equal" => {
                causes.name(&format!("{path}.operator"), text(toleration, "value"), names::label_value)
            }
            "Exists" if !is_unset(&toleration["value"]) => {
                let detail = "value must be empty when `operator` is 'Exists'";
                causes.add(Cause::invalid(format!("{path}.operator"), toleration.clone(), detail));
            }
            _ => causes.one_of(toleration, "operator", &path, &["Equal", "Exists", "Gt", "Lt"]),
        }
        causes.one_of(toleration, "effect", &path, &EFFECTS);
    }
}

/// Affinity to nodes and to other Pods.
pub fn affinity(affinity: &Value, path: &str, causes: &mut Causes) {
    let node = &affinity["nodeAffinity"];
    let required = &node["requiredDuringSchedulingIgnoredDuringExecution"];
    if required.is_object() {
        let path = format!("{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
        node_selector(required, &path, causes);
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (i, term) in items(node, preferred).iter().enumerate() {
        let path = format!("{path}.nodeAffinity.{preferred}[{i}]");
        weight(term, &path, causes);
        node_term(&term["preference"], &format!("{path}.preference"), causes);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in items(&affinity[kind], required).iter().enumerate() {
            causes.needed_name(
                &format!("{path}.{kind}.{required}[{i}].topologyKey"),
                text(term, "topologyKey"),
                names::qualified_name,
            );
        }
        for (i, term) in items(&affinity[kind], preferred).iter().enumerate() {
            let path = format!("{path}.{kind}.{preferred}[{i}]");
            weight(term, &path, causes);
            let key = text(&term["podAffinityTerm"], "topologyKey");
            causes.needed_name(&format!("{path}.podAffinityTerm.topologyKey"), key, names::qualified_name);
        }
    }
}

fn weight(term: &Value, path: &str, causes: &mut Causes) {
    let weight = term["weight"].as_i64().unwrap_or(0);
    if !(1..=100).contains(&weight) {
        causes.add(Cause::invalid(format!("{path}.weight"), weight, "must be in the range 1-100"));
    }
}

/// A selector of nodes: terms of which one must hold.
pub fn node_selector(selector: &Value, path: &str, causes: &mut Causes) {
    if items(selector, "nodeSelectorTerms").is_empty() {
        let detail = "must have at least one node selector term";
        causes.add(Cause::required(format!("{path}.nodeSelectorTerms"), detail));
    }
    for (i, term) in items(selector, "nodeSelectorTerms").iter().enumerate() {
        node_term(term, &format!("{path}.nodeSelectorTerms[{i}]"), causes);
    }
}

fn node_term(term: &Value, path: &str, causes: &mut Causes) {
    for list in ["matchExpressions", "matchFields"] {
        for (i, expression) in items(term, list).iter().enumerate() {
            let path = format!("{path}.{list}[{i}]");
            let values = items(expression, "values").len();
            match text(expression, "operator") {
                "In" | "NotIn" if values == 0 => {
                    let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                    causes.add(Cause::required(format!("{path}.values"), detail));
                }
                "Exists" | "DoesNotExist" if values > 0 => {
                    let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    causes.add(Cause::forbidden(format!("{path}.values"), detail));
                }
                "Gt" | "Lt" if values != 1 => {
                    let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                    causes.add(Cause::required(format!("{path}.values"), detail));
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
                other => causes.add(Cause::invalid(
                    format!("{path}.operator"),
                    other,
                    "not a valid selector operator",
                )),
            }
            if list == "matchExpressions" {
                causes.name(&format!("{path}.key"), text(expression, "key"), names::qualified_name);
            }
        }
    }
}

/// How the Pods of a group are spread.
pub fn spread(spec: &Value, path: &str, causes: &mut Causes) {
    for (i, constraint) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = format!("{path}.topologySpreadConstraints[{i}]");
        let skew = constraint["maxSkew"].as_i64().unwrap_or(0);
        if skew <= 0 {
            causes.add(Cause::invalid(format!("{path}.maxSkew"), skew, "must be greater than zero"));
        }
        causes.needed_name(
            &format!("{path}.topologyKey"),
            text(constraint, "topologyKey"),
            names::qualified_name,
        );
        let known = ["DoNotSchedule", "ScheduleAnyway"];
        if !known.contains(&text(constraint, "whenUnsatisfiable")) {
            let field = format!("{path}.whenUnsatisfiable");
            causes.add(Cause::not_supported(field, text(constraint, "whenUnsatisfiable"), &known));
        }
    }
}
