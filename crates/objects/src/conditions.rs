//! Conditions: the list `status.conditions`, keyed by type.

use serde_json::{Map, Value};

/// The condition of this type.
pub fn find<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == type_)
}

/// Whether the condition of this type is `True`.
pub fn is_true(object: &Value, type_: &str) -> bool {
    find(object, type_).is_some_and(|c| c["status"] == "True")
}

/// Sets a condition; the time of transition changes only with the status. Says whether anything changed.
pub fn set(object: &mut Value, type_: &str, status: bool, reason: &str, message: &str, now: &str) -> bool {
    let status = if status { "True" } else { "False" };
    let Some(list) = list_of(object) else { return false };
    let position = list.iter().position(|c| c["type"] == type_);
    let old = position.and_then(|i| list.get(i));
    let same = |name: &str, value: &str| old.is_some_and(|c| c[name].as_str().unwrap_or_default() == value);
    if same("status", status) && same("reason", reason) && same("message", message) {
        return false;
    }
    let since = match old {
        Some(c) if c["status"] == status => c["lastTransitionTime"].clone(),
        _ => Value::from(now),
    };
    let mut condition = old.and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
    for (name, value) in [
        ("type", Value::from(type_)),
        ("status", Value::from(status)),
        ("reason", Value::from(reason)),
        ("message", Value::from(message)),
        ("lastTransitionTime", since),
    ] {
        condition.insert(name.to_owned(), value);
    }
    match position {
        Some(i) => list[i] = Value::Object(condition),
        None => list.push(Value::Object(condition)),
    }
    true
}

fn list_of(object: &mut Value) -> Option<&mut Vec<Value>> {
    let status = object.as_object_mut()?.entry("status").or_insert_with(|| Value::Object(Map::new()));
    let list = status.as_object_mut()?.entry("conditions").or_insert_with(|| Value::Array(Vec::new()));
    list.as_array_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_transition_time_follows_the_status_alone() {
        let mut object = json!({});
        assert!(set(&mut object, "Ready", false, "Starting", "", "t1"));
        assert!(!set(&mut object, "Ready", false, "Starting", "", "t2"));
        assert!(set(&mut object, "Ready", false, "Still", "wait", "t3"));
        assert_eq!(find(&object, "Ready").unwrap()["lastTransitionTime"], "t1");
        assert!(set(&mut object, "Ready", true, "Started", "", "t4"));
        assert_eq!(find(&object, "Ready").unwrap()["lastTransitionTime"], "t4");
        assert!(is_true(&object, "Ready") && !is_true(&object, "Other"));
    }
}
