//! Who owns the fields of what is written: `metadata.managedFields`.

use serde_json::Value;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
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

    /// Works out ownership. What it needs in another version is converted, and then it is worked out again: it is pure.
    async fn with<R>(self, mut act: impl FnMut(FieldManager<'_>) -> R) -> Result<R, ApiError> {
        let resource = self.resource;
        let (api_version, now) = (resource.api_version(), time::format(now_unix()));
        let (filter, all) = (self.filter(), self.registry.catalog().now());
        let mut known = Converted::new();
        loop {
            let missing = {
                let family = Family {
                    resource,
                    api_version: &api_version,
                    all: &all,
                    known: &known,
                    missing: RefCell::default(),
                };
                let done = act(FieldManager {
                    versions: &family,
                    api_version: &api_version,
                    kind: &resource.kind,
                    subresource: self.subresource,
                    filter: &filter,
                    now: &now,
                });
                let missing = family.missing.into_inner();
                if missing.is_empty() {
                    return Ok(done);
                }
                missing
            };
            let Some(converter) = resource.converter() else {
                return Err(ApiError::Internal("nothing converts".to_owned()));
            };
            for (object, to) in missing {
                let given = serde_json::from_str(&object).map_err(|e| ApiError::Internal(e.to_string()))?;
                let converted = converter.convert(self.registry, vec![given], &to).await?;
                known.insert((object, to), converted.into_iter().next().unwrap_or_default());
            }
        }
    }

    /// Records that `manager` changed `old` (null: there was nothing) into `new`.
    ///
    /// # Errors
    /// [`ApiError::Failed`] if a webhook does not convert what others own.
    pub(super) async fn record(self, old: &Value, new: &mut Value, manager: &str) -> Result<(), ApiError> {
        let given = std::mem::take(new);
        *new = self
            .with(|fields| {
                let mut new = given.clone();
                fields.update(old, &mut new, manager);
                new
            })
            .await?;
        Ok(())
    }

    /// Applies a configuration.
    ///
    /// # Errors
    /// [`ApiError::ApplyConflict`] if others own what it changes, unless forced.
    pub(super) async fn apply(
        self,
        live: &Value,
        config: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, ApiError> {
        let applied = self.with(|fields| fields.apply(live, config, manager, force)).await?;
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

/// Objects in other versions, by their text and that version.
type Converted = HashMap<(String, String), Value>;

/// The versions of a kind that are served now.
struct Family<'a> {
    resource: &'a Served,
    api_version: &'a str,
    all: &'a Resources,
    /// What a webhook converted.
    known: &'a Converted,
    /// What it has to convert yet.
    missing: RefCell<Vec<(String, String)>>,
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
        if self.resource.converter().is_some() && object["kind"].is_string() {
            let key = (object.to_string(), to.to_owned());
            if let Some(known) = self.known.get(&key) {
                return Some(Cow::Owned(known.clone()));
            }
            self.missing.borrow_mut().push(key);
            return None;
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
