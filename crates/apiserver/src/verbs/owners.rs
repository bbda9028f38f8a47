//! Who owns the fields of what is written: `metadata.managedFields`.

use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;
use trine_objects::apply::{ApplyError, FieldManager, Filter, Set, Versions};
use trine_objects::schema::SchemaRef;
use trine_objects::time;

use crate::catalog::{Resources, Served};
use crate::registry::{Registry, now_unix};
use crate::status::ApiError;

/// What of the metadata is written through a status, too: of a built-in kind all that people write, but for what upstream's
/// strategies keep; of a custom one nothing.
pub(super) fn metadata_through_status(resource: &Served) -> &'static [&'static str] {
    if resource.custom().is_some() {
        return &[];
    }
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => &["annotations", "finalizers", "labels"],
        ("apps", "deployments") => &["annotations", "finalizers", "ownerReferences"],
        ("networking.k8s.io", "servicecidrs")
        | ("resource.k8s.io", "devicetaintrules" | "resourceclaims")
        | ("storage.k8s.io", "volumeattachments")
        | ("storagemigration.k8s.io", _) => &[],
        _ => &["annotations", "finalizers", "labels", "ownerReferences"],
    }
}

/// Who owns what a write changes.
#[derive(Clone, Copy)]
pub(super) enum Ownership<'a> {
    /// This manager, from now on.
    Record(&'a str),
    /// The object already says it: it was applied.
    Settled,
}

/// Where something is written.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// Knows the other versions.
    pub registry: &'a Registry,
    /// The resource, as it is stored.
    pub resource: &'a Served,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
}

impl Place<'_> {
    /// What counts of a write here. The status is not written through the object itself where it has a path of its own.
    fn filter(self) -> Filter {
        let status: &[&str] = &["status"];
        match self.subresource {
            "status" => {
                let metadata: Vec<[&str; 2]> =
                    metadata_through_status(self.resource).iter().map(|field| ["metadata", *field]).collect();
                let fields: Vec<&[&str]> = metadata.iter().map(|f| &f[..]).chain([status]).collect();
                Filter::Only(Set::of_fields(&fields))
            }
            "" if self.resource.subresource("status").is_some() => Filter::Without(Set::of_fields(&[status])),
            _ => Filter::ALL,
        }
    }

    fn with<R>(self, act: impl FnOnce(FieldManager<'_>) -> R) -> R {
        let resource = self.resource;
        let (api_version, now) = (resource.api_version(), time::format(now_unix()));
        let family = Family { resource, api_version: &api_version, all: self.registry.catalog().now() };
        act(FieldManager {
            versions: &family,
            api_version: &api_version,
            kind: &resource.kind,
            subresource: self.subresource,
            filter: &self.filter(),
            now: &now,
        })
    }

    /// Records that `manager` changed `old` (null: there was nothing) into `new`.
    pub(super) fn record(self, old: &Value, new: &mut Value, manager: &str) {
        self.with(|fields| fields.update(old, new, manager));
    }

    /// Applies a configuration.
    ///
    /// # Errors
    /// [`ApiError::ApplyConflict`] if others own what it changes, unless forced.
    pub(super) fn apply(
        self,
        live: &Value,
        config: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, ApiError> {
        let applied = self.with(|fields| fields.apply(live, config, manager, force));
        applied.map_err(|error| {
            let message = error.to_string();
            match error {
                ApplyError::Conflicts(conflicts) => ApiError::ApplyConflict {
                    message,
                    causes: conflicts.iter().map(|c| (c.message(), c.field())).collect(),
                },
                ApplyError::BadRequest(_) => ApiError::BadRequest(message),
                ApplyError::Failed(_) => ApiError::Failed(message),
            }
        })
    }
}

/// The versions of a kind that are served now.
struct Family<'a> {
    resource: &'a Served,
    api_version: &'a str,
    all: Arc<Resources>,
}

impl Family<'_> {
    fn sibling(&self, api_version: &str) -> Option<&Served> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = self.all.find(group, version, &self.resource.plural)?;
        (found.storage_group() == self.resource.storage_group()).then_some(found)
    }
}

impl Versions for Family<'_> {
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'_>> {
        let own = api_version == self.api_version;
        let served = if own { self.resource } else { self.sibling(api_version)? };
        Some(served.schema())
    }

    fn convert<'v>(&self, object: &'v Value, to: &str) -> Option<Cow<'v, Value>> {
        if to != self.api_version {
            self.sibling(to)?;
        }
        let mut converted = object.clone();
        if self.resource.custom().is_none() {
            let is = object["apiVersion"].as_str().unwrap_or_default();
            if let Some(from) = self.sibling(is) {
                from.to_stored(&mut converted);
            }
            if let Some(wanted) = self.sibling(to) {
                wanted.from_stored(&mut converted);
            }
        }
        converted["apiVersion"] = to.into();
        Some(Cow::Owned(converted))
    }
}
