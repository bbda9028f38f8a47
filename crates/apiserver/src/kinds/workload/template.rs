//! The template of Pods, and the selector that finds what was made from it.

use crate::kinds::columns::labels;
use crate::kinds::fields::{child, items, text};
use crate::kinds::metadata;
use crate::kinds::{Cause, Causes, pod};
use serde_json::Value;
use trine_objects::names;
use trine_objects::selector::label::LabelSelector;

/// Fills in what a template leaves open.
pub fn defaults(owner: &mut Value) {
    if owner["template"].is_object() {
        pod::template_defaults(child(&mut owner["template"], "spec"));
    }
}

/// What is wrong with the template of `owner` (a spec), apart from its selector.
pub fn check(owner: &Value, path: &str, causes: &mut Causes) {
    let (template, path) = (&owner["template"], format!("{path}.template"));
    causes.extend(metadata::labels(&template["metadata"], "labels", &format!("{path}.metadata.labels")));
    causes.extend(pod::validate_spec(&template["spec"], &format!("{path}.spec")));
}

/// A template whose Pods are replaced when they end.
pub fn check_lasting(owner: &Value, path: &str, kind: &str, causes: &mut Causes) {
    check(owner, path, causes);
    let (spec, path) = (&owner["template"]["spec"], format!("{path}.template.spec"));
    if text(spec, "restartPolicy") != "Always" {
        let field = format!("{path}.restartPolicy");
        causes.add(Cause::not_supported(field, text(spec, "restartPolicy"), &["Always"]));
    }
    if !spec["activeDeadlineSeconds"].is_null() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        causes.add(Cause::forbidden(format!("{path}.activeDeadlineSeconds"), &detail));
    }
}

/// A needed selector of `owner` that is not empty, well-formed, and selects the template's Pods.
pub fn check_selector(owner: &Value, path: &str, kind: &str, causes: &mut Causes) {
    let (selector, field) = (&owner["selector"], format!("{path}.selector"));
    if selector.is_null() {
        return causes.add(Cause::required(field, ""));
    }
    label_selector(selector, &field, causes);
    if items(selector, "matchExpressions").is_empty()
        && selector["matchLabels"].as_object().is_none_or(serde_json::Map::is_empty)
    {
        let detail = format!("empty selector is invalid for {kind}");
        causes.add(Cause::invalid(field, selector.clone(), &detail));
    }
    selects_template(owner, path, causes);
}

/// The template's labels are those that the selector asks for.
pub fn selects_template(owner: &Value, path: &str, causes: &mut Causes) {
    let labels = &owner["template"]["metadata"]["labels"];
    if let Ok(selector) = LabelSelector::from_object(&owner["selector"])
        && !selector.matches(labels)
    {
        let detail = "`selector` does not match template `labels`";
        causes.add(Cause::invalid(format!("{path}.template.metadata.labels"), labels.clone(), detail));
    }
}

/// A selector of labels.
pub fn label_selector(selector: &Value, path: &str, causes: &mut Causes) {
    causes.extend(metadata::labels(selector, "matchLabels", &format!("{path}.matchLabels")));
    for (i, expression) in items(selector, "matchExpressions").iter().enumerate() {
        let path = format!("{path}.matchExpressions[{i}]");
        let values = items(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                causes.add(Cause::required(format!("{path}.values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.add(Cause::forbidden(format!("{path}.values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                causes.add(Cause::invalid(format!("{path}.operator"), other, "not a valid selector operator"))
            }
        }
        causes.name(&format!("{path}.key"), text(expression, "key"), names::qualified_name);
        for (j, value) in values.iter().enumerate() {
            causes.name(
                &format!("{path}.values[{j}]"),
                value.as_str().unwrap_or_default(),
                names::label_value,
            );
        }
    }
}

/// The cells that show a template's containers and images.
pub fn cells(template: &Value) -> [Value; 2] {
    let joined = |key: &str| -> Value {
        let containers = items(&template["spec"], "containers");
        containers.iter().map(|c| text(c, key)).collect::<Vec<_>>().join(",").into()
    };
    [joined("name"), joined("image")]
}

/// A selector on one line: `a=b,c in (d,e),!f`; `<none>` for the empty one.
pub fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<String> = Vec::new();
    if selector["matchLabels"].as_object().is_some_and(|l| !l.is_empty()) {
        parts.push(labels(&selector["matchLabels"]));
    }
    for expression in items(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<&str> = items(expression, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        parts.push(match text(expression, "operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".to_owned(),
        });
    }
    if parts.is_empty() { "<none>".to_owned() } else { parts.join(",") }
}
