//! Kinds that people defined, as they are published: the schema of the definition with what every object has.
//! Source: `apiextensions-apiserver` pkg/controller/openapi.

use serde_json::{Map, Value, json};

use super::words;
use crate::custom::Version;

/// Which form of the description a schema is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Version 3.
    Three,
    /// Swagger 2.0, which cannot say everything.
    Two,
}

const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// The name of a custom kind's type: the parts of its group in reverse, as for built-in types.
pub(super) fn type_name(version: &Version, kind: &str) -> String {
    let (group, version) = version.api_version.split_once('/').unwrap_or_default();
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}

/// The types of a version, by their names: its objects and its lists.
pub(super) fn types(version: &Version, plural: &str, form: Form) -> [(String, Value); 2] {
    let name = type_name(version, &version.kind);
    let mut lists = list(version, plural, &name, form);
    let mut objects = object(&version.published, form);
    let (group, of) = version.api_version.split_once('/').unwrap_or_default();
    for (schema, kind) in [(&mut objects, &version.kind), (&mut lists, &version.list_kind)] {
        schema[GROUP_VERSION_KIND] = json!([{"group": group, "version": of, "kind": kind}]);
        let fields = version.selectable.iter().map(|(field, _)| json!({"fieldPath": field}));
        if !version.selectable.is_empty() {
            schema["x-kubernetes-selectable-fields"] = fields.collect();
        }
    }
    [(name, objects), (type_name(version, &version.list_kind), lists)]
}

fn reference(name: &str, text: &str, form: Form) -> Value {
    match form {
        Form::Three => json!({"allOf": [super::schemas::reference(name)], "description": text}),
        Form::Two => json!({"$ref": format!("#/definitions/{name}"), "description": text}),
    }
}

