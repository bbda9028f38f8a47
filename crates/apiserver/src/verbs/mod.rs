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

use serde_json::Value;

use crate::catalog::Served;
use crate::kinds::{Cx, Invalid, validate};
use crate::registry::text;
use crate::status::ApiError;

/// An object with the warnings that go with it.
#[derive(Debug)]
pub struct Written {
    /// The object as it is now.
    pub object: Value,
    /// For the client's eyes.
    pub warnings: Vec<String>,
}

/// [`ApiError::Invalid`] about an object.
fn invalid(resource: &Served, object: &Value, causes: Invalid) -> ApiError {
    let name = text(&object["metadata"]["name"]).to_owned();
    ApiError::Invalid { kind: resource.kind.to_string(), group: resource.group.to_string(), name, causes }
}

/// Asks the kind to prepare an update of a defaulted object, then whether the result is right.
fn prepare_update(
    resource: &Served,
    part: &str,
    new: &mut Value,
    old: &Value,
    cx: &mut Cx<'_>,
) -> Result<(), ApiError> {
    let hooks = resource.hooks();
    hooks.prepare_update(new, old, cx).map_err(|causes| invalid(resource, new, causes))?;
    let causes = validate(resource, part, new, Some(old));
    if causes.is_empty() { Ok(()) } else { Err(invalid(resource, new, Invalid(causes))) }
}
