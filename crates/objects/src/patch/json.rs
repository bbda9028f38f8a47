//! RFC 6902.

use super::PatchError;
use serde_json::Value;

/// The most operations in one patch, as upstream.
const MAX_OPERATIONS: usize = 10_000;

/// Applies a list of operations. The object is unchanged if one of them fails.
///
/// # Errors
/// [`PatchError`].
pub fn json(object: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|e| PatchError::Malformed(format!("error decoding patch: {e}")))?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut patched = object.clone();
    for operation in &operations.0 {
        if tests_for_absence(operation, &patched) {
            continue;
        }
        let adding = adds_in_place_of_nothing(operation, &patched);
        let operation = adding.as_ref().unwrap_or(operation);
        json_patch::patch(&mut patched, std::slice::from_ref(operation)).map_err(|e| {
            PatchError::Inapplicable(format!(
                "the server rejected our request due to an error in our request: {e}"
            ))
        })?;
    }
    *object = patched;
    Ok(())
}

/// A test for null holds where the field is absent in an object that is there, as it does upstream.
fn tests_for_absence(operation: &json_patch::PatchOperation, object: &Value) -> bool {
    let json_patch::PatchOperation::Test(test) = operation else { return false };
    test.value.is_null() && is_absent_member(test.path.as_str(), object)
}

/// A replacement of a field that is absent in an object that is there adds it, as it does upstream: clients replace annotations and
/// status without knowing whether there are any.
fn adds_in_place_of_nothing(
    operation: &json_patch::PatchOperation,
    object: &Value,
) -> Option<json_patch::PatchOperation> {
    let json_patch::PatchOperation::Replace(replace) = operation else { return None };
    let (path, value) = (replace.path.clone(), replace.value.clone());
    let add = || json_patch::PatchOperation::Add(json_patch::AddOperation { path, value });
    is_absent_member(replace.path.as_str(), object).then(add)
}

/// Whether a path leads to a field that is not there of an object that is.
fn is_absent_member(path: &str, object: &Value) -> bool {
    let Some((parent, _)) = path.rsplit_once('/') else { return false };
    object.pointer(path).is_none() && object.pointer(parent).is_some_and(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn operations_apply_in_order_or_not_at_all() {
        let mut object = value!({"metadata": {"labels": {"a": "1"}}, "list": [1, 2]});
        json(
            &mut object,
            &value!([
                {"op": "test", "path": "/metadata/labels/a", "value": "1"},
                {"op": "replace", "path": "/metadata/labels/a", "value": "2"},
                {"op": "add", "path": "/list/-", "value": 3},
                {"op": "remove", "path": "/list/0"},
                {"op": "add", "path": "/metadata/labels/x.io~1y", "value": "z"},
            ]),
        )
        .unwrap();
        assert_eq!(object, value!({"metadata": {"labels": {"a": "2", "x.io/y": "z"}}, "list": [2, 3]}));
        let before = object.clone();
        let failing =
            value!([{"op": "remove", "path": "/list/0"}, {"op": "test", "path": "/list/0", "value": 9}]);
        assert!(matches!(json(&mut object, &failing), Err(PatchError::Inapplicable(_))));
        assert_eq!(object, before);
        assert!(matches!(json(&mut object, &value!([{"op": "swap"}])), Err(PatchError::Malformed(_))));
        let many = Value::Array(vec![value!({"op": "test", "path": "", "value": 1}); MAX_OPERATIONS + 1]);
        assert!(matches!(json(&mut object, &many), Err(PatchError::TooLarge(_))));
    }

    #[test]
    fn a_replacement_of_nothing_in_an_object_adds() {
        let replace = |path: &str| value!([{"op": "replace", "path": path, "value": {"a": "b"}}]);
        let mut object = value!({"metadata": {"name": "x"}, "list": [1]});
        json(&mut object, &replace("/metadata/annotations")).unwrap();
        json(&mut object, &replace("/status")).unwrap();
        let expected =
            value!({"metadata": {"name": "x", "annotations": {"a": "b"}}, "list": [1], "status": {"a": "b"}});
        assert_eq!(object, expected);
        for path in ["/none/deeper", "/list/1", "/metadata/name/first"] {
            assert!(matches!(json(&mut object, &replace(path)), Err(PatchError::Inapplicable(_))), "{path}");
        }
        let removes = value!([{"op": "remove", "path": "/metadata/labels"}]);
        assert!(json(&mut object, &removes).is_err(), "only a replacement does");
        assert_eq!(object, expected);
    }

    #[test]
    fn a_test_for_null_holds_where_nothing_is() {
        let mut object = value!({"metadata": {"labels": {"a": "1"}}});
        let test = |path: &str| value!([{"op": "test", "path": path, "value": null}, {"op": "add", "path": "/x", "value": 1}]);
        assert!(json(&mut object, &test("/metadata/labels/a")).is_err());
        assert!(json(&mut object, &test("/metadata/annotations/a")).is_err());
        json(&mut object, &test("/metadata/labels/b")).unwrap();
        assert_eq!(object["x"], 1);
    }
}
