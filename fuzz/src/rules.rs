//! CEL: a rule of a custom kind, and an object that it judges.
//!
//! The input is the rule in the first line, and below it the object in JSON.

use serde_json::{Value, json};
use trine_apiserver::custom::{Definition, check};
use trine_apiserver::kinds::Hooks;
use trine_objects::json as reader;

/// Compiles the rule and judges the object, as new and as a change of itself. Whatever it says, it says it of both alike.
#[must_use]
pub fn rule(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    let Ok(rule) = std::str::from_utf8(&bytes[..end]) else { return false };
    let rest = bytes.get(end + 1..).unwrap_or_default();
    let (object, _) = reader::parse_reporting_duplicates(rest).unwrap_or_default();
    let definition = definition(rule);
    let refused = !check(&definition, None).is_empty();
    let read = Definition::read(&definition);
    let version = read.storage().expect("there is one version");
    let object =
        json!({"apiVersion": "fuzz.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": object});
    let said = version.validate(&object, None);
    assert_eq!(said, version.validate(&object, None), "a rule is no dice");
    let _ = version.validate(&object, Some(&object));
    !refused && version.rules.errors().is_empty()
}

fn definition(rule: &str) -> Value {
    let text = json!({"type": "string", "maxLength": 64});
    let spec = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {
        "text": text, "number": {"type": "integer"}, "share": {"type": "number"}, "on": {"type": "boolean"},
        "list": {"type": "array", "items": text, "maxItems": 16, "x-kubernetes-list-type": "set"},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 16},
        "port": {"x-kubernetes-int-or-string": true},
        "more": {"type": "object", "nullable": true, "properties": {"text": text}},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.fuzz.io"},
        "spec": {"group": "fuzz.io", "scope": "Namespaced", "conversion": {"strategy": "None"}, "names": {"plural": "things", "singular": "thing", "kind": "Thing",
            "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": spec}}}}]}})
}
