//! Bringing an object to the form in which it is stored.

use super::{Ty, Type};
use crate::quantity;
use serde_json::Value;

/// Drops unknown fields and fields that are null, and writes quantities in their canonical form: what decoding into the type
/// and encoding again does.
pub fn prune(ty: &'static Type, object: &mut Value) {
    let Value::Object(map) = object else { return };
    map.retain(|name, inner| !inner.is_null() && ty.field(name).is_some());
    for (name, inner) in map.iter_mut() {
        if let Some(field) = ty.field(name) {
            prune_value(&field.ty, inner);
        }
    }
}

fn prune_value(ty: &Ty, value: &mut Value) {
    match (ty, value) {
        (Ty::Ref(id), value) => prune(id.get(), value),
        (Ty::Quantity, value) => {
            if let Ok(quantity) = quantity::from_value(value) {
                *value = Value::String(quantity.to_string());
            }
        }
        (Ty::List(item), Value::Array(list)) if matters(item) => {
            list.iter_mut().for_each(|v| prune_value(item, v))
        }
        (Ty::Map(item), Value::Object(map)) if matters(item) => {
            map.values_mut().for_each(|v| prune_value(item, v))
        }
        _ => {}
    }
}

/// Whether there can be anything to do below.
fn matters(ty: &Ty) -> bool {
    match ty {
        Ty::Ref(_) | Ty::Quantity => true,
        Ty::List(item) | Ty::Map(item) => matters(item),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
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
}
