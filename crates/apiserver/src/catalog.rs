//! What is served at this moment: the kinds that are built in, and those that people defined.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use trine_objects::resources::{self, Resource};
use trine_objects::schema::{self, SchemaRef};
use trine_objects::versions;

use crate::custom::{Conversion, Converter, Definition, Version};
use crate::kinds::{ColumnOf, Hooks, hooks};
use crate::runtime_config::RuntimeConfig;
use crate::verbs::scale::Paths;

/// A resource as it is served: its names and verbs ([`Resource`], to which it derefs), and what is particular to its kind.
pub struct Served {
    resource: Resource,
    particulars: Particulars,
    stored_as: Option<Arc<Served>>,
    /// The webhook that converts between the versions of a definition, if it has one.
    converter: Option<Arc<Converter>>,
}

/// What is particular to a kind.
enum Particulars {
    BuiltIn(&'static dyn Hooks),
    Custom(Arc<Version>),
}

impl Served {
    fn built_in(resource: &Resource, stored_as: Option<Arc<Served>>) -> Self {
        let particulars = Particulars::BuiltIn(hooks(&resource.group, &resource.plural));
        Self { resource: resource.clone(), particulars, stored_as, converter: None }
    }

    /// What is particular to its kind.
    #[must_use]
    pub fn hooks(&self) -> &dyn Hooks {
        match &self.particulars {
            Particulars::BuiltIn(hooks) => *hooks,
            Particulars::Custom(version) => &**version,
        }
    }

    /// The version of a definition that this is, unless the kind is built in.
    #[must_use]
    pub fn custom(&self) -> Option<&Arc<Version>> {
        match &self.particulars {
            Particulars::BuiltIn(_) => None,
            Particulars::Custom(version) => Some(version),
        }
    }

    /// The kind of its lists.
    #[must_use]
    pub fn list_kind(&self) -> Cow<'_, str> {
        match &self.particulars {
            Particulars::BuiltIn(_) => format!("{}List", self.kind).into(),
            Particulars::Custom(version) => version.list_kind.as_str().into(),
        }
    }

    /// The schema of its objects.
    #[must_use]
    pub fn schema(&self) -> SchemaRef<'_> {
        match &self.particulars {
            Particulars::BuiltIn(_) => {
                schema::of(&self.group, &self.version, &self.kind).map_or(SchemaRef::ANY, SchemaRef::from)
            }
            Particulars::Custom(version) => SchemaRef::from(&version.schema),
        }
    }

    /// The columns of its table.
    #[must_use]
    pub fn columns(&self) -> Cow<'_, [ColumnOf<'_>]> {
        match &self.particulars {
            Particulars::BuiltIn(hooks) => Cow::Borrowed(hooks.columns()),
            Particulars::Custom(version) => Cow::Owned(version.columns()),
        }
    }

    /// An object's cells, one for each column.
    #[must_use]
    pub fn row(&self, object: &Value, now_unix: i64) -> Vec<Value> {
        match &self.particulars {
            Particulars::BuiltIn(hooks) => hooks.row(object, now_unix),
            Particulars::Custom(version) => version.row(object, now_unix),
        }
    }

    /// Whether stored bytes may be served as they are.
    #[must_use]
    pub fn is_served_as_stored(&self, bytes: &[u8]) -> bool {
        match &self.particulars {
            Particulars::BuiltIn(_) => self.stored_as.is_none(),
            // Keys are in order, so the version comes first.
            Particulars::Custom(version) => {
                let head = bytes
                    .strip_prefix(b"{\"apiVersion\":\"")
                    .and_then(|b| b.strip_prefix(version.api_version.as_bytes()));
                !version.has_defaults && head.is_some_and(|rest| rest.first() == Some(&b'"'))
            }
        }
    }

    /// A stored object as this resource shows it.
    pub fn from_stored(&self, object: &mut Value) {
        match &self.particulars {
            Particulars::BuiltIn(_) if self.is_converted() => versions::from_stored(&self.resource, object),
            Particulars::BuiltIn(_) => {}
            Particulars::Custom(version) => {
                object["apiVersion"] = version.api_version.as_str().into();
                version.schema.defaults(object);
            }
        }
    }

    /// An object of this resource as it is stored.
    pub fn to_stored(&self, object: &mut Value) {
        match (&self.particulars, &self.stored_as) {
            (Particulars::BuiltIn(_), Some(_)) => versions::to_stored(&self.resource, object),
            (Particulars::Custom(_), Some(stored)) => object["apiVersion"] = stored.api_version().into(),
            (_, None) => {}
        }
    }

    /// The webhook that converts between its versions.
    #[must_use]
    pub fn converter(&self) -> Option<&Arc<Converter>> {
        self.converter.as_ref()
    }

    /// The resource as which its objects are stored: Events of `events.k8s.io` are those of the core group.
    #[must_use]
    pub fn stored(self: &Arc<Self>) -> Arc<Self> {
        self.stored_as.as_ref().unwrap_or(self).clone()
    }

    /// Where its objects keep their numbers of replicas.
    #[must_use]
    pub fn scale_paths(&self) -> Paths {
        match &self.particulars {
            Particulars::BuiltIn(_) => Paths::built_in(),
            Particulars::Custom(version) => version.scale.as_ref().map_or_else(Paths::built_in, |scale| {
                Paths::of(&scale.spec_replicas, &scale.status_replicas, scale.selector.as_deref())
            }),
        }
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

    /// The resources of a group.
    pub fn of_group(&self, group: &str) -> impl Iterator<Item = &Arc<Served>> {
        self.0.iter().filter(move |r| r.group == group)
    }
}

