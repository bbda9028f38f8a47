//! What is served at this moment: the kinds that are built in, and those that people defined.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use trine_objects::resources::{self, Resource};

use crate::kinds::{Hooks, hooks};

/// A resource as it is served: its names and verbs ([`Resource`], to which it derefs), and what is particular to its kind.
pub struct Served {
    resource: Resource,
    hooks: &'static dyn Hooks,
    stored_as: Option<Arc<Served>>,
}

impl Served {
    fn built_in(resource: &Resource, stored_as: Option<Arc<Served>>) -> Self {
        Self { resource: resource.clone(), hooks: hooks(&resource.group, &resource.plural), stored_as }
    }

    /// What is particular to its kind.
    #[must_use]
    pub fn hooks(&self) -> &dyn Hooks {
        self.hooks
    }

    /// The resource as which its objects are stored: Events of `events.k8s.io` are those of the core group.
    #[must_use]
    pub fn stored(self: &Arc<Self>) -> Arc<Self> {
        self.stored_as.as_ref().unwrap_or(self).clone()
    }

    /// True if its objects are stored as those of another resource, and have to be converted.
    #[must_use]
    pub fn is_converted(&self) -> bool {
        self.stored_as.is_some()
    }
}

impl Deref for Served {
    type Target = Resource;

    fn deref(&self) -> &Resource {
        &self.resource
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.resource.fmt(f)
    }
}

impl Eq for Served {}

impl PartialEq for Served {
    fn eq(&self, other: &Self) -> bool {
        self.resource == other.resource
    }
}

/// All that is served at one moment.
#[derive(Debug)]
pub struct Resources(Vec<Arc<Served>>);

impl Resources {
    /// Every resource, ordered by group and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.0.iter()
    }

    /// The resource under a URL's group, version and plural.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.named(group, plural).iter().find(|r| r.version == version)
    }

    /// The resource of a group whose objects are stored under this plural.
    #[must_use]
    pub fn stored(&self, group: &str, plural: &str) -> Option<&Arc<Served>> {
        self.named(group, plural).iter().find(|r| !r.is_converted())
    }

    /// The versions of a resource.
    fn named(&self, group: &str, plural: &str) -> &[Arc<Served>] {
        let start = self.0.partition_point(|r| (&*r.group, &*r.plural) < (group, plural));
        let rest = &self.0[start..];
        &rest[..rest.partition_point(|r| (&*r.group, &*r.plural) == (group, plural))]
    }

    /// The resource whose objects have this group, version and kind.
    #[must_use]
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Served>> {
        self.0.iter().find(|r| r.group == group && r.version == version && r.kind == kind)
    }

    /// The groups but the core group, in order.
    #[must_use]
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> =
            self.0.iter().map(|r| r.group.as_ref()).filter(|g| !g.is_empty()).collect();
        groups.dedup();
        groups
    }

    /// The resources of a group.
    pub fn of_group(&self, group: &str) -> impl Iterator<Item = &Arc<Served>> {
        self.0.iter().filter(move |r| r.group == group)
    }
}

/// Which resources are served now; requests take the state of the moment with them.
pub struct Catalog {
    now: RwLock<Arc<Resources>>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new()
    }
}

impl Catalog {
    /// The kinds that are built in.
    #[must_use]
    pub fn new() -> Self {
        Self { now: RwLock::new(Arc::new(Resources(built_in()))) }
    }

    /// What is served now.
    #[must_use]
    pub fn now(&self) -> Arc<Resources> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn built_in() -> Vec<Arc<Served>> {
    let mut served: Vec<Arc<Served>> = Vec::new();
    for resource in resources::resources() {
        let stored_as = (resource.group != resource.storage_group())
            .then(|| {
                let stored =
                    |s: &&Arc<Served>| s.group == resource.storage_group() && s.plural == resource.plural;
                served.iter().find(stored).cloned()
            })
            .flatten();
        served.push(Arc::new(Served::built_in(resource, stored_as)));
    }
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_both_groups_are_stored_as_one() {
        let resources = Catalog::new().now();
        let new = resources.find("events.k8s.io", "v1", "events").unwrap();
        let core = resources.find("", "v1", "events").unwrap();
        assert!(new.is_converted() && !core.is_converted());
        assert_eq!(new.stored(), *core);
        assert_eq!(core.stored(), *core);
    }

    #[test]
    fn groups_are_listed_once() {
        let resources = Catalog::new().now();
        let mut groups = resources.groups();
        let count = groups.len();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups.len(), count);
        assert!(groups.contains(&"storage.k8s.io"));
    }
}
