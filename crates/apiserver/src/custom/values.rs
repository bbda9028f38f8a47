//! What is wrong with a custom object, by its schema. Source: the words are those of `kube-openapi`'s validation, which
//! clients and tests read.

use std::collections::HashSet;

use regex::Regex;
use serde_json::{Map, Number, Value};
use trine_objects::schema::{JsonType, Structural, StructuralList, Values};

use crate::kinds::{Cause, CauseKind};

/// Everything wrong with a value. `schema` is that of a whole object: its metadata is judged elsewhere.
pub(super) fn wrong(schema: &Structural, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    judge(schema, object, "", &mut causes);
    causes
}

fn judge(schema: &Structural, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && schema.nullable {
        return;
    }
    if !fits(schema, value) {
        let wanted = if schema.int_or_string { "integer,string" } else { schema.kind.name() };
        let got = type_name(value);
        let detail = format!("{path} in body must be of type {wanted}: {got:?}");
        causes.push(Cause::invalid(named(path), got, &detail));
        return;
    }
    match value {
        Value::Object(map) => fields(schema, map, path, causes),
        Value::Array(list) => items(schema, list, path, causes),
        _ => {}
    }
    keywords(&schema.rules, value, path, causes);
}

fn fits(schema: &Structural, value: &Value) -> bool {
    if schema.int_or_string {
        return value.is_string() || is_integer(value);
    }
    match schema.kind {
        JsonType::Unsaid => true,
        JsonType::Object => value.is_object(),
        JsonType::Array => value.is_array(),
        JsonType::String => value.is_string(),
        JsonType::Boolean => value.is_boolean(),
        JsonType::Integer => is_integer(value),
        JsonType::Number => value.is_number(),
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn fields(schema: &Structural, map: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    for name in schema.required.iter().filter(|name| !map.contains_key(*name)) {
        causes.push(Cause::required(below(path, name), ""));
    }
    for (name, value) in map {
        if schema.resource && ["metadata", "apiVersion", "kind"].contains(&name.as_str()) {
            // A name may be limited by the schema; all else about metadata is the server's.
            if let Some(limits) = schema.properties.get("metadata").and_then(|m| m.properties.get("name"))
                && name == "metadata"
                && let Some(given) = value.get("name")
            {
                judge(limits, given, &below(path, "metadata.name"), causes);
            }
            continue;
        }
        match (schema.properties.get(name), &schema.values) {
            (Some(property), _) => judge(property, value, &below(path, name), causes),
            (None, Values::Of(values)) => judge(values, value, &below(path, name), causes),
            (None, _) => {}
        }
    }
}

fn items(schema: &Structural, list: &[Value], path: &str, causes: &mut Vec<Cause>) {
    if let Some(items) = &schema.items {
        for (i, value) in list.iter().enumerate() {
            judge(items, value, &format!("{path}[{i}]"), causes);
        }
    }
    let mut seen = HashSet::new();
    for (i, item) in list.iter().enumerate() {
        let key = match &schema.list {
            StructuralList::Atomic => return,
            StructuralList::Set => item.clone(),
            StructuralList::Map(keys) => {
                Value::from_iter(keys.iter().filter_map(|k| Some((k.clone(), item.get(k)?.clone()))))
            }
        };
        if !seen.insert(key.to_string()) {
            causes.push(Cause::duplicate(format!("{path}[{i}]"), key));
        }
    }
}

fn keywords(rules: &Map<String, Value>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (keyword, limit) in rules {
        match (value, keyword.as_str()) {
            (_, "enum") => one_of(limit, value, path, causes),
            (_, "allOf" | "anyOf" | "oneOf" | "not") => combined(keyword, limit, value, path, causes),
            (Value::Number(number), _) => numeric(keyword, limit, rules, number, path, causes),
            (Value::String(text), _) => textual(keyword, limit, text, path, causes),
            (Value::Array(list), _) => sized_list(keyword, limit, list, path, causes),
            (Value::Object(map), _) => sized_map(keyword, limit, map, path, causes),
            _ => {}
        }
    }
}

fn one_of(limit: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(allowed) = limit.as_array().filter(|a| !a.contains(value)) else { return };
    let shown: Vec<String> =
        allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    causes.push(Cause::not_supported(named(path), value.clone(), &shown));
}

fn combined(keyword: &str, limit: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let one = [limit.clone()];
    let schemas = limit.as_array().map_or(&one[..], Vec::as_slice);
    let met = schemas.iter().filter(|schema| {
        let mut found = Vec::new();
        judge(&Structural::part(schema), value, path, &mut found);
        found.is_empty()
    });
    let (met, all) = (met.count(), schemas.len());
    let (holds, what) = match keyword {
        "allOf" => (met == all, "must validate all the schemas (allOf)"),
        "anyOf" => (met > 0, "must validate at least one schema (anyOf)"),
        "oneOf" => (met == 1, "must validate one and only one schema (oneOf)"),
        _ => (met == 0, "must not validate the schema (not)"),
    };
    if !holds {
        // Why it does not hold is said first, where one schema alone was meant.
        if keyword == "allOf" {
            schemas.iter().for_each(|schema| judge(&Structural::part(schema), value, path, causes));
        }
        let shown =
            if value.is_object() || value.is_array() { Value::from(type_name(value)) } else { value.clone() };
        causes.push(Cause::invalid(named(path), shown, &format!("{path:?} {what}")));
    }
}

fn numeric(
    keyword: &str,
    limit: &Value,
    rules: &Map<String, Value>,
    number: &Number,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let (Some(limit_value), Some(given)) = (limit.as_f64(), number.as_f64()) else { return };
    let exclusive = |name: &str| rules.get(name) == Some(&Value::Bool(true));
    let detail = match keyword {
        "minimum" if exclusive("exclusiveMinimum") && given <= limit_value => {
            format!("should be greater than {limit}")
        }
        "minimum" if !exclusive("exclusiveMinimum") && given < limit_value => {
            format!("should be greater than or equal to {limit}")
        }
        "maximum" if exclusive("exclusiveMaximum") && given >= limit_value => {
            format!("should be less than {limit}")
        }
        "maximum" if !exclusive("exclusiveMaximum") && given > limit_value => {
            format!("should be less than or equal to {limit}")
        }
        "multipleOf" if limit_value > 0.0 && (given / limit_value).fract() != 0.0 => {
            format!("should be a multiple of {limit}")
        }
        _ => return,
    };
    let detail = format!("{} in body {detail}", path);
    causes.push(Cause::invalid(named(path), number.clone(), &detail));
}

fn textual(keyword: &str, limit: &Value, text: &str, path: &str, causes: &mut Vec<Cause>) {
    let count = text.chars().count() as u64;
    let detail = match (keyword, limit.as_u64()) {
        ("minLength", Some(least)) if count < least => format!("should be at least {least} chars long"),
        ("maxLength", Some(most)) if count > most => {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            return causes.push(Cause::too_long(named(path), most));
        }
        ("pattern", _) => {
            let pattern = limit.as_str().unwrap_or_default();
            match Regex::new(pattern) {
                Ok(regex) if regex.is_match(text) => return,
                Ok(_) => format!("should match '{pattern}'"),
                Err(error) => format!("has a pattern that cannot be read: {error}"),
            }
        }
        ("format", _) if !has_format(limit.as_str().unwrap_or_default(), text) => {
            let detail =
                format!("{} in body must be of type {}: {text:?}", path, limit.as_str().unwrap_or_default());
            return causes.push(Cause::invalid(named(path), text, &detail));
        }
        _ => return,
    };
    causes.push(Cause::invalid(named(path), text, &format!("{} in body {detail}", path)));
}

/// Formats that are not known are not judged.
fn has_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" => trine_objects::time::parse(text).is_some(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => uuid::Uuid::parse_str(text).is_ok(),
        "byte" => {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        "cidr" => text.split_once('/').is_some_and(|(address, bits)| {
            let most = match address.parse::<std::net::IpAddr>() {
                Ok(std::net::IpAddr::V4(_)) => 32,
                Ok(std::net::IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            bits.parse::<u8>().is_ok_and(|b| b <= most)
        }),
        "email" => text.split_once('@').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty()),
        _ => true,
    }
}

fn sized_list(keyword: &str, limit: &Value, list: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let Some(limit_value) = limit.as_u64() else {
        if keyword == "uniqueItems" && limit == &Value::Bool(true) {
            let mut seen = HashSet::new();
            if !list.iter().all(|v| seen.insert(v.to_string())) {
                let detail = format!("{} in body shouldn't contain duplicates", path);
                causes.push(Cause::invalid(named(path), "array", &detail));
            }
        }
        return;
    };
    match keyword {
        "minItems" if (list.len() as u64) < limit_value => {
            let detail = format!("{} in body should have at least {limit} items", path);
            causes.push(Cause::invalid(named(path), list.len(), &detail));
        }
        "maxItems" if list.len() as u64 > limit_value => {
            causes.push(too_many(path, list.len(), limit));
        }
        _ => {}
    }
}

fn sized_map(keyword: &str, limit: &Value, map: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let Some(limit_value) = limit.as_u64() else { return };
    match keyword {
        "minProperties" if (map.len() as u64) < limit_value => {
            let detail = format!("{} in body should have at least {limit} properties", path);
            causes.push(Cause::invalid(named(path), map.len(), &detail));
        }
        "maxProperties" if map.len() as u64 > limit_value => causes.push(too_many(path, map.len(), limit)),
        _ => {}
    }
}

fn too_many(path: &str, count: usize, limit: &Value) -> Cause {
    let message = format!("Too many: {count}: must have at most {limit} items");
    Cause { kind: CauseKind::TooMany, field: named(path), message }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The value at a path as causes give it, `spec.list[0].name`; `None` if it is not there.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let pointer: String =
        path.split(['.', '[']).map(|step| format!("/{}", step.trim_end_matches(']'))).collect();
    if path == named("") { Some(object) } else { object.pointer(&pointer) }
}

/// The root has no name.
pub(super) fn named(path: &str) -> String {
    if path.is_empty() { "<nil>".to_owned() } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_keyword_is_kept_in_upstreams_words() {
        let schema = Structural::root(
            &json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object",
            "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
            "color": {"type": "string", "enum": ["red", "blue"]},
            "n": {"type": "integer", "minimum": 1, "maximum": 10},
            "x": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "multipleOf": 0.5},
            "port": {"x-kubernetes-int-or-string": true},
            "size": {"type": "string", "x-kubernetes-int-or-string": true},
            "when": {"type": "string", "format": "date-time"},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 2, "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
            "one": {"type": "object", "minProperties": 1, "additionalProperties": {"type": "integer"}},
            "either": {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"},
            "null": {"type": "string", "nullable": true}}}}}),
        );
        let good = json!({"metadata": {"name": "x"}, "spec": {"name": "abc", "color": "red", "n": 1, "x": 0.5, "port": "web", "size": 5,
            "when": "2020-01-01T00:00:00Z", "set": ["a", "b"], "map": [{"k": "a"}, {"k": "b"}], "one": {"z": 1},
            "either": {"a": 1}, "null": null}});
        assert_eq!(wrong(&schema, &good), []);
        for (field, value, wanted) in [
            (
                "name",
                json!("a"),
                "spec.name: Invalid value: \"a\": spec.name in body should be at least 2 chars long",
            ),
            ("name", json!("abcde"), "spec.name: Too long: may not be more than 4 bytes"),
            (
                "name",
                json!("AB"),
                "spec.name: Invalid value: \"AB\": spec.name in body should match '^[a-z]+$'",
            ),
            (
                "name",
                json!(7),
                "spec.name: Invalid value: \"integer\": spec.name in body must be of type string: \"integer\"",
            ),
            (
                "color",
                json!("pink"),
                "spec.color: Unsupported value: \"pink\": supported values: \"blue\", \"red\"",
            ),
            ("n", json!(0), "spec.n: Invalid value: 0: spec.n in body should be greater than or equal to 1"),
            ("n", json!(11), "spec.n: Invalid value: 11: spec.n in body should be less than or equal to 10"),
            ("x", json!(0), "spec.x: Invalid value: 0: spec.x in body should be greater than 0"),
            ("x", json!(0.7), "spec.x: Invalid value: 0.7: spec.x in body should be a multiple of 0.5"),
            (
                "port",
                json!(true),
                "spec.port: Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"",
            ),
            (
                "when",
                json!("soon"),
                "spec.when: Invalid value: \"soon\": spec.when in body must be of type date-time: \"soon\"",
            ),
            ("set", json!(["a", "a"]), "spec.set[1]: Duplicate value: \"a\""),
            ("set", json!(["a", "b", "c"]), "spec.set: Too many: 3: must have at most 2 items"),
            ("map", json!([{"k": "a"}, {"k": "a"}]), "spec.map[1]: Duplicate value: {\"k\":\"a\"}"),
            (
                "one",
                json!({}),
                "spec.one: Invalid value: 0: spec.one in body should have at least 1 properties",
            ),
            (
                "one",
                json!({"z": "y"}),
                "spec.one.z: Invalid value: \"string\": spec.one.z in body must be of type integer: \"string\"",
            ),
            (
                "either",
                json!({"a": 1, "b": 1}),
                "spec.either: Invalid value: \"object\": \"spec.either\" must validate one and only one schema (oneOf)",
            ),
        ] {
            let mut bad = good.clone();
            bad["spec"][field] = value;
            let causes: Vec<String> = wrong(&schema, &bad).iter().map(ToString::to_string).collect();
            assert_eq!(causes, [wanted]);
        }
        let causes: Vec<String> =
            wrong(&schema, &json!({"spec": {}})).iter().map(ToString::to_string).collect();
        assert_eq!(causes, ["spec.name: Required value"]);
        let causes: Vec<String> = wrong(&schema, &json!({})).iter().map(ToString::to_string).collect();
        assert_eq!(causes, ["spec: Required value"]);
    }
}
