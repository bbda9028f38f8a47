//! What somebody made of an object becomes the object.

use std::sync::Arc;

use serde_json::Value;
use trine_objects::json::Duplicates;

use super::attempt::Attempt;
use crate::catalog::Served;
use crate::registry::Registry;
use crate::request::{FieldValidation, check};
use crate::status::ApiError;
use crate::verbs::create::fit_to_path;
use crate::verbs::scale;

/// Takes `changed`, an object under a version, over into `object`, which is in the form of the attempt: its fields must be known
/// and have their types, and what has defaults has them. Says whether anything is different now.
///
/// # Errors
/// [`ApiError::Internal`] if it is no such object any more.
pub async fn take_over(
    registry: &Registry,
    attempt: &Attempt,
    version: &Arc<Served>,
    mut changed: Value,
    object: &mut Value,
) -> Result<bool, ApiError> {
    let internal = |e: ApiError| ApiError::Internal(e.to_string());
    if !attempt.stored {
        let different = changed != *object;
        *object = changed;
        return Ok(different);
    }
    let before = object.clone();
    if attempt.subresource == "scale" {
        scale::set(version, object, &changed, &version.scale_paths())?;
        return Ok(*object != before);
    }
    check(version, &mut changed, Duplicates::default(), FieldValidation::Ignore).map_err(internal)?;
    let namespace = if version.namespaced { attempt.namespace.as_str() } else { "" };
    fit_to_path(version, namespace, &mut changed).map_err(internal)?;
    version.store(registry, &mut changed).await?;
    attempt.resource.stored().hooks().defaults(&mut changed);
    *object = changed;
    Ok(*object != before)
}
