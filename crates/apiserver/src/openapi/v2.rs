//! The older form of the description, one document for all groups: Swagger 2.0, made from the documents of version 3.

use serde_json::{Map, Value, json};

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

/// One document from those of all groups.
pub(super) fn merged(documents: impl IntoIterator<Item = Value>, info: &Value) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for mut document in documents {
        if let Some(Value::Object(all)) = document.get_mut("paths").map(Value::take) {
            paths.extend(all.into_iter().map(|(path, item)| (path, path_item(item))));
        }
        let schemas = document.pointer_mut("/components/schemas").map(Value::take);
        if let Some(Value::Object(all)) = schemas {
            definitions.extend(all.into_iter().map(|(name, schema)| (name, self::schema(schema))));
        }
    }
    json!({"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions})
}

fn path_item(item: Value) -> Value {
    let Value::Object(map) = item else { return item };
    let convert = |(key, value): (String, Value)| {
        let value = match (key.as_str(), value) {
            ("parameters", Value::Array(list)) => list.into_iter().map(parameter).collect(),
            (method, value) if METHODS.contains(&method) => operation(value),
            (_, value) => value,
        };
        (key, value)
    };
    map.into_iter().map(convert).collect()
}

/// The type of a parameter lies beside its name, not in a schema.
fn parameter(mut parameter: Value) -> Value {
    if let Some(map) = parameter.as_object_mut()
        && let Some(Value::Object(schema)) = map.remove("schema")
    {
        map.extend(schema);
    }
    parameter
}

fn operation(operation: Value) -> Value {
    let Value::Object(mut map) = operation else { return operation };
    let mut parameters = match map.remove("parameters") {
        Some(Value::Array(list)) => list.into_iter().map(parameter).collect(),
        _ => Vec::new(),
    };
    let mut consumes = vec![Value::from("*/*")];
    if let Some(mut body) = map.remove("requestBody") {
        let required = body["required"].as_bool().unwrap_or_default();
        let (types, schema) = content(&mut body);
        consumes = types;
        parameters.push(json!({"name": "body", "in": "body", "required": required, "schema": schema}));
    }
    let mut produces = Vec::new();
    if let Some(responses) = map.get_mut("responses").and_then(Value::as_object_mut) {
        for response in responses.values_mut() {
            let (types, schema) = content(response);
            produces = types;
            *response = json!({"description": response["description"], "schema": schema});
        }
    }
    map.insert("consumes".to_owned(), consumes.into());
    map.insert("produces".to_owned(), produces.into());
    map.insert("parameters".to_owned(), parameters.into());
    map.insert("schemes".to_owned(), json!(["https"]));
    Value::Object(map)
}

/// Media types and schema of a body, which is the same for all of them.
fn content(body: &mut Value) -> (Vec<Value>, Value) {
    let Some(Value::Object(content)) = body.get_mut("content").map(Value::take) else {
        return (Vec::new(), json!({}));
    };
    let types = content.keys().map(|media| Value::from(media.as_str())).collect();
    let first = content.into_iter().next().map(|(_, mut media)| media["schema"].take());
    (types, schema(first.unwrap_or_default()))
}

fn schema(value: Value) -> Value {
    let Value::Object(map) = value else { return value };
    let mut out = Map::new();
    for (key, value) in map {
        match (key.as_str(), value) {
            ("$ref", Value::String(target)) => {
                out.insert(key, target.replace("#/components/schemas/", "#/definitions/").into());
            }
            ("allOf", Value::Array(mut list)) if list.len() == 1 => {
                if let Value::Object(inner) = schema(list.remove(0)) {
                    out.extend(inner);
                }
            }
            // One of several types cannot be said; text is what all of them may be.
            ("oneOf" | "anyOf", _) => drop(out.insert("type".to_owned(), "string".into())),
            ("properties", Value::Object(fields)) => {
                let fields: Map<String, Value> = fields.into_iter().map(|(n, f)| (n, schema(f))).collect();
                out.insert(key, fields.into());
            }
            ("items" | "additionalProperties", value) => drop(out.insert(key, schema(value))),
            ("nullable" | "default", _) => {}
            (_, value) => drop(out.insert(key, value)),
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_told_in_the_older_words() {
        let reference = json!({"$ref": "#/components/schemas/A"});
        let v3 = json!({
            "paths": {"/x/{name}": {
                "parameters": [{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}],
                "patch": {"parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string"}}],
                    "requestBody": {"required": true, "content": {"application/a": {"schema": reference}}},
                    "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
                    "x-kubernetes-action": "patch"}}},
            "components": {"schemas": {
                "A": {"type": "object", "properties": {
                    "b": {"allOf": [reference], "default": {}, "x-mark": 1},
                    "l": {"type": "array", "items": {"allOf": [reference]}}}},
                "Q": {"oneOf": [{"type": "string"}, {"type": "number"}]}}},
        });
        let reference = json!({"$ref": "#/definitions/A"});
        let wanted = json!({
            "swagger": "2.0", "info": {"title": "t"},
            "paths": {"/x/{name}": {
                "parameters": [{"name": "name", "in": "path", "required": true, "type": "string"}],
                "patch": {
                    "consumes": ["application/a"], "produces": ["application/json"], "schemes": ["https"],
                    "parameters": [{"name": "dryRun", "in": "query", "type": "string"},
                        {"name": "body", "in": "body", "required": true, "schema": reference}],
                    "responses": {"200": {"description": "OK", "schema": reference}},
                    "x-kubernetes-action": "patch"}}},
            "definitions": {
                "A": {"type": "object", "properties": {
                    "b": {"$ref": "#/definitions/A", "x-mark": 1}, "l": {"type": "array", "items": reference}}},
                "Q": {"type": "string"}},
        });
        assert_eq!(merged([v3], &json!({"title": "t"})), wanted);
    }
}
