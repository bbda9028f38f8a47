//! What a value sets as a whole.

use super::atom::{Atom, child};
use crate::schema::SchemaRef;
use serde_json::Value;

/// The paths of lists and objects in a value that are taken as one, and so are replaced and not merged: `.spec.selector`.
#[must_use]
pub fn atomics(schema: SchemaRef<'_>, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(schema, value, "", &mut found);
    found
}

fn walk(schema: SchemaRef<'_>, value: &Value, path: &str, found: &mut Vec<String>) {
    let atom = Atom::of(schema, Some(value));
    if atom.is_atomic() && (value.is_object() || value.is_array()) {
        found.push(path.to_owned());
    }
    match (atom, value) {
        (Atom::Object(object), Value::Object(map)) => {
            map.iter().for_each(|(name, v)| walk(child(object, name), v, &format!("{path}.{name}"), found));
        }
        (Atom::List(list), Value::Array(items)) => {
            items.iter().enumerate().for_each(|(i, v)| walk(list.items, v, &format!("{path}[{i}]"), found));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_without_keys_and_whole_objects_are_found() {
        let pod = crate::schema::of("", "v1", "Pod").map(SchemaRef::from).unwrap();
        let value = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"x": "y"},
            "containers": [{"name": "c", "command": ["run"], "env": [{"name": "e", "value": "v"}]}]}});
        assert_eq!(atomics(pod, &value), [".spec.containers[0].command", ".spec.nodeSelector"]);
        assert_eq!(atomics(pod, &json!({"spec": {"hostNetwork": true}})), Vec::<String>::new());
    }
}
