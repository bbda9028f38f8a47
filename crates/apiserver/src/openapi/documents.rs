//! The index and the documents.

use super::{paths, schemas};
use bytes::Bytes;
use serde_json::{Map, json};
use sha2::{Digest, Sha256};
use std::sync::OnceLock;
use trine_objects::resources::{Resource, resources};
use trine_objects::schema;

/// Raised when the documents change with the table of types staying the same.
const FORM: u32 = 1;

/// The description of all groups.
#[derive(Debug)]
pub struct OpenApi {
    hash: String,
    documents: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    group: &'static str,
    version: &'static str,
    document: OnceLock<Bytes>,
}

/// One document.
#[derive(Debug, Clone)]
pub struct Document {
    /// Its JSON.
    pub bytes: Bytes,
    /// Changes with its content: the `hash` of its URL and its `ETag`. A request with this hash may be cached for good.
    pub hash: String,
}

impl Default for OpenApi {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenApi {
    /// Nothing is built yet but the hash.
    pub fn new() -> Self {
        let mut documents: Vec<Slot> = Vec::new();
        let mut digest = Sha256::new();
        digest.update(FORM.to_be_bytes());
        digest.update(schema::source());
        for r in resources() {
            digest.update(format!("{r:?}"));
            if !documents.iter().any(|d| (d.group, d.version) == (&*r.group, &*r.version)) {
                documents.push(Slot { group: &r.group, version: &r.version, document: OnceLock::new() });
            }
        }
        Self { hash: hex::encode(&digest.finalize()[..16]).to_uppercase(), documents }
    }

    /// `/openapi/v3`: which documents there are.
    pub fn index(&self) -> Bytes {
        let mut paths = Map::new();
        for slot in &self.documents {
            let path = group_path(slot.group, slot.version);
            let url = format!("/openapi/v3/{path}?hash={}", self.hash);
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
        Bytes::from(json!({"paths": paths}).to_string())
    }

    /// `/openapi/v3/PATH`, the path being `api/v1` or `apis/GROUP/VERSION`.
    pub fn document(&self, path: &str) -> Option<Document> {
        let slot = self.documents.iter().find(|s| group_path(s.group, s.version) == path)?;
        let bytes = slot.document.get_or_init(|| build(slot.group, slot.version)).clone();
        Some(Document { bytes, hash: self.hash.clone() })
    }
}

/// `api/v1` or `apis/GROUP/VERSION`.
fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn build(group: &str, version: &str) -> Bytes {
    let served: Vec<&Resource> =
        resources().iter().filter(|r| (&*r.group, &*r.version) == (group, version)).collect();
    let root = format!("/{}", group_path(group, version));
    let document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.0"},
        "paths": paths::of(&root, &served),
        "components": {"schemas": schemas::of(&served)},
    });
    Bytes::from(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::HashSet;

    fn parsed(path: &str) -> Value {
        serde_json::from_slice(&OpenApi::new().document(path).unwrap().bytes).unwrap()
    }

    fn references(value: &Value, into: &mut HashSet<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(k, v)| match v.as_str() {
                Some(target) if k == "$ref" => drop(into.insert(target.to_owned())),
                _ => references(v, into),
            }),
            Value::Array(list) => list.iter().for_each(|v| references(v, into)),
            _ => {}
        }
    }

    #[test]
    fn every_document_of_the_index_exists_and_refers_only_to_itself() {
        let api = OpenApi::new();
        let index: Value = serde_json::from_slice(&api.index()).unwrap();
        let paths = index["paths"].as_object().unwrap();
        assert!(paths.contains_key("api/v1") && paths.contains_key("apis/storage.k8s.io/v1"));
        for path in paths.keys() {
            let document = parsed(path);
            let mut targets = HashSet::new();
            references(&document, &mut targets);
            for target in targets {
                let pointer = target.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{path}: {target}");
            }
        }
        assert!(api.document("apis/none/v1").is_none());
    }

    #[test]
    fn the_schema_of_a_pod_has_its_marks() {
        let document = parsed("api/v1");
        let spec = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"];
        let containers = &spec["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
        assert_eq!(spec["required"], json!(["containers"]));
        let pod = &document["components"]["schemas"]["io.k8s.api.core.v1.Pod"];
        assert_eq!(
            pod["x-kubernetes-group-version-kind"],
            json!([{"group": "", "version": "v1", "kind": "Pod"}])
        );
    }

    #[test]
    fn a_patch_says_its_content_types_and_parameters() {
        let patch = parsed("api/v1")["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"].clone();
        let types: Vec<&String> = patch["requestBody"]["content"].as_object().unwrap().keys().collect();
        let wanted = [
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ];
        assert_eq!(types, wanted);
        let parameters: Vec<&str> =
            patch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert!(["dryRun", "fieldManager", "fieldValidation"].iter().all(|p| parameters.contains(p)));
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Pod");
    }
}
