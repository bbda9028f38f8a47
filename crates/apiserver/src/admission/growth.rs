//! Claims grow only where their class lets them. Upstream: the plugin `PersistentVolumeClaimResize`, whose refusal is a 403.

use serde_json::Value;

use super::Change;
use crate::kinds::storage::{class_of, wants_more};
use crate::registry::Registry;
use crate::status::ApiError;

/// Upstream's words.
const WHY: &str = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";

/// Refuses the growth of a claim whose class does not allow it.
pub fn validate(registry: &Registry, change: &Change<'_>, new: &Value) -> Result<(), ApiError> {
    let Some(old) = change.old.filter(|_| change.is_of("", "persistentvolumeclaims")) else { return Ok(()) };
    if !wants_more(new, old) {
        return Ok(());
    }
    let classes = registry.resource("storage.k8s.io", "v1", "storageclasses")?;
    let class = registry.get(&classes, "", class_of(old)).ok();
    let allows = class.is_some_and(|class| {
        serde_json::from_slice::<Value>(class.json()).is_ok_and(|c| c["allowVolumeExpansion"] == true)
    });
    if allows { Ok(()) } else { Err(change.denied(old, WHY)) }
}
