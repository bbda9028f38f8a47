//! Surroundings for tests of hooks.

use super::Objects;
use serde_json::Value;

/// A cluster without objects.
pub struct Nothing;

impl Objects for Nothing {
    fn get(&self, _: &str, _: &str, _: &str, _: &str) -> Option<Value> {
        None
    }

    fn list(&self, _: &str, _: &str) -> Vec<Value> {
        Vec::new()
    }
}

/// A cluster with these objects, found by kind of resource and name.
pub struct These(pub Vec<(&'static str, Value)>);

impl Objects for These {
    fn get(&self, _: &str, resource: &str, _: &str, name: &str) -> Option<Value> {
        self.0.iter().find(|(r, o)| *r == resource && o["metadata"]["name"] == name).map(|(_, o)| o.clone())
    }

    fn list(&self, _: &str, resource: &str) -> Vec<Value> {
        self.0.iter().filter(|(r, _)| *r == resource).map(|(_, o)| o.clone()).collect()
    }
}
