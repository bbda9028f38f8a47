//! What may stand in `metadata`, the same for all kinds.

use super::{
    Cause,
    fields::{entries, is_unset, items, text},
};
use serde_json::Value;
use trine_objects::names::{self, Checked};

/// The most bytes of all annotations together.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Upstream's metadata has no empty maps and lists: they are left out when it is written.
pub fn settle(metadata: &mut Value) {
    if let Some(fields) = metadata.as_object_mut() {
        let has_nothing = |value: &Value| match value {
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => false,
        };
        let kept = |key: &String| {
            !["labels", "annotations", "finalizers", "ownerReferences"].contains(&key.as_str())
        };
        fields.retain(|key, value| kept(key) || !has_nothing(value));
    }
}

/// Turns the reasons against a name into causes.
pub fn name_causes(field: &str, value: &str, checked: Checked) -> Vec<Cause> {
    checked.err().into_iter().flatten().map(|reason| Cause::invalid(field, value, &reason)).collect()
}

/// What is wrong with the metadata of an object whose name is judged by `name`.
pub fn validate(obj: &Value, namespaced: bool, name: impl Fn(&str) -> Checked) -> Vec<Cause> {
    let metadata = &obj["metadata"];
    let mut causes = Vec::new();
    if is_unset(&metadata["name"]) {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        causes.extend(name_causes("metadata.name", text(metadata, "name"), name(text(metadata, "name"))));
    }
    match (namespaced, text(metadata, "namespace")) {
        (true, "") => causes.push(Cause::required("metadata.namespace", "")),
        (true, ns) => causes.extend(name_causes("metadata.namespace", ns, names::dns1123_label(ns))),
        (false, "") => {}
        (false, _) => causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type")),
    }
    causes.extend(labels(metadata, "labels", "metadata.labels"));
    causes.extend(annotations(metadata));
    for (i, finalizer) in items(metadata, "finalizers").iter().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        let field = format!("metadata.finalizers[{i}]");
        causes.extend(name_causes(&field, finalizer, names::qualified_name(finalizer)));
    }
    causes.extend(owners(metadata));
    causes
}

/// What is wrong with a map of labels under `key`.
pub fn labels(object: &Value, key: &str, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (label, value) in entries(object, key) {
        causes.extend(name_causes(field, label, names::qualified_name(label)));
        let value = value.as_str().unwrap_or_default();
        causes.extend(name_causes(field, value, names::label_value(value)));
    }
    causes
}

fn annotations(metadata: &Value) -> Vec<Cause> {
    let (mut causes, mut total) = (Vec::new(), 0);
    for (key, value) in entries(metadata, "annotations") {
        let checked = names::qualified_name(&key.to_ascii_lowercase());
        causes.extend(name_causes("metadata.annotations", key, checked));
        total += key.len() + value.as_str().unwrap_or_default().len();
    }
    if total > ANNOTATIONS_MAX {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_MAX));
    }
    causes
}

fn owners(metadata: &Value) -> Vec<Cause> {
    let (mut causes, mut controllers) = (Vec::new(), 0);
    for (i, owner) in items(metadata, "ownerReferences").iter().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if is_unset(&owner[key]) {
                let field = format!("metadata.ownerReferences[{i}].{key}");
                causes.push(Cause::invalid(
                    field,
                    "",
                    &format!("{} must not be empty", lower_first_words(key)),
                ));
            }
        }
        controllers += usize::from(owner["controller"] == true);
    }
    if controllers > 1 {
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            metadata["ownerReferences"].clone(),
            "Only one reference can have Controller set to true",
        ));
    }
    causes
}

fn lower_first_words(key: &str) -> &str {
    if key == "apiVersion" { "version" } else { key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_empty_is_kept() {
        let mut metadata = json!({"name": "a", "labels": {}, "annotations": {"a": ""}, "finalizers": [], "ownerReferences": [],
            "managedFields": []});
        settle(&mut metadata);
        assert_eq!(metadata, json!({"name": "a", "annotations": {"a": ""}, "managedFields": []}));
    }

    #[test]
    fn each_fault_in_metadata_is_named() {
        let validate = |metadata: Value| -> Vec<String> {
            let causes = super::validate(&json!({"metadata": metadata}), true, names::dns1123_subdomain);
            causes.iter().map(|c| format!("{} {}", c.field, c.kind.reason())).collect()
        };
        assert!(
            validate(
                json!({"name": "a", "namespace": "b", "labels": {"x.io/a": "B"}, "finalizers": ["x.io/y"]})
            )
            .is_empty()
        );
        for (metadata, wanted) in [
            (json!({"namespace": "a"}), "metadata.name FieldValueRequired"),
            (json!({"name": "a"}), "metadata.namespace FieldValueRequired"),
            (json!({"name": "A", "namespace": "a"}), "metadata.name FieldValueInvalid"),
            (
                json!({"name": "a", "namespace": "a", "labels": {"-": "x"}}),
                "metadata.labels FieldValueInvalid",
            ),
            (
                json!({"name": "a", "namespace": "a", "labels": {"a": "x y"}}),
                "metadata.labels FieldValueInvalid",
            ),
            (
                json!({"name": "a", "namespace": "a", "annotations": {"a b": ""}}),
                "metadata.annotations FieldValueInvalid",
            ),
            (
                json!({"name": "a", "namespace": "a", "annotations": {"a": "x".repeat(300_000)}}),
                "metadata.annotations FieldValueTooLong",
            ),
            (
                json!({"name": "a", "namespace": "a", "finalizers": ["a b"]}),
                "metadata.finalizers[0] FieldValueInvalid",
            ),
            (
                json!({"name": "a", "namespace": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x"}]}),
                "metadata.ownerReferences[0].uid FieldValueInvalid",
            ),
        ] {
            assert_eq!(validate(metadata), [wanted]);
        }
    }
}
