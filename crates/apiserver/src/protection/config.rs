//! Schemas and levels as the objects of the moment say.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use trine_store::Object;

use super::enter::Shared;
use super::schema::Schema;
use super::shares::{self, Level};
use crate::access::attributes::Attributes;
use crate::access::follow::Derive;
use crate::flow_defaults;
use crate::registry::text;
use crate::user::User;

/// The group of both kinds.
pub(super) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Their plurals, in the order of the sources.
pub(super) const SOURCES: [&str; 2] = ["flowschemas", "prioritylevelconfigurations"];
/// There even if their objects are not. Upstream's mandatory objects.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// What a request is.
#[derive(Debug, Clone)]
pub(super) struct Class {
    pub schema: Arc<Schema>,
    pub level: Arc<Level>,
    pub flow: u64,
}

/// Schemas and levels.
pub(super) struct Config {
    shared: Arc<Shared>,
    /// By name, of each source.
    objects: [BTreeMap<String, Value>; 2],
    /// Those whose levels there are, in the order in which they are tried.
    schemas: Vec<Arc<Schema>>,
    levels: BTreeMap<String, Arc<Level>>,
}

impl Config {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let mut config =
            Self { shared, objects: Default::default(), schemas: Vec::new(), levels: BTreeMap::new() };
        config.build();
        config
    }

    /// What a request is; `None` if no schema takes it.
    pub(super) fn classify(&self, user: &User, wanted: &Attributes) -> Option<Class> {
        let schema = self.schemas.iter().find(|s| s.takes(user, wanted))?;
        let level = self.levels.get(&schema.level)?;
        Some(Class { schema: Arc::clone(schema), level: Arc::clone(level), flow: schema.flow(user, wanted) })
    }

    fn build(&mut self) {
        let with_mandatory = |there: &BTreeMap<String, Value>, defaults: Vec<Value>| -> Vec<Value> {
            let missing = |object: &Value| {
                let name = text(&object["metadata"]["name"]);
                MANDATORY.contains(&name) && !there.contains_key(name)
            };
            there.values().cloned().chain(defaults.into_iter().filter(missing)).collect()
        };
        let levels = with_mandatory(&self.objects[1], flow_defaults::levels());
        let levels = shares::levels(&levels);
        self.levels = levels.iter().map(|l| (l.name.clone(), Arc::new(l.clone()))).collect();
        let schemas = with_mandatory(&self.objects[0], flow_defaults::schemas());
        let read = |object: &Value| {
            let level = text(&object["spec"]["priorityLevelConfiguration"]["name"]);
            let counts = self.shared.counts.of(level, text(&object["metadata"]["name"]));
            self.levels.contains_key(level).then(|| Arc::new(Schema::read(object, counts)))
        };
        let mut schemas: Vec<Arc<Schema>> = schemas.iter().filter_map(read).collect();
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        self.schemas = schemas;
        self.shared.set(levels);
    }
}

impl Derive for Config {
    fn put(&mut self, source: usize, key: &str, object: &Object) {
        let object: Value = serde_json::from_slice(object.json()).unwrap_or_default();
        let same = self.objects[source].get(key).is_some_and(|old| old["spec"] == object["spec"]);
        self.objects[source].insert(key.to_owned(), object);
        if !same {
            self.build();
        }
    }

    fn remove(&mut self, source: usize, key: &str) {
        self.objects[source].remove(key);
        self.build();
    }

    fn clear(&mut self, source: usize) {
        self.objects[source].clear();
    }
}
