//! How much a namespace may hold: ResourceQuotas in all, LimitRanges for each of its objects.

use super::columns::{age, name};
use super::fields::{child, default, entries, items, items_mut, set, text};
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};
use std::cmp::Ordering;
use trine_objects::names;
use trine_objects::quantity::{Quantity, from_value};

/// What a quota's scope may be.
const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// An amount under a name: well-formed and not negative.
fn amount(key: &str, value: &Value, path: &str, causes: &mut Causes) {
    let field = format!("{path}[{key}]");
    causes.name(&field, key, names::qualified_name);
    match from_value(value) {
        Ok(q) if q.is_negative() => {
            causes.add(Cause::invalid(field, value.clone(), "must be greater than or equal to 0"));
        }
        Ok(q) if counted(key) && q.milli() % 1000 != 0 => {
            causes.add(Cause::invalid(field, value.clone(), "must be an integer"));
        }
        _ => {}
    }
}

/// Whether a resource is counted in whole objects.
fn counted(key: &str) -> bool {
    let objects = [
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    objects.contains(&key) || key.starts_with("count/")
}

/// The hooks of ResourceQuotas.
pub struct Quotas;

impl Hooks for Quotas {
    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({}));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        for (list, path) in [("spec", "hard"), ("status", "hard"), ("status", "used")] {
            for (key, value) in entries(&obj[list], path) {
                amount(key, value, &format!("{list}.{path}"), &mut causes);
            }
        }
        let spec = &obj["spec"];
        for (i, scope) in items(spec, "scopes").iter().enumerate() {
            if !SCOPES.contains(&scope.as_str().unwrap_or_default()) {
                let detail = "unsupported scope";
                causes.add(Cause::invalid(format!("spec.scopes[{i}]"), spec["scopes"].clone(), detail));
            }
        }
        for (i, wanted) in items(&spec["scopeSelector"], "matchExpressions").iter().enumerate() {
            let path = format!("spec.scopeSelector.matchExpressions[{i}]");
            selector(wanted, &path, &mut causes);
        }
        if let Some(old) = old
            && old["spec"]["scopes"] != spec["scopes"]
        {
            causes.add(Cause::invalid("spec.scopes", spec["scopes"].clone(), "field is immutable"));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Request"), Column::text("Limit"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (key, hard) in entries(&obj["status"], "hard") {
            let used = match &obj["status"]["used"][key] {
                Value::Null => "0".to_owned(),
                used => super::workload::share::shown(used),
            };
            let shown = format!("{key}: {used}/{}", super::workload::share::shown(hard));
            if key.starts_with("limits.") { limits.push(shown) } else { requests.push(shown) }
        }
        vec![name(obj), requests.join(", ").into(), limits.join(", ").into(), age(obj, now_unix)]
    }
}

fn selector(wanted: &Value, path: &str, causes: &mut Causes) {
    let (scope, operator) = (text(wanted, "scopeName"), text(wanted, "operator"));
    causes.needed(wanted, "scopeName", path);
    causes.one_of(wanted, "scopeName", path, &SCOPES);
    let only_exists = matches!(scope, "Terminating" | "NotTerminating" | "BestEffort" | "NotBestEffort");
    if only_exists && operator != "Exists" {
        let detail = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, \
                      ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort and ResourceQuotaScopeNotBestEffort";
        causes.add(Cause::invalid(format!("{path}.operator"), operator, detail));
    }
    match (operator, items(wanted, "values").is_empty()) {
        ("In" | "NotIn", true) => causes.add(Cause::required(
            format!("{path}.values"),
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        )),
        ("Exists" | "DoesNotExist", false) => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            causes.add(Cause::invalid(format!("{path}.values"), wanted["values"].clone(), detail));
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
        _ => {
            causes.add(Cause::invalid(format!("{path}.operator"), operator, "not a valid selector operator"))
        }
    }
}

/// The hooks of LimitRanges.
pub struct Ranges;

impl Hooks for Ranges {
    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        for item in items_mut(spec, "limits") {
            if item["type"] != "Container" {
                continue;
            }
            // What is not said follows from what is: the default from the maximum, the request from both or the minimum.
            for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
                let known: Vec<(String, Value)> =
                    entries(item, from).map(|(k, v)| (k.clone(), v.clone())).collect();
                if !known.is_empty() || to == "default" || item[to].is_object() {
                    let target = child(item, to);
                    known.into_iter().for_each(|(key, value)| default(target, &key, value));
                } else {
                    child(item, to);
                }
            }
        }
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let mut seen = Vec::new();
        for (i, item) in items(&obj["spec"], "limits").iter().enumerate() {
            let path = format!("spec.limits[{i}]");
            let kind = text(item, "type");
            causes.needed(item, "type", &path);
            if seen.contains(&kind) {
                causes.add(Cause::duplicate(format!("{path}.type"), kind));
            }
            seen.push(kind);
            limit(item, kind, &path, &mut causes);
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column { name: "Created At", ..Column::text("") }] }
    }

    fn row(&self, obj: &Value, _now_unix: i64) -> Vec<Value> {
        vec![name(obj), obj["metadata"]["creationTimestamp"].clone()]
    }
}

fn limit(item: &Value, kind: &str, path: &str, causes: &mut Causes) {
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        for (key, value) in entries(item, list) {
            amount(key, value, &format!("{path}.{list}"), causes);
            if kind == "Pod" && matches!(list, "default" | "defaultRequest") {
                let detail = "may not be specified when `type` is 'Pod'";
                causes.add(Cause::forbidden(format!("{path}.{list}"), detail));
            }
        }
    }
    if kind == "PersistentVolumeClaim" && item["min"]["storage"].is_null() && item["max"]["storage"].is_null()
    {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        causes.add(Cause::required(format!("{path}.limits"), detail));
    }
    let pairs = [
        ("min", "max", "min value {} is greater than max value {}"),
        ("min", "defaultRequest", "min value {} is greater than default request value {}"),
        ("defaultRequest", "max", "default request value {} is greater than max value {}"),
        ("defaultRequest", "default", "default request value {} is greater than default limit value {}"),
        ("min", "default", "min value {} is greater than default value {}"),
        ("default", "max", "default value {} is greater than max value {}"),
    ];
    for (low, high, sentence) in pairs {
        for (key, small) in entries(item, low) {
            let large = &item[high][key];
            let (Ok(a), Ok(b)) = (from_value(small), from_value(large)) else { continue };
            if a.cmp(&b) == Ordering::Greater {
                let field =
                    format!("{path}.{}[{key}]", if low == "min" && high != "max" { high } else { low });
                let detail = sentence.replacen("{}", &a.to_string(), 1).replacen("{}", &b.to_string(), 1);
                causes.add(Cause::invalid(field, small.clone(), &detail));
            }
        }
    }
    let one = Quantity::from_milli(1000);
    for (key, ratio) in entries(item, "maxLimitRequestRatio") {
        let Ok(amount) = from_value(ratio) else { continue };
        if amount < one {
            let detail = format!("ratio {amount} is less than 1");
            causes.add(Cause::invalid(format!("{path}.maxLimitRequestRatio[{key}]"), ratio.clone(), &detail));
        }
    }
}
