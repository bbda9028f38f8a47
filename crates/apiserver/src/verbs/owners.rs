//! Who owns the fields of what is written: `metadata.managedFields`.

use serde_json::Value;
use std::sync::LazyLock;
use trine_objects::apply::{ApplyError, FieldManager, Filter, OneVersion, Set};
use trine_objects::{schema, time};

use crate::catalog::Served;
use crate::registry::now_unix;
use crate::status::ApiError;

/// Through the object itself its status is not written where that has a path of its own.
static NOT_STATUS: LazyLock<Filter> = LazyLock::new(|| Filter::Without(Set::of_fields(&[&["status"]])));
static STATUS: LazyLock<Filter> = LazyLock::new(|| Filter::Only(Set::of_fields(&[&["status"]])));
/// Through a node's status its labels and annotations are written, too.
static NODE_STATUS: LazyLock<Filter> = LazyLock::new(|| {
    Filter::Only(Set::of_fields(&[&["status"], &["metadata", "labels"], &["metadata", "annotations"]]))
});
static ALL: Filter = Filter::ALL;

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
    /// The resource, as it is stored.
    pub resource: &'a Served,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
}

impl Place<'_> {
    fn filter(self) -> &'static Filter {
        match self.subresource {
            "status" if self.resource.plural == "nodes" => &NODE_STATUS,
            "status" => &STATUS,
            "" if self.resource.subresource("status").is_some() => &NOT_STATUS,
            _ => &ALL,
        }
    }

    fn with<R>(self, act: impl FnOnce(FieldManager<'_>) -> R) -> Option<R> {
        let resource = self.resource;
        let schema = schema::of(&resource.group, &resource.version, &resource.kind)?.into();
        let (api_version, now) = (resource.api_version(), time::format(now_unix()));
        Some(act(FieldManager {
            versions: &OneVersion { api_version: &api_version, schema },
            api_version: &api_version,
            kind: &resource.kind,
            subresource: self.subresource,
            filter: self.filter(),
            now: &now,
        }))
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
        let no_schema = || ApiError::Failed(format!("no corresponding type for {}", self.resource.kind));
        applied.ok_or_else(no_schema)?.map_err(|error| {
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
