//! The types of a document, from the table of types.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use trine_objects::schema::{self, Field, ListMark, Ty, Type};

use super::custom::{self, Form};
use super::words;
use crate::catalog::Served;

/// Where types lie in a document.
const ROOT: &str = "#/components/schemas/";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";

/// A reference to a type.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("{ROOT}{name}")})
}

/// All types that resources need: their objects, lists, options, and what these are made of. Those of custom kinds in a form,
/// if there is one.
pub(super) fn of(served: &[&Served], customs: Option<Form>) -> Value {
    let mut todo: Vec<&'static Type> = Vec::new();
    for r in served {
        todo.extend(schema::of(&r.group, &r.version, &r.kind));
        todo.extend(schema::of(&r.group, &r.version, &format!("{}List", r.kind)));
        todo.extend(r.subresources.iter().filter_map(|s| schema::of(&s.group, &s.version, &s.kind)));
    }
    // Custom kinds have no more types than these of their own.
    for name in ["~meta.v1.DeleteOptions", "~meta.v1.Status", "~meta.v1.ObjectMeta", "~meta.v1.ListMeta"] {
        todo.extend(schema::named(name));
    }
    let mut done: BTreeMap<String, Value> = BTreeMap::new();
    while let Some(ty) = todo.pop() {
        let name = ty.name();
        if done.contains_key(&name) {
            continue;
        }
        ty.fields.iter().for_each(|f| referred(&f.ty, &mut todo));
        done.insert(name, object(ty));
    }
    done.insert(QUANTITY.to_owned(), json!({"oneOf": [{"type": "string"}, {"type": "number"}]}));
    done.insert(
        INT_OR_STRING.to_owned(),
        json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"}),
    );
    done.insert(TIME.to_owned(), json!({"type": "string", "format": "date-time"}));
    done.insert(MICRO_TIME.to_owned(), json!({"type": "string", "format": "date-time"}));
    if let Some(form) = customs {
        for resource in served {
            let types = resource.custom().map(|version| custom::types(version, &resource.plural, form));
            done.extend(types.into_iter().flatten());
        }
    }
    Value::Object(done.into_iter().collect())
}

fn referred(ty: &Ty, into: &mut Vec<&'static Type>) {
    match ty {
        Ty::Ref(id) | Ty::RefOr(id, _) => into.push(id.get()),
        Ty::List(item) | Ty::Map(item) => referred(item, into),
        _ => {}
    }
}

fn object(ty: &'static Type) -> Value {
    let mut out = Map::new();
    out.insert("type".into(), "object".into());
    let (name, whole) = (ty.name(), !ty.kinds.is_empty());
    if let Some(text) = words::of_type(&name) {
        out.insert("description".into(), text.into());
    }
    if !ty.fields.is_empty() {
        let described = |f: &Field| {
            let mut schema = field(f);
            if let Some(text) = words::of_field(&name, f.name, whole) {
                schema["description"] = text.into();
            }
            (f.name.to_owned(), schema)
        };
        let properties: Map<String, Value> = ty.fields.iter().map(described).collect();
        out.insert("properties".into(), properties.into());
    }
    let required: Vec<&str> = ty.fields.iter().filter(|f| f.required).map(|f| f.name).collect();
    if !required.is_empty() {
        out.insert("required".into(), required.into());
    }
    if !ty.kinds.is_empty() {
        let kinds = ty.kinds.iter().map(|k| json!({"group": k.group, "version": k.version, "kind": k.kind}));
        out.insert("x-kubernetes-group-version-kind".into(), kinds.collect());
    }
    if ty.atomic {
        out.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    Value::Object(out)
}

fn field(field: &Field) -> Value {
    let mut out = value(&field.ty);
    let Some(map) = out.as_object_mut() else { return out };
    let mut mark = |name: &str, value: Value| map.insert(format!("x-kubernetes-{name}"), value);
    match &field.list {
        ListMark::None => {}
        ListMark::Atomic => drop(mark("list-type", "atomic".into())),
        ListMark::Set => drop(mark("list-type", "set".into())),
        ListMark::Map(keys) => {
            mark("list-type", "map".into());
            mark("list-map-keys", keys.clone().into());
        }
    }
    if field.atomic_map {
        mark("map-type", "atomic".into());
    }
    let strategy = match (field.merge, field.retain_keys) {
        (true, true) => "merge,retainKeys",
        (true, false) => "merge",
        (false, true) => "retainKeys",
        (false, false) => return out,
    };
    mark("patch-strategy", strategy.into());
    if !field.merge_key.is_empty() {
        mark("patch-merge-key", field.merge_key.into());
    }
    out
}

fn value(ty: &Ty) -> Value {
    match ty {
        Ty::String => json!({"type": "string"}),
        Ty::Bool => json!({"type": "boolean"}),
        Ty::Int32 => json!({"type": "integer", "format": "int32"}),
        Ty::Int64 => json!({"type": "integer", "format": "int64"}),
        Ty::Double => json!({"type": "number", "format": "double"}),
        Ty::Bytes => json!({"type": "string", "format": "byte"}),
        Ty::Object => json!({"type": "object"}),
        Ty::Any | Ty::RefOr(..) => json!({}),
        Ty::Time => json!({"allOf": [reference(TIME)]}),
        Ty::MicroTime => json!({"allOf": [reference(MICRO_TIME)]}),
        Ty::Quantity => json!({"allOf": [reference(QUANTITY)]}),
        Ty::IntOrString => json!({"allOf": [reference(INT_OR_STRING)]}),
        Ty::Ref(id) => json!({"allOf": [reference(&id.get().name())], "default": {}}),
        Ty::List(item) => json!({"type": "array", "items": value(item)}),
        Ty::Map(item) => json!({"type": "object", "additionalProperties": value(item)}),
    }
}
