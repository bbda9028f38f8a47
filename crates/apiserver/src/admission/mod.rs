//! Whether a write fits what else is in the cluster. A chain in a fixed order, run for every write that a client asks for.
//!
//! - [`mutate`] before the kind has its say: what is filled in from other objects, and by those who are configured to
//! - [`validate`] after it, when the object is as it will be written: what is refused
//! - [`act`] the same for what is done to a part of an object, and no object is written: a command, a binding
//! - first of all who writes: [`crate::access::admission`]
//! - `namespace` namespaces that the cluster needs stay
//! - `devices` who may have, give and speak of devices
//! - `growth` claims grow where their class lets them
//! - `limits` LimitRanges: what containers ask for unless they say it, and bounds
//! - `pod_security` how much a Pod may ask of its node
//! - [`dynamic`] who is configured to decide: [`policies`] by expressions, then [`webhooks`]
//! - `quota` how much a namespace may hold; the last of all, because it counts
//!
//! Those who are configured see a request as an [`attempt`]; `matching` and `conditions` say which ones they want to see,
//! `wanted` is what they are shown, `patched` what becomes of their changes, and `again` who is asked once more because of them.

mod again;
pub mod attempt;
mod conditions;
mod devices;
pub mod dynamic;
mod growth;
mod limits;
mod matching;
mod namespace;
mod patched;
mod pod_security;
pub mod policies;
mod quota;
mod wanted;
pub mod webhooks;

use serde_json::Value;

use self::attempt::{Attempt, Operation};
use crate::access::admission as access;
use crate::asked::asked;
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
/// what has defaults of its own applies them. Says whether somebody who is configured to changed something: what this path may
/// not change has to be looked at again then.
///
/// # Errors
/// The refusal of the first step that refuses.
pub async fn mutate(
    registry: &Registry,
    change: &Change<'_>,
    new: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<bool, ApiError> {
    fill(registry, change, new).await?;
    let Some(mut mutation) = registry.dynamic().mutation(|| Attempt::of(change, Some(&*new))) else {
        return Ok(false);
    };
    let mut object = Some(std::mem::take(new));
    let changed = mutation.round(registry, (&mut object, change.old), warnings).await?;
    if changed && let Some(now) = object.as_mut() {
        fill(registry, change, now).await?;
        mutation.round(registry, (&mut object, change.old), warnings).await?;
    }
    *new = object.unwrap_or_default();
    Ok(changed)
}

/// What the server itself fills in.
async fn fill(registry: &Registry, change: &Change<'_>, new: &mut Value) -> Result<(), ApiError> {
    access::mutate(registry, change, new).await?;
    limits::mutate(registry, change, new);
    Ok(())
}

/// Refuses what does not fit. `new` is the object as it will be written; `None` when it is deleted.
///
/// # Errors
/// The refusal of the first step that refuses.
pub async fn validate(
    registry: &Registry,
    change: &Change<'_>,
    new: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    namespace::validate(change, new)?;
    let attempt = || Attempt::of(change, new);
    let Some(new) = new else {
        access::delete(registry, change)?;
        return decide(registry, attempt, (&mut None, change.old)).await;
    };
    devices::validate(registry, change, new)?;
    growth::validate(registry, change, new)?;
    limits::validate(registry, change, new)?;
    pod_security::validate(registry, change, new, warnings)?;
    registry.dynamic().validate(registry, attempt, (Some(new), change.old), warnings).await?;
    quota::validate(registry, change, new).await
}

/// Asks those who are configured to decide about something that is done to a part of an object. `object` is what is sent; what
/// they make of it counts.
///
/// # Errors
/// The first refusal.
pub async fn act(
    registry: &Registry,
    operation: Operation,
    (part, namespace, name): (&str, &str, &str),
    (object, old): (&mut Value, Option<&Value>),
    dry_run: bool,
) -> Result<(), ApiError> {
    let attempt = || Attempt::of_part(operation, part, (namespace, name), dry_run);
    let mut sent = Some(std::mem::take(object));
    let decided = decide(registry, attempt, (&mut sent, old)).await;
    *object = sent.unwrap_or_default();
    decided
}

/// All who are configured, where nothing else is filled in between. Warnings go with the request.
async fn decide(
    registry: &Registry,
    attempt: impl Fn() -> Option<Attempt>,
    (object, old): (&mut Option<Value>, Option<&Value>),
) -> Result<(), ApiError> {
    let mut warnings = Vec::new();
    let dynamic = registry.dynamic();
    if let Some(mut mutation) = dynamic.mutation(&attempt)
        && mutation.round(registry, (object, old), &mut warnings).await?
    {
        mutation.round(registry, (object, old), &mut warnings).await?;
    }
    dynamic.validate(registry, &attempt, (object.as_ref(), old), &mut warnings).await?;
    if let Some(asked) = asked() {
        asked.warn(warnings);
    }
    Ok(())
}
