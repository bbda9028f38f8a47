//! Whether a write fits what else is in the cluster. A chain in a fixed order, run for every write that a client asks for.
//!
//! - [`mutate`] before the kind has its say: what is filled in from other objects
//! - [`validate`] after it, when the object is as it will be written: what is refused
//! - first of all who writes: [`crate::access::admission`]
//! - `namespace` namespaces that the cluster needs stay
//! - `limits` LimitRanges: what containers ask for unless they say it, and bounds
//! - `pod_security` how much a Pod may ask of its node
//! - `quota` how much a namespace may hold; the last of all, because it counts

mod limits;
mod namespace;
mod pod_security;
mod quota;

use serde_json::Value;

use crate::access::admission as access;
use crate::catalog::Served;
use crate::registry::{Registry, text};
use crate::status::ApiError;

/// A write that is about to be done.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// Of what, as it is stored.
    pub resource: &'a Served,
    /// Below the object; empty for the object itself.
    pub subresource: &'a str,
    /// The object as it is stored; `None` when it is made.
    pub old: Option<&'a Value>,
    /// Whether nothing will be written: no step may leave a trace.
    pub dry_run: bool,
}

impl Change<'_> {
    /// Whether this is about a resource itself, not about a part of it.
    #[must_use]
    pub fn is_of(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.resource.group == group && self.resource.plural == plural
    }

    /// The refusal of this change to `object`.
    #[must_use]
    pub fn denied(&self, object: &Value, why: impl Into<String>) -> ApiError {
        let name = text(&object["metadata"]["name"]).to_owned();
        ApiError::Denied { resource: self.resource.qualified(), name, why: why.into() }
    }
}

/// Fills in what comes from other objects. `new` has its defaults, and keeps what this path may not change. A step that adds
/// what has defaults of its own applies them.
///
/// # Errors
/// [`ApiError::Denied`] by the first step that refuses.
pub async fn mutate(
    registry: &Registry,
    change: &Change<'_>,
    new: &mut Value,
    _warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    access::mutate(registry, change, new).await?;
    limits::mutate(registry, change, new);
    Ok(())
}

/// Refuses what does not fit. `new` is the object as it will be written; `None` when it is deleted.
///
/// # Errors
/// [`ApiError::Denied`] by the first step that refuses.
pub async fn validate(
    registry: &Registry,
    change: &Change<'_>,
    new: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    namespace::validate(change, new)?;
    let Some(new) = new else { return access::delete(registry, change) };
    limits::validate(registry, change, new)?;
    pod_security::validate(registry, change, new, warnings)?;
    quota::validate(registry, change, new).await
}
