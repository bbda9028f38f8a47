//! RFC 7396.

use super::PatchError;
use serde_json::Value;

/// Merges a partial object: null removes, an object merges, anything else replaces.
pub fn merge(object: &mut Value, patch: &Value) -> Result<(), PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed("a merge patch must be a JSON object".to_owned()));
    }
    json_patch::merge(object, patch);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn null_removes_objects_merge_and_the_rest_replaces() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
        merge(&mut object, &json!({"a": {"b": null, "d": 3}, "l": [9], "n": {"x": null}})).unwrap();
        assert_eq!(object, json!({"a": {"c": 2, "d": 3}, "l": [9], "n": {}}));
        assert!(merge(&mut object, &json!([])).is_err());
    }
}
