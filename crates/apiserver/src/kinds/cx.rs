//! What a kind may ask of the rest of the server while an object is written.

use serde_json::Value;

/// Reads other objects from the server's cache.
pub trait Objects: Send + Sync {
    /// One object; the namespace is empty for a cluster-wide resource.
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value>;

    /// All objects of a resource, in all namespaces.
    fn list(&self, group: &str, resource: &str) -> Vec<Value>;
}

/// What surrounds one write. What was allocated through it is given back when it is dropped without
/// [`commit`](Cx::commit): after a refusal, a lost race or a dry run.
pub struct Cx<'a> {
    /// Other objects.
    pub objects: &'a dyn Objects,
    /// Seconds since 1970.
    pub now_unix: i64,
    /// Warnings for the client (`Warning` headers).
    pub warnings: Vec<String>,
}

impl Cx<'_> {
    /// The object was written: what was allocated stays, what it gave up becomes free.
    pub fn commit(self) {}
}
