//! RFC 6902.

use super::PatchError;
use serde_json::Value;

/// The most operations in one patch, as upstream.
const MAX_OPERATIONS: usize = 10_000;

/// Applies a list of operations. The object is unchanged if one of them fails.
pub fn json(object: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|e| PatchError::Malformed(format!("error decoding patch: {e}")))?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::Malformed(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    json_patch::patch(object, &operations).map_err(|e| {
        PatchError::Inapplicable(format!(
            "the server rejected our request due to an error in our request: {e}"
        ))
    })
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
    }
}
