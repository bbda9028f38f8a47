//! Field sets as `managedFields[].fieldsV1` has them.

use super::set::Set;
use super::step::{NotAStep, Step};
use serde_json::{Map, Value};

/// Why a field set cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotASet {
    /// A key is no step.
    #[error(transparent)]
    Step(#[from] NotAStep),
    /// There is something else than an object.
    #[error("a field set is made of objects only")]
    NoObject,
}

impl Set {
    /// Reads a set.
    ///
    /// # Errors
    /// [`NotASet`].
    pub fn decode(fields: &Value) -> Result<Self, NotASet> {
        read(fields).map(|(set, _)| set)
    }

    /// Writes a set.
    pub fn encode(&self) -> Value {
        Value::Object(write(self, false))
    }
}

/// What lies below, and whether the field itself is in the set: it is if it says so (`.`), and if nothing lies below.
fn read(fields: &Value) -> Result<(Set, bool), NotASet> {
    let Value::Object(fields) = fields else { return Err(NotASet::NoObject) };
    let (mut set, mut member) = (Set::EMPTY, false);
    for (key, inner) in fields {
        if key == "." {
            member = true;
        } else if let Some(step) = Step::decode(key)? {
            let (below, itself) = read(inner)?;
            set.add(step, itself, below);
        }
    }
    member |= set.is_empty();
    Ok((set, member))
}

fn write(set: &Set, with_itself: bool) -> Map<String, Value> {
    let mut out = Map::new();
    if with_itself && !set.is_empty() {
        out.insert(".".to_owned(), Value::Object(Map::new()));
    }
    for node in set.nodes() {
        out.insert(node.step.encode(), Value::Object(write(&node.below, node.member)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sets_are_written_as_they_were_read() {
        for fields in [
            json!({}),
            json!({"f:spec": {"f:replicas": {}}}),
            json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:containers": {
                "k:{\"name\":\"web\"}": {".": {}, "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}}}}}}}),
            json!({"f:finalizers": {"v:\"a\"": {}, "v:\"b\"": {}}, "f:x": {"i:0": {}}}),
        ] {
            let set = Set::decode(&fields).unwrap();
            let tidy = Set::decode(&set.encode()).unwrap();
            assert_eq!(set, tidy, "{fields}");
        }
        let set =
            Set::decode(&json!({"f:a": {".": {}, "f:b": {}}, "f:c": {".": {}}, "z:later": {"f:x": {}}}))
                .unwrap();
        assert_eq!(set.encode(), json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
    }

    #[test]
    fn what_is_no_set_is_refused() {
        for fields in [json!(null), json!([]), json!({"f:a": 1}), json!({"spec": {}}), json!({"k:x": {}})] {
            assert!(Set::decode(&fields).is_err(), "{fields}");
        }
    }
}
