//! Those who decide, one after the other: the masters' group, the nodes' rules, the roles.

use std::sync::Arc;

use trine_store::Cache;

use super::attributes::Attributes;
use super::decision::Decision;
use super::follow::Follower;
use super::node::{graph, rules};
use super::rbac::defaults;
use super::rbac::index::{self, Index};
use super::rbac::rule::Rule;
use crate::user::{MASTERS, User};

/// Decides about requests. Reads nothing but memory.
pub struct Authorizer {
    roles: Follower<Index>,
    graph: Follower<graph::Graph>,
    node_rules: Vec<Rule>,
}

impl Authorizer {
    /// Follows the cache's roles, bindings, and what nodes need.
    #[must_use]
    pub fn start(cache: &Cache) -> Self {
        let source = |group: &str, plural: &str| {
            let scope = format!("/{}/{plural}/", if group.is_empty() { "core" } else { group });
            let prefix = cache.prefix(&scope);
            (scope, prefix)
        };
        let roles = index::SOURCES.map(|plural| source(defaults::GROUP, plural)).into();
        let needed = graph::SOURCES.map(|(group, plural)| source(group, plural)).into();
        Self {
            roles: Follower::start(roles, Index::default()),
            graph: Follower::start(needed, graph::Graph::default()),
            node_rules: defaults::rules_of("system:node"),
        }
    }

    /// Whether a user may do something.
    #[must_use]
    pub fn decide(&self, user: &User, wanted: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision::yes();
        }
        let reaches = |node: &str, sort, r: &super::attributes::Resource| {
            self.graph.with(|graph| graph.leads(node, sort, &r.namespace, &r.name))
        };
        let first = rules::decide(&reaches, &self.node_rules, user, wanted);
        if first.allowed() {
            return first;
        }
        match self.roles.with(|index| index.decide(user, wanted)) {
            Decision::NoOpinion(why) if why.is_empty() => first,
            second => second,
        }
    }

    /// All rules of roles that hold for a user in a namespace.
    #[must_use]
    pub fn rules(&self, user: &User, namespace: &str) -> Vec<Rule> {
        self.roles.with(|index| index.rules(user, namespace))
    }

    /// The rules of a role; those of a ClusterRole if the namespace is empty. `None` if there is no such role.
    #[must_use]
    pub fn role(&self, namespace: &str, name: &str) -> Option<Arc<[Rule]>> {
        self.roles.with(|index| index.role(namespace, name))
    }
}
