//! Whether a schema is structural: every value has one type, said once, outside of what only judges values.
//! Source: `apiextensions-apiserver` pkg/apiserver/schema.

use serde_json::{Map, Value};

use super::rules::Rules;
use crate::kinds::Cause;
use crate::registry::text;

/// Keywords that schemas inside of `allOf`, `anyOf`, `oneOf` and `not` may not have.
const ONLY_OUTSIDE: [&str; 5] = ["description", "type", "default", "additionalProperties", "nullable"];
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// What is wrong with the schema of a version, which stands at `path`.
pub(super) fn wrong(schema: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if text(&schema["type"]) != "object" {
        let detail = "must be object at the root";
        causes.push(match text(&schema["type"]) {
            "" => Cause::required(format!("{path}.type"), "must not be empty at the root"),
            other => Cause::invalid(format!("{path}.type"), other, detail),
        });
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
        causes.push(Cause::invalid(field, false, "must be true or undefined"));
    }
    node(schema, path, true, &mut causes);
    for (below, error) in Rules::compile(schema).errors() {
        causes.push(Cause::invalid(format!("{path}{below}"), "", &format!("compilation failed: {error}")));
    }
    causes
}

fn node(schema: &Value, path: &str, root: bool, causes: &mut Vec<Cause>) {
    let Value::Object(keywords) = schema else { return };
    let on = |keyword: &str| keywords.get(keyword) == Some(&Value::Bool(true));
    let kind = keywords.get("type").map(text).unwrap_or_default();
    let int_or_string = on("x-kubernetes-int-or-string");
    let preserved = on("x-kubernetes-preserve-unknown-fields");
    if kind.is_empty() && !root && !int_or_string && !preserved {
        causes.push(Cause::required(format!("{path}.type"), "must not be empty for specified object fields"));
    } else if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(Cause::not_supported(format!("{path}.type"), kind, &TYPES));
    }
    // A type that is said besides means nothing, and is not refused: generators write one.
    for other in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if int_or_string && on(other) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            causes.push(Cause::invalid(format!("{path}.{other}"), true, detail));
        }
    }
    if kind == "array" && !keywords.contains_key("items") {
        causes.push(Cause::required(format!("{path}.items"), "must be specified"));
    }
    if keywords.contains_key("properties") && keywords.contains_key("additionalProperties") {
        let detail = "additionalProperties and properties are mutual exclusive";
        causes.push(Cause::forbidden(format!("{path}.additionalProperties"), detail));
    }
    if on("uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(format!("{path}.uniqueItems"), detail));
    }
    if let Some(pattern) = keywords.get("pattern").and_then(Value::as_str)
        && let Err(error) = regex::Regex::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        causes.push(Cause::invalid(format!("{path}.pattern"), pattern, &detail));
    }
    if on("x-kubernetes-embedded-resource") && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(Cause::invalid(format!("{path}.type"), kind, detail));
    }
    if let Some(default) = keywords.get("default") {
        let found = super::values::wrong(&trine_objects::schema::Structural::part(schema), default);
        causes.extend(found.into_iter().map(|cause| {
            let below = if cause.field == "<nil>" { String::new() } else { format!(".{}", cause.field) };
            Cause { field: format!("{path}.default{below}"), ..cause }
        }));
    }
    list(keywords, kind, path, causes);
    for (name, inner) in keywords.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = format!("{path}.properties[{name}]");
        if root && name == "metadata" {
            metadata(inner, &path, causes);
        } else {
            node(inner, &path, false, causes);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = keywords.get(keyword) {
            node(inner, &format!("{path}.{keyword}"), false, causes);
        }
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for (i, inner) in keywords.get(keyword).and_then(Value::as_array).into_iter().flatten().enumerate() {
            judging(inner, &format!("{path}.{keyword}[{i}]"), int_or_string, causes);
        }
    }
    if let Some(inner) = keywords.get("not") {
        judging(inner, &format!("{path}.not"), false, causes);
    }
}

