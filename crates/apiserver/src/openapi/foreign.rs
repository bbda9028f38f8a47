//! What other servers publish of the groups and versions that they serve.

use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::Document;

/// A group and version of another server.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// Its document in version 3, as the server gave it.
    pub three: Option<Document>,
    /// Its part of the older form.
    pub two: Option<Arc<Swagger>>,
}

/// A part of the older form.
#[derive(Debug)]
pub struct Swagger {
    paths: Map<String, Value>,
    definitions: Map<String, Value>,
    hash: [u8; 32],
}

impl Swagger {
    /// Reads a server's document; of its paths those below `root` count.
    #[must_use]
    pub fn read(body: &[u8], root: &str) -> Option<Self> {
        let mut document: Value = serde_json::from_slice(body).ok()?;
        let mut part = |name: &str| match document[name].take() {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        let mut paths = part("paths");
        paths.retain(|path, _| {
            path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        Some(Self { paths, definitions: part("definitions"), hash: Sha256::digest(body).into() })
    }

    /// Changes with what is in it.
    #[must_use]
    pub fn hash(&self) -> &[u8] {
        &self.hash
    }

    /// Adds it to a document, which keeps what it has.
    pub(super) fn add_to(&self, document: &mut Value) {
        for (name, part) in [("paths", &self.paths), ("definitions", &self.definitions)] {
            if let Some(all) = document[name].as_object_mut() {
                for (key, value) in part {
                    all.entry(key).or_insert_with(|| value.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_part_is_added_and_changes_nothing_that_is_there() {
        let theirs = json!({"paths": {"/apis/a.io/v1": 1, "/apis/a.io/v1/as": 2, "/apis/a.io/v11": 3, "/version": 4},
            "definitions": {"Status": 5, "A": 6}});
        let part = Swagger::read(theirs.to_string().as_bytes(), "/apis/a.io/v1").unwrap();
        let mut document = json!({"paths": {"/version": 0}, "definitions": {"Status": 0}});
        part.add_to(&mut document);
        let wanted = json!({"paths": {"/version": 0, "/apis/a.io/v1": 1, "/apis/a.io/v1/as": 2}, "definitions": {"Status": 0, "A": 6}});
        assert_eq!(document, wanted);
    }
}
