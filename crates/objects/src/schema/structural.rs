//! The structural schema of a custom resource, read once from its OpenAPI v3 form.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// One node of a structural schema. What is no structure (formats, limits, rules) is kept as it is in `rules`.
///
/// Reading never fails: whether a schema is structural at all is for the validation of the definition to say. Of what is
/// malformed nothing is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Structural {
    /// What `type` says.
    pub kind: JsonType,
    /// `nullable`: null is a value of its own, not the absence of one.
    pub nullable: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`: fields that are not named here stay.
    pub preserve_unknown: bool,
    /// The same, said here or above: server-side apply knows such fields too.
    pub within_preserved: bool,
    /// An object with `apiVersion`, `kind` and `metadata` of its own: the root, and `x-kubernetes-embedded-resource`.
    pub resource: bool,
    /// `properties`.
    pub properties: BTreeMap<String, Structural>,
    /// `required`.
    pub required: Vec<String>,
    /// `additionalProperties`.
    pub values: Values,
    /// `items`.
    pub items: Option<Box<Structural>>,
    /// `x-kubernetes-list-type` and `x-kubernetes-list-map-keys`.
    pub list: StructuralList,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic_map: bool,
    /// `default`.
    pub default: Option<Value>,
    /// All other keywords, descriptions aside.
    pub rules: Map<String, Value>,
}

/// What `type` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JsonType {
    /// Nothing.
    #[default]
    Unsaid,
    /// `object`.
    Object,
    /// `array`.
    Array,
    /// `string`.
    String,
    /// `boolean`.
    Boolean,
    /// `integer`.
    Integer,
    /// `number`.
    Number,
}

/// What `additionalProperties` says.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Values {
    /// Nothing, or false.
    #[default]
    None,
    /// True.
    Any,
    /// A schema.
    Of(Box<Structural>),
}

/// What `x-kubernetes-list-type` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StructuralList {
    /// Nothing, or `atomic`.
    #[default]
    Atomic,
    /// `set`.
    Set,
    /// `map` with these keys.
    Map(Vec<String>),
}

/// Keywords that are for people.
const WORDS: [&str; 4] = ["description", "title", "example", "externalDocs"];

impl Structural {
    /// Reads the schema of a version: `spec.versions[].schema.openAPIV3Schema`.
    #[must_use]
    pub fn root(schema: &Value) -> Self {
        let mut root = Self::read(schema, false);
        root.resource = true;
        root
    }

    /// Reads a schema that stands inside of another, as under `anyOf`.
    #[must_use]
    pub fn part(schema: &Value) -> Self {
        Self::read(schema, false)
    }

    fn read(schema: &Value, preserved: bool) -> Self {
        let mut node = Self::default();
        let Value::Object(keywords) = schema else { return node };
        let on = |keyword: &str| keywords.get(keyword) == Some(&Value::Bool(true));
        node.preserve_unknown = on("x-kubernetes-preserve-unknown-fields");
        node.within_preserved = preserved || node.preserve_unknown;
        node.int_or_string = on("x-kubernetes-int-or-string");
        node.resource = on("x-kubernetes-embedded-resource");
        node.nullable = on("nullable");
        let below = |schema: &Value| Self::read(schema, preserved || node.preserve_unknown);
        for (keyword, value) in keywords {
            match (keyword.as_str(), value) {
                ("type", Value::String(name)) => node.kind = JsonType::named(name),
                ("properties", Value::Object(properties)) => {
                    node.properties = properties.iter().map(|(k, v)| (k.clone(), below(v))).collect();
                }
                ("required", Value::Array(names)) => node.required = texts(names),
                ("additionalProperties", Value::Bool(true)) => node.values = Values::Any,
                ("additionalProperties", Value::Object(_)) => {
                    node.values = Values::Of(Box::new(below(value)))
                }
                ("items", Value::Object(_)) => node.items = Some(Box::new(below(value))),
                ("x-kubernetes-list-type", Value::String(kind)) => {
                    let keys = keywords.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                    node.list = match (kind.as_str(), keys) {
                        ("set", _) => StructuralList::Set,
                        ("map", Some(keys)) => StructuralList::Map(texts(keys)),
                        _ => StructuralList::Atomic,
                    };
                }
                ("x-kubernetes-map-type", Value::String(kind)) => node.atomic_map = kind == "atomic",
                ("default", value) => node.default = Some(value.clone()),
                (
                    "nullable"
                    | "x-kubernetes-int-or-string"
                    | "x-kubernetes-preserve-unknown-fields"
                    | "x-kubernetes-embedded-resource"
                    | "x-kubernetes-list-map-keys",
                    _,
                ) => {}
                (other, value) if !WORDS.contains(&other) => {
                    node.rules.insert(keyword.clone(), value.clone());
                }
                _ => {}
            }
        }
        node
    }

    /// Sets what an object of this schema leaves open, and drops nulls that are no value.
    pub fn defaults(&self, object: &mut Value) {
        match object {
            Value::Object(map) => {
                for (name, property) in &self.properties {
                    let open = map.get(name).is_none_or(|v| v.is_null() && !property.nullable);
                    match &property.default {
                        Some(default) if open => drop(map.insert(name.clone(), default.clone())),
                        None if open => drop(map.remove(name)),
                        _ => {}
                    }
                    if let Some(inner) = map.get_mut(name) {
                        property.defaults(inner);
                    }
                }
                if let Values::Of(values) = &self.values {
                    let free = map.iter_mut().filter(|(name, _)| !self.properties.contains_key(*name));
                    for (_, inner) in free {
                        if let (Some(default), true) = (&values.default, inner.is_null() && !values.nullable)
                        {
                            *inner = default.clone();
                        }
                        values.defaults(inner);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                for inner in list {
                    if let (Some(default), true) = (&items.default, inner.is_null() && !items.nullable) {
                        *inner = default.clone();
                    }
                    items.defaults(inner);
                }
            }
            _ => {}
        }
    }
}

impl JsonType {
    /// As `type` says it; empty for nothing.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unsaid => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
        }
    }

    fn named(name: &str) -> Self {
        match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            _ => Self::Unsaid,
        }
    }
}

fn texts(list: &[Value]) -> Vec<String> {
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_keyword_has_its_place() {
        let schema = Structural::root(
            &json!({"type": "object", "description": "words", "required": ["spec"], "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                    "items": {"type": "object", "x-kubernetes-map-type": "atomic"}},
                "free": {"type": "object", "additionalProperties": {"type": "integer", "format": "int32"}},
                "name": {"type": "string", "maxLength": 3, "nullable": true, "default": "x"},
                "pod": {"type": "object", "x-kubernetes-embedded-resource": true}}},
            "broken": 1}}),
        );
        assert!(schema.resource && !schema.within_preserved);
        assert_eq!((schema.required.as_slice(), schema.rules.len()), (&["spec".to_owned()][..], 0));
        assert_eq!(schema.properties["broken"], Structural::default());
        let spec = &schema.properties["spec"];
        assert!(spec.preserve_unknown && spec.within_preserved && !spec.resource);
        let of = |name: &str| &spec.properties[name];
        assert!(of("port").int_or_string && of("port").rules.contains_key("anyOf"));
        assert!(of("port").within_preserved && !of("port").preserve_unknown);
        assert_eq!(of("list").list, StructuralList::Map(vec!["a".to_owned(), "b".to_owned()]));
        assert!(of("list").items.as_ref().unwrap().atomic_map);
        assert!(matches!(&of("free").values, Values::Of(v) if v.kind == JsonType::Integer));
        assert_eq!(of("name").rules, json!({"maxLength": 3}).as_object().unwrap().clone());
        assert!(of("name").nullable && of("pod").resource);
    }

    #[test]
    fn defaults_reach_into_lists_and_maps_and_replace_null() {
        let schema = Structural::root(&json!({"type": "object", "properties": {
            "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}, "c": {"type": "string"}}},
            "n": {"type": "string", "nullable": true, "default": "x"},
            "l": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "string", "default": "d"}}}}));
        for (given, wanted) in [
            (json!({}), json!({"a": {"b": 1}, "n": "x"})),
            (json!({"a": {"b": null, "c": null}, "n": null}), json!({"a": {"b": 1}, "n": null})),
            (
                json!({"a": {"b": 2}, "n": "y", "l": [{}, {"p": "UDP"}]}),
                json!({"a": {"b": 2}, "n": "y", "l": [{"p": "TCP"}, {"p": "UDP"}]}),
            ),
            (
                json!({"m": {"k": null, "l": "v"}}),
                json!({"a": {"b": 1}, "n": "x", "m": {"k": "d", "l": "v"}}),
            ),
            (json!({"a": 7, "l": {}}), json!({"a": 7, "n": "x", "l": {}})),
        ] {
            let mut object = given.clone();
            schema.defaults(&mut object);
            assert_eq!(object, wanted, "{given}");
        }
    }
}