/// A list says how its items are told apart only if they can be.
fn list(keywords: &Map<String, Value>, kind: &str, path: &str, causes: &mut Vec<Cause>) {
    let Some(list) = keywords.get("x-kubernetes-list-type").map(text) else { return };
    let field = format!("{path}.x-kubernetes-list-type");
    if !["atomic", "set", "map"].contains(&list) {
        return causes.push(Cause::not_supported(field, list, &["atomic", "map", "set"]));
    }
    if kind != "array" {
        causes.push(Cause::invalid(
            format!("{path}.type"),
            kind,
            "must be array if x-kubernetes-list-type is specified",
        ));
    }
    let keys = keywords.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let field = format!("{path}.x-kubernetes-list-map-keys");
    match (list, keys.map(Vec::as_slice)) {
        ("map", None | Some([])) => {
            causes.push(Cause::required(field, "must not be empty if x-kubernetes-list-type is map"));
        }
        ("map", Some(keys)) => {
            let items = keywords.get("items").unwrap_or(&Value::Null);
            let required = items["required"].as_array();
            for (i, key) in keys.iter().enumerate() {
                let property = &items["properties"][text(key)];
                let given = required.is_some_and(|r| r.contains(key)) || !property["default"].is_null();
                if property.is_null() {
                    let detail = "must be a property of the items' schema";
                    causes.push(Cause::invalid(format!("{field}[{i}]"), key.clone(), detail));
                } else if !given {
                    let field = format!("{path}.items.properties[{}].default", text(key));
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                    causes.push(Cause::required(field, detail));
                }
            }
        }
        (_, Some([_, ..])) => {
            causes.push(Cause::forbidden(field, "must be empty if x-kubernetes-list-type is not map"));
        }
        _ => {}
    }
}

/// Of its metadata a custom kind may limit the name.
fn metadata(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let only = |names: &[&str], of: &Value| {
        of.as_object().into_iter().flatten().all(|(k, _)| names.contains(&k.as_str()))
    };
    let limits = only(&["type", "properties", "description"], schema)
        && only(&["name", "generateName"], &schema["properties"]);
    if !limits {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(path, detail));
    }
}

/// A schema that judges only may not say types.
fn judging(schema: &Value, path: &str, int_or_string: bool, causes: &mut Vec<Cause>) {
    let Value::Object(keywords) = schema else { return };
    for keyword in ONLY_OUTSIDE {
        let allowed = keyword == "type" && int_or_string;
        if keywords.contains_key(keyword) && !allowed {
            causes.push(Cause::forbidden(format!("{path}.{keyword}"), "must be empty to be structural"));
        }
    }
    for keyword in
        keywords.keys().filter(|k| k.starts_with("x-kubernetes-") && *k != "x-kubernetes-validations")
    {
        causes.push(Cause::forbidden(format!("{path}.{keyword}"), "must be undefined to be structural"));
    }
    for (name, inner) in keywords.get("properties").and_then(Value::as_object).into_iter().flatten() {
        judging(inner, &format!("{path}.properties[{name}]"), false, causes);
    }
    if let Some(items) = keywords.get("items") {
        judging(items, &format!("{path}.items"), false, causes);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for (i, inner) in keywords.get(keyword).and_then(Value::as_array).into_iter().flatten().enumerate() {
            judging(inner, &format!("{path}.{keyword}[{i}]"), int_or_string, causes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_structural_is_named() {
        let found =
            |schema: Value| -> Vec<String> { wrong(&schema, "s").iter().map(|c| c.field.clone()).collect() };
        let within = |spec: Value| json!({"type": "object", "properties": {"spec": spec}});
        for (schema, wanted) in [
            (
                json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "p": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}}}}}}),
                vec![],
            ),
            (
                within(json!({"type": "string", "pattern": "^[0-9]+Gi$", "x-kubernetes-int-or-string": true,
                    "anyOf": [{"type": "integer"}, {"type": "string"}]})),
                vec![],
            ),
            (
                within(
                    json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
                ),
                vec!["s.properties[spec].x-kubernetes-preserve-unknown-fields"],
            ),
            (json!({}), vec!["s.type"]),
            (within(json!({})), vec!["s.properties[spec].type"]),
            (within(json!({"type": "thing"})), vec!["s.properties[spec].type"]),
            (within(json!({"type": "array"})), vec!["s.properties[spec].items"]),
            (
                within(json!({"type": "string", "anyOf": [{"type": "string"}]})),
                vec!["s.properties[spec].anyOf[0].type"],
            ),
            (within(json!({"type": "integer", "default": "x"})), vec!["s.properties[spec].default"]),
            (within(json!({"type": "string", "pattern": "("})), vec!["s.properties[spec].pattern"]),
            (
                within(
                    json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
                ),
                vec!["s.properties[spec].x-kubernetes-list-map-keys"],
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
                vec!["s.properties[metadata]"],
            ),
        ] {
            assert_eq!(found(schema.clone()), wanted, "{schema}");
        }
    }
}
