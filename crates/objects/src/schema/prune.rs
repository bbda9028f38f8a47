//! Bringing an object to the form in which it is stored.

use super::{ObjectRef, Scalar, SchemaRef, Shape};
use crate::quantity;
use serde_json::{Map, Value};

/// Drops unknown fields and fields that are null (unless null is a value there), and writes quantities in their canonical
/// form: what decoding into the type and encoding again does.
pub fn prune<'a>(schema: impl Into<SchemaRef<'a>>, object: &mut Value) {
    prune_value(schema.into(), object);
}

fn prune_value(schema: SchemaRef<'_>, value: &mut Value) {
    match (schema.shape_for(value), value) {
        (Shape::Object(object), Value::Object(map)) => prune_fields(object, map),
        (Shape::List(list), Value::Array(items)) if matters(list.items) => {
            items.iter_mut().for_each(|inner| prune_value(list.items, inner));
        }
        (Shape::Scalar(Scalar::Quantity), value) => {
            if let Ok(quantity) = quantity::from_value(value) {
                *value = Value::String(quantity.to_string());
            }
        }
        _ => {}
    }
}

fn prune_fields(object: ObjectRef<'_>, map: &mut Map<String, Value>) {
    let values = object.values();
    map.retain(|name, inner| match object.property(name) {
        Some(property) if inner.is_null() => property.nullable(),
        Some(property) => {
            prune_value(property, inner);
            true
        }
        None => {
            if let Some(values) = values {
                prune_value(values, inner);
            }
            values.is_some()
        }
    });
}

/// Whether there can be anything to do below.
fn matters(schema: SchemaRef<'_>) -> bool {
    match schema.shape() {
        Shape::Any => false,
        Shape::Scalar(scalar) => scalar == Scalar::Quantity,
        Shape::List(list) => matters(list.items),
        Shape::Object(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Structural;
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_and_null_fields_go_and_free_form_stays() {
        let mut pod = json!({
            "spec": {"foo": 1, "nodeName": null, "containers": [{"name": "c", "bar": {}}], "nodeSelector": {"any": "thing"},
                "overhead": {"cpu": 0.5, "memory": "1024Mi"}},
            "metadata": {"managedFields": [{"fieldsV1": {"f:x": null}}]}, "extra": 1,
        });
        prune(super::super::of("", "v1", "Pod").unwrap(), &mut pod);
        assert_eq!(
            pod,
            json!({
                "spec": {"containers": [{"name": "c"}], "nodeSelector": {"any": "thing"},
                    "overhead": {"cpu": "500m", "memory": "1Gi"}},
                "metadata": {"managedFields": [{"fieldsV1": {"f:x": null}}]},
            })
        );
    }

    #[test]
    fn what_has_two_forms_is_pruned_in_either() {
        let mut definition = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "l": {"type": "array", "items": {"type": "string", "odd": 1}},
            "m": {"additionalProperties": {"odd": 1, "default": {"odd": 1}}},
            "n": {"additionalProperties": true}}}}}]}});
        prune(
            super::super::of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap(),
            &mut definition,
        );
        assert_eq!(
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"],
            json!({"l": {"type": "array", "items": {"type": "string"}}, "m": {"additionalProperties": {"default": {"odd": 1}}},
                "n": {"additionalProperties": true}})
        );
    }

    #[test]
    fn custom_resources_keep_what_their_schema_lets_them() {
        let schema = Structural::root(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "string", "nullable": true}, "b": {"type": "string"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                    "in": {"type": "object", "properties": {"x": {"type": "integer"}}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"y": {"type": "integer"}}}},
                "pod": {"type": "object", "x-kubernetes-embedded-resource": true}}}}}));
        let mut object = json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": {"name": "n", "colour": 1}, "status": {},
            "spec": {"a": null, "b": null, "c": 1, "free": {"z": null, "in": {"x": 1, "q": 2}}, "map": {"k": {"y": 1, "z": 2}},
                "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}, "spec": {}}}});
        prune(&schema, &mut object);
        assert_eq!(
            object,
            json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": {"name": "n"},
                "spec": {"a": null, "free": {"z": null, "in": {"x": 1}}, "map": {"k": {"y": 1}},
                    "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}}}})
        );
    }
}
