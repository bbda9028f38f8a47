//! The index and the documents.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use trine_objects::schema;

use super::custom::{self, Form};
use super::{Foreign, gnostic, paths, schemas, v2};
use crate::catalog::{Resources, Served};
use crate::request::group_path;

/// Raised when the documents change with the table of types staying the same.
const FORM: u32 = 3;

/// The description of all groups. A document is made when it is first asked for, and again when what it describes has
/// changed.
#[derive(Debug)]
pub struct OpenApi {
    /// Of the table of types.
    base: String,
    made: Mutex<BTreeMap<Key, Document>>,
}

/// Group and version, or the document of all groups in one of its encodings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Group(String, String),
    AllJson,
    AllProtobuf,
}

/// One document.
#[derive(Debug, Clone)]
pub struct Document {
    /// Its content.
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
    /// Nothing is made yet.
    #[must_use]
    pub fn new() -> Self {
        let mut digest = Sha256::new();
        digest.update(FORM.to_be_bytes());
        digest.update(schema::source());
        Self { base: hex::encode(digest.finalize()), made: Mutex::default() }
    }

    fn hash<'a>(&self, served: impl IntoIterator<Item = &'a Arc<Served>>) -> String {
        let mut digest = Sha256::new();
        digest.update(&self.base);
        for resource in served {
            digest.update(format!("{resource:?}"));
            digest.update(resource.custom().map(|version| version.digest).unwrap_or_default());
        }
        hex::encode(&digest.finalize()[..16]).to_uppercase()
    }

    /// `/openapi/v3`: which documents there are.
    #[must_use]
    pub fn index(&self, resources: &Resources, others: &[Foreign]) -> Bytes {
        let mut paths = Map::new();
        let groups = groups(resources);
        self.forget(|group, version| !groups.contains_key(&(group, version)));
        for ((group, version), served) in groups {
            let path = group_path(group, version);
            let url = format!("/openapi/v3/{path}?hash={}", self.hash(served));
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
        for (other, document) in others.iter().filter_map(|o| Some((o, o.three.as_ref()?))) {
            let path = group_path(&other.group, &other.version);
            let url = format!("/openapi/v3/{path}?hash={}", document.hash);
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
        Bytes::from(json!({"paths": paths}).to_string())
    }

    /// `/openapi/v3/PATH`, the path being `api/v1` or `apis/GROUP/VERSION`.
    #[must_use]
    pub fn document(&self, resources: &Resources, others: &[Foreign], path: &str) -> Option<Document> {
        if let Some(other) = others.iter().find(|o| group_path(&o.group, &o.version) == path) {
            return other.three.clone();
        }
        let ((group, version), served) =
            groups(resources).into_iter().find(|((g, v), _)| group_path(g, v) == path)?;
        let key = Key::Group(group.to_owned(), version.to_owned());
        Some(self.made(key, self.hash(served.iter().copied()), || {
            Bytes::from(build(group, version, &served, Some(Form::Three)).to_string())
        }))
    }

    /// `/openapi/v2`: all groups in the older form, as JSON.
    #[must_use]
    pub fn all_json(&self, resources: &Resources, others: &[Foreign]) -> Document {
        let hash = self.hash_of_all(resources, others);
        self.made(Key::AllJson, hash, || Bytes::from(all(resources, others).to_string()))
    }

    /// The same in protobuf.
    #[must_use]
    pub fn all_protobuf(&self, resources: &Resources, others: &[Foreign]) -> Document {
        let hash = self.hash_of_all(resources, others);
        self.made(Key::AllProtobuf, hash, || Bytes::from(gnostic::encode(&all(resources, others))))
    }

    fn hash_of_all(&self, resources: &Resources, others: &[Foreign]) -> String {
        let own = self.hash(resources.iter());
        let mut theirs = others.iter().filter_map(|o| o.two.as_ref()).peekable();
        if theirs.peek().is_none() {
            return own;
        }
        let mut digest = Sha256::new();
        digest.update(own);
        theirs.for_each(|part| digest.update(part.hash()));
        hex::encode(&digest.finalize()[..16]).to_uppercase()
    }

    /// Drops the documents of groups that are not served any more.
    fn forget(&self, gone: impl Fn(&str, &str) -> bool) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|key, _| !matches!(key, Key::Group(group, version) if gone(group, version)));
    }

    fn made(&self, key: Key, hash: String, make: impl FnOnce() -> Bytes) -> Document {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match made.get(&key) {
            Some(document) if document.hash == hash => document.clone(),
            _ => {
                let document = Document { bytes: make(), hash };
                made.insert(key, document.clone());
                document
            }
        }
    }
}

