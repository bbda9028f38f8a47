//! What a kind may ask of the rest of the server while an object is written.

use super::service::{Allocators, Held};
use serde_json::Value;

/// Reads other objects from the server's cache.
pub trait Objects: Send + Sync {
    /// One object; the namespace is empty for a cluster-wide resource.
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value>;

    /// All objects of a resource, in all namespaces.
    fn list(&self, group: &str, resource: &str) -> Vec<Value>;

    /// Those of one namespace.
    fn list_in(&self, group: &str, resource: &str, namespace: &str) -> Vec<Value> {
        let mut all = self.list(group, resource);
        all.retain(|o| o["metadata"]["namespace"] == *namespace);
        all
    }
}

/// What surrounds one write. What was allocated through it is given back when it is dropped without
/// [`commit`](Cx::commit): after a refusal, a lost race or a dry run. Each attempt of a write has its own.
pub struct Cx<'a> {
    /// Other objects.
    pub objects: &'a dyn Objects,
    /// Seconds since 1970.
    pub now_unix: i64,
    /// Warnings for the client (`Warning` headers).
    pub warnings: Vec<String>,
    pub(super) allocators: &'a Allocators,
    pub(super) taken: Vec<Held>,
    pub(super) freed: Vec<Held>,
}

impl<'a> Cx<'a> {
    /// The surroundings of one attempt.
    pub fn new(objects: &'a dyn Objects, allocators: &'a Allocators, now_unix: i64) -> Self {
        Self { objects, now_unix, warnings: Vec::new(), allocators, taken: Vec::new(), freed: Vec::new() }
    }

    /// The write is done: what was allocated stays, what was given up becomes free.
    pub fn commit(mut self) {
        self.taken.clear();
        let freed = std::mem::take(&mut self.freed);
        self.allocators.release(&freed);
    }
}

impl Drop for Cx<'_> {
    fn drop(&mut self) {
        self.allocators.release(&self.taken);
    }
}
