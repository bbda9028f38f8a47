//! Webhooks that refuse writes. They are asked all at once; the first in their order that refuses is heard.

use std::sync::Arc;

use futures::future::join_all;
use serde_json::Value;

use super::Hook;
use super::review::refusal;
use crate::admission::attempt::Attempt;
use crate::registry::Registry;
use crate::status::ApiError;

/// Asks those that want to be asked about a request.
///
/// # Errors
/// The first refusal.
pub async fn validate(
    registry: &Registry,
    hooks: &[Arc<Hook>],
    attempt: &Attempt,
    object: Option<&Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let mut asked = Vec::new();
    for hook in hooks {
        if let Some(wanted) = hook.wants(registry, attempt, object, old).await? {
            asked.push((hook, wanted));
        }
    }
    let calls = asked.iter().map(|(hook, wanted)| hook.ask(registry, attempt, wanted, false));
    let answers = join_all(calls).await;
    let mut refused = None;
    for (i, (answer, (hook, _))) in answers.into_iter().zip(&asked).enumerate() {
        let done = match answer {
            Ok(answer) => {
                warnings.extend(answer.warnings);
                if answer.allowed { Ok(()) } else { Err(refusal(&hook.name, answer.result)) }
            }
            Err(failure) => hook.failed(
                failure,
                format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{i}"),
            ),
        };
        if let Err(error) = done {
            refused.get_or_insert(error);
        }
    }
    refused.map_or(Ok(()), Err)
}
