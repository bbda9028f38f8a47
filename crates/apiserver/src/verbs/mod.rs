//! What may be done to objects, the same for all kinds. What differs is asked of [`crate::kinds`].
//!
//! - [`create`], [`update`] (also patches), [`apply`], [`delete`], [`list`] and [`watch`]
//! - [`options`] what a request says beside the object that it writes
//! - [`read_options`] what lists and watches ask for
//! - [`dependents`] what becomes of what a deleted object owns
//! - [`part`] what is done below one Pod or namespace: binding, finalize; [`evict`]; [`scale`]

pub mod apply;
pub mod create;
pub mod delete;
pub mod dependents;
pub mod evict;
pub mod list;
pub mod options;
mod owners;
pub mod part;
pub mod read_options;
pub mod scale;
pub mod update;
pub mod watch;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::asked::asked;
use crate::catalog::Served;
use crate::kinds::{Cause, CauseKind, Cx, Invalid, validate};
use crate::registry::{Registry, text};
use crate::status::ApiError;

/// An object with the warnings that go with it.
#[derive(Debug)]
pub struct Written {
    /// The object as it is now.
    pub object: Value,
    /// The same in canonical bytes, if they are at hand.
    pub json: Option<Bytes>,
    /// For the client's eyes.
    pub warnings: Vec<String>,
}

/// [`ApiError::Invalid`] about an object.
fn invalid(resource: &Served, object: &Value, causes: Invalid) -> ApiError {
    let name = text(&object["metadata"]["name"]).to_owned();
    if let Some(denied) = causes.0.iter().find(|cause| cause.kind == CauseKind::Denied) {
        return ApiError::Denied { resource: resource.qualified(), name, why: denied.message.clone() };
    }
    ApiError::Invalid { kind: resource.kind.to_string(), group: resource.group.to_string(), name, causes }
}

/// Everything wrong with an object that is about to be stored: of a custom kind it is judged under the version that was asked
/// for.
async fn judge(
    registry: &Registry,
    resource: &Served,
    part: &str,
    new: &Value,
    old: Option<&Value>,
) -> Result<Vec<Cause>, ApiError> {
    let version = asked().map(|asked| Arc::clone(&asked.resource));
    let other = version.filter(|v| v.custom().is_some() && **v != *resource && *v.stored() == *resource);
    let Some(version) = other else { return Ok(validate(resource, part, new, old)) };
    let mut shown = new.clone();
    version.show(registry, &mut shown).await?;
    let Some(old) = old else { return Ok(validate(&version, part, &shown, None)) };
    let mut before = old.clone();
    version.show(registry, &mut before).await?;
    Ok(validate(&version, part, &shown, Some(&before)))
}

/// Asks the kind to prepare an update of a defaulted object, then whether the result is right.
async fn prepare_update(
    registry: &Registry,
    resource: &Served,
    part: &str,
    new: &mut Value,
    old: &Value,
    cx: &mut Cx<'_>,
) -> Result<(), ApiError> {
    let hooks = resource.hooks();
    hooks.prepare_update(new, old, cx).map_err(|causes| invalid(resource, new, causes))?;
    let causes = judge(registry, resource, part, new, Some(old)).await?;
    if causes.is_empty() { Ok(()) } else { Err(invalid(resource, new, Invalid(causes))) }
}
