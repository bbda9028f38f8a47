//! Webhooks that change what is written. They are asked one after the other, each about what those before it left; when
//! something changed after one that minds, it is asked once more.

use std::sync::Arc;

use serde_json::{Value, json};
use trine_objects::patch;

use super::Hook;
use super::review::refusal;
use crate::access::audit::annotations::{annotate, annotate_body};
use crate::admission::again::Again;
use crate::admission::attempt::Attempt;
use crate::admission::patched::take_over;
use crate::registry::Registry;
use crate::status::ApiError;

/// A webhook's configuration and name.
pub type Id = (String, String);

/// Asks those that want to be asked about a request. `round` 0 asks all; 1 those that `again` names.
///
/// # Errors
/// The first refusal.
pub async fn mutate(
    registry: &Registry,
    hooks: &[Arc<Hook>],
    attempt: &Attempt,
    (object, old): (&mut Option<Value>, Option<&Value>),
    (round, again): (usize, &mut Again<Id>),
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let wanted_again = again.take();
    for (i, hook) in hooks.iter().enumerate() {
        let id = (hook.configuration.clone(), hook.name.clone());
        if round > 0 && !wanted_again.contains(&id) {
            continue;
        }
        let Some(wanted) = hook.wants(registry, attempt, object.as_ref(), old).await? else { continue };
        let note = |what: &str| format!("{what}.admission.k8s.io/round_{round}_index_{i}");
        let mut changed = false;
        match hook.ask(registry, attempt, &wanted, true).await {
            Ok(answer) => {
                warnings.extend(answer.warnings);
                if !answer.allowed {
                    return Err(refusal(&hook.name, answer.result));
                }
                if let Some(patch) = answer.patch {
                    let (Some(object), Some(mut shown)) = (object.as_mut(), wanted.object) else {
                        return Err(ApiError::Internal(format!(
                            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                            hook.name
                        )));
                    };
                    patch::json(&mut shown, &patch).map_err(|e| ApiError::Internal(e.to_string()))?;
                    changed = take_over(registry, attempt, &wanted.version, shown, object).await?;
                    let value = json!({"configuration": hook.configuration, "webhook": hook.name, "patch": patch,
                        "patchType": "JSONPatch"});
                    annotate_body(note("patch.webhook"), value.to_string());
                }
            }
            Err(failure) => hook.failed(failure, note("failed-open.mutation.webhook"))?,
        }
        let value = json!({"configuration": hook.configuration, "mutated": changed, "webhook": hook.name});
        annotate(note("mutation.webhook"), value.to_string());
        if changed {
            again.note_change();
        }
        if hook.again {
            again.asked(id);
        }
    }
    Ok(())
}