fn texts() -> [(&'static str, Value); 2] {
    [("apiVersion", words::API_VERSION), ("kind", words::KIND)]
        .map(|(name, text)| (name, json!({"type": "string", "description": text})))
}

fn list(version: &Version, plural: &str, item: &str, form: Form) -> Value {
    let items = match form {
        Form::Three => json!({"allOf": [super::schemas::reference(item)]}),
        Form::Two => json!({"$ref": format!("#/definitions/{item}")}),
    };
    let mut properties = json!({
        "items": {"type": "array", "items": items, "description": format!("List of {plural}.")},
        "metadata": reference(LIST_META, words::LIST_METADATA, form),
    });
    for (name, schema) in texts() {
        properties[name] = schema;
    }
    json!({"type": "object", "description": format!("{} is a list of {}", version.list_kind, version.kind),
        "required": ["items"], "properties": properties})
}

/// The schema of a definition with what every object has.
fn object(published: &Value, form: Form) -> Value {
    // kubectl would take any field that is named for all that there are.
    if published.is_null() || form == Form::Two && published[PRESERVE] == true {
        return json!({"type": "object"});
    }
    let mut schema = published.clone();
    node(&mut schema, form);
    schema["properties"]["metadata"] = reference(OBJECT_META, words::METADATA, form);
    for (name, text) in texts() {
        schema["properties"][name] = text;
    }
    schema
}

fn node(schema: &mut Value, form: Form) {
    let Some(keywords) = schema.as_object_mut() else { return };
    keywords.retain(|name, value| {
        matches!(name.as_str(), "default" | "example") || *value != Value::Bool(false) && !value.is_null()
    });
    match form {
        Form::Three => unfold(keywords),
        Form::Two => older(keywords),
    }
    let flag = |keywords: &Map<String, Value>, name: &str| keywords.get(name) == Some(&Value::Bool(true));
    for (keyword, value) in keywords.iter_mut() {
        match keyword.as_str() {
            "properties" => value.as_object_mut().into_iter().flatten().for_each(|(_, s)| node(s, form)),
            "items" | "additionalProperties" => node(value, form),
            _ => {}
        }
    }
    if flag(keywords, EMBEDDED) && !(form == Form::Two && flag(keywords, PRESERVE)) {
        embedded(keywords, form);
    }
}

/// An object inside of another has its own kind and metadata.
fn embedded(keywords: &mut Map<String, Value>, form: Form) {
    let properties = keywords.entry("properties").or_insert_with(|| json!({}));
    for (name, text) in texts() {
        properties[name] = text;
    }
    properties["metadata"] = reference(OBJECT_META, words::METADATA, form);
    if let Some(required) = keywords.entry("required").or_insert_with(|| json!([])).as_array_mut() {
        for name in ["kind", "apiVersion"] {
            if !required.contains(&name.into()) {
                required.push(name.into());
            }
        }
    }
}

/// Says of what may be a number or text that it is one of them, unless the definition does.
fn unfold(keywords: &mut Map<String, Value>) {
    if keywords.get(INT_OR_STRING) != Some(&Value::Bool(true)) {
        return;
    }
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let all = keywords.get("allOf").and_then(Value::as_array);
    let said = all.and_then(|all| all.first()).is_some_and(|first| first["anyOf"] == either);
    match keywords.get("anyOf") {
        _ if said => {}
        Some(any) if *any == either => {}
        None => drop(keywords.insert("anyOf".to_owned(), either)),
        Some(_) => {
            let all = keywords.entry("allOf").or_insert_with(|| json!([]));
            if let Some(all) = all.as_array_mut() {
                all.insert(0, json!({"anyOf": either}));
            }
        }
    }
}

/// Leaves out what the older form cannot say, and what kubectl, which reads it, would take for a limit.
fn older(keywords: &mut Map<String, Value>) {
    let flag = |keywords: &Map<String, Value>, name: &str| keywords.get(name) == Some(&Value::Bool(true));
    for keyword in ["allOf", "oneOf", "anyOf", "not", "default"] {
        keywords.remove(keyword);
    }
    let preserved = flag(keywords, PRESERVE);
    let nullable = keywords.remove("nullable").is_some();
    if nullable || preserved {
        keywords.remove("items");
        keywords.remove("properties");
    }
    let kind = keywords.get("type").and_then(Value::as_str);
    let whole =
        kind == Some("array") && !keywords.contains_key("items") || kind == Some("object") && preserved;
    if nullable || whole {
        keywords.remove("type");
    }
    if keywords.get("additionalProperties").is_some_and(|values| values["nullable"] == true) {
        keywords.remove("required");
    }
    // That a field must be there cannot be said where it may be null.
    let properties = keywords.get("properties").cloned().unwrap_or_default();
    if let Some(required) = keywords.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| properties[name.as_str().unwrap_or_default()]["nullable"] != true);
        if required.is_empty() {
            keywords.remove("required");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::custom::Definition;
    use std::sync::Arc;

    fn version(schema: &Value) -> Arc<Version> {
        let definition = json!({"metadata": {"name": "foos.test.example.com"}, "spec": {"group": "test.example.com",
            "names": {"plural": "foos", "kind": "Foo", "listKind": "FooBag"}, "versions": [{"name": "v1", "served": true,
                "storage": true, "schema": {"openAPIV3Schema": schema}, "selectableFields": [{"jsonPath": ".spec.a"}]}]}});
        Definition::read(&definition).versions.remove(0)
    }

    fn spec(schema: Value, form: Form) -> Value {
        let root = json!({"type": "object", "properties": {"spec": schema}});
        let [(_, object), _] = types(&version(&root), "foos", form);
        object["properties"]["spec"].clone()
    }

    #[test]
    fn objects_and_lists_have_their_names_and_what_every_object_has() {
        let schema = json!({"type": "object", "description": "A Foo."});
        let [(name, object), (list_name, list)] = types(&version(&schema), "foos", Form::Three);
        assert_eq!(
            (name.as_str(), list_name.as_str()),
            ("com.example.test.v1.Foo", "com.example.test.v1.FooBag")
        );
        assert_eq!(object["description"], "A Foo.");
        assert_eq!(object["properties"]["apiVersion"]["type"], "string");
        assert!(
            object["properties"]["metadata"]["allOf"][0]["$ref"].as_str().unwrap().ends_with("v1.ObjectMeta")
        );
        let kind = |kind: &str| json!([{"group": "test.example.com", "version": "v1", "kind": kind}]);
        assert_eq!((&object[GROUP_VERSION_KIND], &list[GROUP_VERSION_KIND]), (&kind("Foo"), &kind("FooBag")));
        assert_eq!(object["x-kubernetes-selectable-fields"], json!([{"fieldPath": "spec.a"}]));
        assert_eq!(list["required"], json!(["items"]));
        let [(_, older), _] = types(&version(&schema), "foos", Form::Two);
        assert_eq!(older["properties"]["metadata"]["$ref"], format!("#/definitions/{OBJECT_META}"));
    }

    #[test]
    fn what_preserves_unknown_fields_at_its_root_is_any_object_in_the_older_form() {
        let schema = json!({"type": "object", PRESERVE: true, "properties": {"spec": {"type": "object"}}});
        let [(_, older), _] = types(&version(&schema), "foos", Form::Two);
        assert_eq!((older["type"].as_str(), older.get("properties")), (Some("object"), None));
        let [(_, newer), _] = types(&version(&schema), "foos", Form::Three);
        assert_eq!(
            (&newer[PRESERVE], &newer["properties"]["spec"]["type"]),
            (&json!(true), &json!("object"))
        );
    }

    #[test]
    fn the_older_form_leaves_out_what_it_cannot_say() {
        for (given, wanted) in [
            (json!({"type": "object", PRESERVE: true, "properties": {"a": {}}}), json!({PRESERVE: true})),
            (json!({"type": "string", "nullable": true}), json!({})),
            (
                json!({"type": "array", "items": {"type": "string"}, "default": []}),
                json!({"type": "array", "items": {"type": "string"}}),
            ),
            (
                json!({INT_OR_STRING: true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
                json!({INT_OR_STRING: true}),
            ),
            (
                json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "nullable": true}}}),
                json!({"type": "object", "properties": {"a": {}}}),
            ),
            (
                json!({"type": "string", "enum": ["a"], "maxLength": 3, "not": {"enum": ["b"]}}),
                json!({"type": "string", "enum": ["a"], "maxLength": 3}),
            ),
        ] {
            assert_eq!(spec(given.clone(), Form::Two), wanted, "{given}");
        }
    }

    #[test]
    fn the_newer_form_says_everything() {
        for (given, wanted) in [
            (
                json!({INT_OR_STRING: true}),
                json!({INT_OR_STRING: true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
            (
                json!({INT_OR_STRING: true, "anyOf": [{"minimum": 1}]}),
                json!({INT_OR_STRING: true, "anyOf": [{"minimum": 1}],
                "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]}),
            ),
            (
                json!({"type": "string", "nullable": true, "default": "a"}),
                json!({"type": "string", "nullable": true, "default": "a"}),
            ),
            (json!({"type": "string", "nullable": false}), json!({"type": "string"})),
        ] {
            assert_eq!(spec(given.clone(), Form::Three), wanted, "{given}");
        }
        let embedded = spec(json!({"type": "object", EMBEDDED: true, "required": ["kind"]}), Form::Three);
        assert_eq!(embedded["required"], json!(["kind", "apiVersion"]));
        assert!(embedded["properties"]["metadata"]["allOf"].is_array());
        let free = spec(json!({"type": "object", EMBEDDED: true, PRESERVE: true}), Form::Two);
        assert_eq!(free, json!({EMBEDDED: true, PRESERVE: true}));
    }
}
