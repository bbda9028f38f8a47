//! Bodies of requests: strict JSON, YAML, protobuf.

use bytes::Bytes;
use serde_json::Value;
use trine_apiserver::http::document::document;
use trine_objects::{json, protobuf as wire, schema};

/// Reads a document strictly, and brings what was read to the form in which it is stored.
#[must_use]
pub fn json(bytes: &[u8]) -> bool {
    let Ok((value, _)) = json::parse_reporting_duplicates(bytes) else { return false };
    stored(&value);
    true
}

/// The same from YAML.
#[must_use]
pub fn yaml(bytes: &[u8]) -> bool {
    let Ok((value, _)) = document("application/yaml", &Bytes::copy_from_slice(bytes)) else { return false };
    stored(&value);
    let text = value.to_string();
    let (again, twice) = json::parse_reporting_duplicates(text.as_bytes()).expect("its JSON can be read");
    assert!(twice.is_empty(), "nothing is there twice any more");
    assert_eq!(again, value);
    true
}

fn stored(value: &Value) {
    for (group, kind) in [("", "Pod"), ("apiextensions.k8s.io", "CustomResourceDefinition"), ("", "Status")] {
        let ty = schema::of(group, "v1", kind).expect("the kind is known");
        let problems = schema::check(ty, value);
        assert!(problems.iter().all(|p| !p.to_string().is_empty()));
        let mut stored = value.clone();
        schema::prune(ty, &mut stored);
        let once = stored.clone();
        schema::prune(ty, &mut stored);
        assert_eq!(stored, once, "pruned is pruned");
        let left = schema::check(ty, &stored);
        assert!(left.iter().all(schema::FieldError::is_fatal), "nothing unknown is left");
    }
}

/// Reads an object; what was written of it is read as the same.
#[must_use]
pub fn protobuf(bytes: &[u8]) -> bool {
    let Ok(object) = wire::decode(bytes) else { return false };
    // A text that is no quantity is found by the check of fields, which is another step.
    if let Ok(written) = wire::encode(&object) {
        let again = wire::decode(&written).expect("what was written can be read");
        let twice = wire::encode(&again).expect("and written again");
        assert_eq!(twice, written, "in the same bytes");
    }
    true
}
