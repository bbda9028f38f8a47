//! Namespaces that the cluster itself lives in are not deleted.

use serde_json::Value;

use super::Change;
use crate::registry::text;
use crate::status::ApiError;

/// These stay. Upstream: the immortal namespaces of `NamespaceLifecycle`.
const NEEDED: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Refuses the deletion of a needed namespace.
pub fn validate(change: &Change<'_>, new: Option<&Value>) -> Result<(), ApiError> {
    match (change.old, new) {
        (Some(old), None)
            if change.is_of("", "namespaces") && NEEDED.contains(&text(&old["metadata"]["name"])) =>
        {
            Err(change.denied(old, "this namespace may not be deleted"))
        }
        _ => Ok(()),
    }
}
