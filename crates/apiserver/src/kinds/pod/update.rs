//! What of a Pod may change.

use crate::kinds::Cause;
use crate::kinds::fields::{items, items_mut, set, take};
use serde_json::Value;

const FORBIDDEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// What is wrong with a change of the spec.
pub fn spec(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for list in ["containers", "initContainers"] {
        if items(new, list).len() != items(old, list).len() {
            return vec![Cause::forbidden(
                format!("spec.{list}"),
                "pod updates may not add or remove containers",
            )];
        }
    }
    if let Some(deadline) = old["activeDeadlineSeconds"].as_i64() {
        match new["activeDeadlineSeconds"].as_i64() {
            None => causes.push(Cause::invalid(
                "spec.activeDeadlineSeconds",
                Value::Null,
                "must not update from a positive integer to nil value",
            )),
            Some(n) if n > deadline => {
                let detail = "must be less than or equal to previous value";
                causes.push(Cause::invalid("spec.activeDeadlineSeconds", n, detail));
            }
            Some(_) => {}
        }
    }
    causes.extend(tolerations(new, old));
    causes.extend(gates(new, old));
    if frozen(new, old) != frozen(old, old) {
        causes.push(Cause::forbidden("spec", FORBIDDEN));
    }
    causes
}

/// Tolerations are only added; the seconds of one may change.
fn tolerations(new: &Value, old: &Value) -> Option<Cause> {
    let bare = |t: &Value| {
        let mut t = t.clone();
        take(&mut t, "tolerationSeconds");
        t
    };
    let kept: Vec<Value> = items(new, "tolerations").iter().map(bare).collect();
    let missing = items(old, "tolerations").iter().any(|t| !kept.contains(&bare(t)));
    missing.then(|| {
        Cause::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        )
    })
}

fn gates(new: &Value, old: &Value) -> Option<Cause> {
    let before = items(old, "schedulingGates");
    let added = items(new, "schedulingGates").iter().any(|g| !before.contains(g));
    added.then(|| {
        Cause::forbidden("spec.schedulingGates", "only deletion is allowed, but found new scheduling gates")
    })
}

/// The spec without what may change: a change of the rest is refused.
fn frozen(spec: &Value, old: &Value) -> Value {
    let mut spec = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in items_mut(&mut spec, list) {
            take(container, "image");
            // It follows the image when it is left open.
            take(container, "imagePullPolicy");
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        take(&mut spec, field);
    }
    if old["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) {
        set(&mut spec, "terminationGracePeriodSeconds", 1);
    }
    if !items(old, "schedulingGates").is_empty() {
        // A Pod that is held back may still be narrowed to fewer nodes.
        take(&mut spec, "nodeSelector");
        take(&mut spec, "affinity");
    }
    without_empty(&mut spec);
    spec
}

/// Absent and empty are the same: nothing was changed between them.
fn without_empty(value: &mut Value) {
    if let Value::Object(map) = value {
        map.values_mut().for_each(without_empty);
        map.retain(|_, v| match v {
            Value::Null => false,
            Value::Object(m) => !m.is_empty(),
            Value::Array(l) => !l.is_empty(),
            Value::String(s) => !s.is_empty(),
            Value::Bool(b) => *b,
            Value::Number(_) => true,
        });
    } else if let Value::Array(list) = value {
        list.iter_mut().for_each(without_empty);
    }
}

/// What is wrong with a change through `pods/ephemeralcontainers`: containers are only added.
pub fn ephemeral(new: &Value, old: &Value) -> Vec<Cause> {
    let (after, before) =
        (items(&new["spec"], "ephemeralContainers"), items(&old["spec"], "ephemeralContainers"));
    let mut causes = super::validate::spec(&new["spec"], "spec");
    for old in before {
        match after.iter().find(|c| c["name"] == old["name"]) {
            Some(same) if same == old => {}
            Some(_) => {
                let detail = format!("existing ephemeral containers {} may not be changed\n", old["name"]);
                causes.push(Cause::forbidden("spec.ephemeralContainers", &detail));
            }
            None => {
                let detail = format!("existing ephemeral containers {} may not be removed\n", old["name"]);
                causes.push(Cause::forbidden("spec.ephemeralContainers", &detail));
            }
        }
    }
    causes
}
