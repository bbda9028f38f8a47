//! Which requests somebody wants to decide about: defaults and checks of rules, selectors and conditions.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::kinds::fields::{default, items, items_mut, text};
use crate::kinds::workload::template::label_selector;
use crate::kinds::{Cause, Causes};
use trine_cel::{Expression, Known};
use trine_objects::names;

/// The most conditions of one webhook or policy.
const MOST_CONDITIONS: usize = 64;
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

/// Sets what every matching has: of another version, everywhere, everything.
pub(super) fn defaults(matching: &mut Value) {
    default(matching, "matchPolicy", "Equivalent");
    for selector in ["namespaceSelector", "objectSelector"] {
        default(matching, selector, json!({}));
    }
}

/// Sets what every rule has.
pub(super) fn rule_defaults(matching: &mut Value, rules: &str) {
    for rule in items_mut(matching, rules) {
        default(rule, "scope", "*");
    }
}

/// Checks the selectors and the policy of a matching.
pub(super) fn check(matching: &Value, path: &str, causes: &mut Causes) {
    causes.one_of(matching, "matchPolicy", path, &["Equivalent", "Exact"]);
    for selector in ["namespaceSelector", "objectSelector"] {
        if matching[selector].is_object() {
            label_selector(&matching[selector], &format!("{path}.{selector}"), causes);
        }
    }
}

/// Checks one rule.
pub(super) fn rule(rule: &Value, path: &str, causes: &mut Causes) {
    let operations = items(rule, "operations");
    several(rule, "operations", path, "operations", causes);
    for (i, operation) in operations.iter().enumerate() {
        if !OPERATIONS.iter().any(|known| operation == known) {
            let field = format!("{path}.operations[{i}]");
            causes.add(Cause::not_supported(field, operation.clone(), &OPERATIONS));
        }
    }
    several(rule, "apiGroups", path, "API groups", causes);
    several(rule, "apiVersions", path, "API versions", causes);
    for (i, version) in items(rule, "apiVersions").iter().enumerate() {
        if version == "" {
            causes.add(Cause::required(format!("{path}.apiVersions[{i}]"), ""));
        }
    }
    resources(rule, path, causes);
    causes.one_of(rule, "scope", path, &["*", "Cluster", "Namespaced"]);
}

/// A list that is needed, and in which `*` stands alone.
fn several(rule: &Value, key: &str, path: &str, what: &str, causes: &mut Causes) {
    let list = items(rule, key);
    let field = format!("{path}.{key}");
    if list.is_empty() {
        causes.add(Cause::required(field, ""));
    } else if list.len() > 1 && list.iter().any(|v| v == "*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        causes.add(Cause::invalid(field, list.to_vec(), &detail));
    }
}

fn resources(rule: &Value, path: &str, causes: &mut Causes) {
    let list = items(rule, "resources");
    let field = format!("{path}.resources");
    if list.is_empty() {
        causes.add(Cause::required(field.as_str(), ""));
    }
    // `x/*` and `*/x` that came before.
    let (mut all_parts, mut of_all) = (HashSet::new(), HashSet::new());
    let mut alone = false;
    for (i, resource) in list.iter().enumerate() {
        let at = format!("{field}[{i}]");
        let resource = resource.as_str().unwrap_or_default();
        if resource.is_empty() {
            causes.add(Cause::required(at, ""));
            continue;
        }
        let Some((plural, part)) = resource.split_once('/') else {
            alone = resource != "*";
            continue;
        };
        if all_parts.contains(plural) {
            let detail = format!("if '{plural}/*' is present, must not specify {resource}");
            causes.add(Cause::invalid(at.as_str(), resource, &detail));
        }
        if of_all.contains(part) {
            let detail = format!("if '*/{part}' is present, must not specify {resource}");
            causes.add(Cause::invalid(at, resource, &detail));
        }
        if part == "*" {
            all_parts.insert(plural);
        }
        if plural == "*" {
            of_all.insert(part);
        }
    }
    let has = |wanted: &str| list.iter().any(|r| r == wanted);
    if list.len() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        causes.add(Cause::invalid(field.as_str(), list.to_vec(), detail));
    }
    if has("*") && alone {
        let detail = "if '*' is present, must not specify other resources without subresources";
        causes.add(Cause::invalid(field, list.to_vec(), detail));
    }
}

/// Checks `matchConditions`.
pub(super) fn conditions(list: &[Value], path: &str, known: &Known<'_>, causes: &mut Causes) {
    if list.len() > MOST_CONDITIONS {
        causes.add(Cause::too_many(path, list.len(), MOST_CONDITIONS));
    }
    let mut seen = HashSet::new();
    for (i, condition) in list.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let (name, expression) = (text(condition, "name"), text(condition, "expression"));
        expressed(expression, &format!("{path}.expression"), "", known, causes);
        causes.needed_name(&format!("{path}.name"), name, names::qualified_name);
        if !name.is_empty() && !seen.insert(name) {
            causes.add(Cause::duplicate(format!("{path}.name"), name));
        }
    }
}

/// Checks an expression that is needed; `missing` is what is said where there is none.
pub(super) fn expressed(
    expression: &str,
    field: &str,
    missing: &str,
    known: &Known<'_>,
    causes: &mut Causes,
) {
    if expression.trim().is_empty() {
        causes.add(Cause::required(field, missing));
    } else if let Err(why) = Expression::compile(expression, known) {
        causes.add(Cause::invalid(field, expression, &why));
    }
}