/// Which resources are served now; requests take the state of the moment with them.
pub struct Catalog {
    chosen: RuntimeConfig,
    now: watch::Sender<Arc<Resources>>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new()
    }
}

impl Catalog {
    /// The kinds that are built in, in the versions that are served by default.
    #[must_use]
    pub fn new() -> Self {
        Self::of(RuntimeConfig::default())
    }

    /// The kinds that are built in.
    #[must_use]
    pub fn of(chosen: RuntimeConfig) -> Self {
        Self { now: watch::Sender::new(Arc::new(Resources(built_in(&chosen)))), chosen }
    }

    /// What is served now.
    #[must_use]
    pub fn now(&self) -> Arc<Resources> {
        Arc::clone(&self.now.borrow())
    }

    /// Tells of every change of what is served.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Arc<Resources>> {
        self.now.subscribe()
    }

    /// Serves exactly these definitions beside what is built in.
    pub fn define<'a>(&self, definitions: impl IntoIterator<Item = &'a Definition>) {
        let mut served = built_in(&self.chosen);
        for definition in definitions {
            served.extend(versions(definition));
        }
        // Stable: versions of a resource stay in the order of their definition.
        served.sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural)));
        self.now.send_replace(Arc::new(Resources(served)));
    }
}

/// The served versions of a definition.
fn versions(definition: &Definition) -> Vec<Arc<Served>> {
    let converter = match &definition.conversion {
        Conversion::None => None,
        Conversion::Webhook(converter) => Some(Arc::clone(converter)),
    };
    let make = |version: &Arc<Version>, stored_as| {
        let resource = definition.resource(version);
        let (particulars, converter) = (Particulars::Custom(Arc::clone(version)), converter.clone());
        Arc::new(Served { resource, particulars, stored_as, converter })
    };
    let Some(storage) = definition.storage() else { return Vec::new() };
    let stored = make(storage, None);
    let served = definition.versions.iter().filter(|v| v.served);
    served.map(|v| if v.storage { Arc::clone(&stored) } else { make(v, Some(Arc::clone(&stored))) }).collect()
}

fn built_in(chosen: &RuntimeConfig) -> Vec<Arc<Served>> {
    let mut served: Vec<Arc<Served>> = Vec::new();
    for resource in resources::resources().iter().filter(|r| chosen.serves(r)) {
        let stored = |s: &&Arc<Served>| {
            s.group == resource.storage_group()
                && s.version == resource.storage_version()
                && s.plural == resource.plural
        };
        let stored_as = resource.is_stored_otherwise().then(|| served.iter().find(stored).cloned()).flatten();
        served.push(Arc::new(Served::built_in(resource, stored_as)));
    }
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_devices_are_stored_as_one_in_all_versions() {
        let find =
            |now: &Resources, version: &str| now.find("resource.k8s.io", version, "resourceclaims").cloned();
        let now = Catalog::new().now();
        assert!(find(&now, "v1").is_some() && find(&now, "v1beta1").is_none(), "off by default");
        let now = Catalog::of("api/beta".parse().unwrap()).now();
        let stored = find(&now, "v1").unwrap();
        for version in ["v1beta2", "v1beta1"] {
            let other = find(&now, version).unwrap();
            assert!(other.is_converted() && other.stored() == stored, "{version}");
        }
    }

    #[test]
    fn events_of_both_groups_are_stored_as_one() {
        let resources = Catalog::new().now();
        let new = resources.find("events.k8s.io", "v1", "events").unwrap();
        let core = resources.find("", "v1", "events").unwrap();
        assert!(new.is_converted() && !core.is_converted());
        assert_eq!(new.stored(), *core);
        assert_eq!(core.stored(), *core);
    }
}