/// The resources of each group and version.
fn groups(resources: &Resources) -> BTreeMap<(&str, &str), Vec<&Arc<Served>>> {
    let mut groups: BTreeMap<(&str, &str), Vec<&Arc<Served>>> = BTreeMap::new();
    for served in resources.iter() {
        groups.entry((&served.group, &served.version)).or_default().push(served);
    }
    groups
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": crate::http::discovery::VERSION})
}

fn all(resources: &Resources, others: &[Foreign]) -> Value {
    let groups = groups(resources).into_iter();
    let documents = groups.map(|((group, version), served)| build(group, version, &served, None));
    let mut document = v2::merged(documents, &info());
    let types = resources.iter().filter_map(|r| Some(custom::types(r.custom()?, &r.plural, Form::Two)));
    for (name, schema) in types.flatten() {
        document["definitions"][name] = schema;
    }
    others.iter().filter_map(|o| o.two.as_ref()).for_each(|part| part.add_to(&mut document));
    document
}

fn build(group: &str, version: &str, served: &[&Arc<Served>], customs: Option<Form>) -> Value {
    let served: Vec<&Served> = served.iter().map(|s| &***s).collect();
    let root = format!("/{}", group_path(group, version));
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths::of(&root, &served),
        "components": {"schemas": schemas::of(&served, customs)},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use std::collections::HashSet;

    fn parsed(path: &str) -> Value {
        let now = Catalog::new().now();
        serde_json::from_slice(&OpenApi::new().document(&now, &[], path).unwrap().bytes).unwrap()
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
        let (api, now) = (OpenApi::new(), Catalog::new().now());
        let index: Value = serde_json::from_slice(&api.index(&now, &[])).unwrap();
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
        assert!(api.document(&now, &[], "apis/none/v1").is_none());
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

    #[test]
    fn the_document_of_all_groups_refers_only_to_itself() {
        let (api, now) = (OpenApi::new(), Catalog::new().now());
        let all = api.all_json(&now, &[]);
        let document: Value = serde_json::from_slice(&all.bytes).unwrap();
        assert_eq!(document["swagger"], "2.0");
        let mut targets = HashSet::new();
        references(&document, &mut targets);
        assert!(targets.len() > 200, "{} types are referred to", targets.len());
        for target in targets {
            let pointer = target.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{target}");
        }
        let spec = &document["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"];
        assert_eq!(spec["containers"]["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(spec["securityContext"]["$ref"], "#/definitions/io.k8s.api.core.v1.PodSecurityContext");
        let post = &document["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
        assert_eq!(post["x-kubernetes-group-version-kind"]["kind"], "Pod");
        assert!(post["parameters"].as_array().unwrap().iter().any(|p| p["in"] == "body"));
        let binary = api.all_protobuf(&now, &[]);
        assert_eq!(binary.hash, all.hash);
        assert!(binary.bytes.starts_with(b"\x0a\x032.0\x12"), "swagger and info come first");
        println!("{} bytes of JSON, {} of protobuf", all.bytes.len(), binary.bytes.len());
    }

    #[test]
    fn a_document_is_made_once() {
        let (api, now) = (OpenApi::new(), Catalog::new().now());
        let first = api.document(&now, &[], "api/v1").unwrap();
        let second = api.document(&now, &[], "api/v1").unwrap();
        assert_eq!(first.bytes.as_ptr(), second.bytes.as_ptr());
        assert_ne!(first.hash, api.document(&now, &[], "apis/storage.k8s.io/v1").unwrap().hash);
    }
}
