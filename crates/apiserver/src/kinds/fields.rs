//! Reading and filling fields of JSON objects.

use serde_json::{Map, Value};

/// Whether a field counts as left open: absent, null or empty text.
pub fn is_unset(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

/// The text of a field, empty if there is none.
pub fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

/// The items of a list, none if there is no list.
pub fn items<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object[key].as_array().map_or(&[], Vec::as_slice)
}

/// The items of a list, to change.
pub fn items_mut<'a>(object: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The entries of an object, none if there is no object.
pub fn entries<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object[key].as_object().into_iter().flatten()
}

/// Sets a field that was left open. Does nothing to what is not an object.
pub fn default(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && map.get(key).is_none_or(is_unset)
    {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a field. Does nothing to what is not an object.
pub fn set(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value.into());
    }
}

/// Removes a field and gives what it held.
pub fn take(object: &mut Value, key: &str) -> Value {
    object.as_object_mut().and_then(|map| map.remove(key)).unwrap_or(Value::Null)
}

/// The object under a key, made if it is absent.
pub fn child<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let child = &mut object[key];
    if child.is_null() {
        *child = Value::Object(Map::new());
    }
    child
}

/// Adds a finalizer unless it is there.
pub fn add_finalizer(object: &mut Value, finalizer: &str) {
    let metadata = child(object, "metadata");
    default(metadata, "finalizers", Value::Array(Vec::new()));
    if let Some(list) = metadata["finalizers"].as_array_mut()
        && !list.iter().any(|f| f == finalizer)
    {
        list.push(Value::from(finalizer));
    }
}
