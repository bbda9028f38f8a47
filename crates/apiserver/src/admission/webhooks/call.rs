//! One call of a webhook.

use std::time::Instant;

use super::hook::{Hook, SideEffects};
use super::review::{Answer, Question};
use crate::access::audit::annotations::annotate;
use crate::admission::attempt::Attempt;
use crate::admission::wanted::Wanted;
use crate::metrics::Outcome;
use crate::registry::{Registry, text};
use crate::status::ApiError;

/// Why a webhook did not answer.
#[derive(Debug)]
pub enum Failure {
    /// It could not be asked, or what it said is no answer: a matter of its `failurePolicy`.
    Calling(String),
    /// It must not be asked about this.
    Refused(ApiError),
}

impl Hook {
    /// Asks about a request, and counts what comes of it.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn ask(
        &self,
        registry: &Registry,
        attempt: &Attempt,
        wanted: &Wanted,
        mutating: bool,
    ) -> Result<Answer, Failure> {
        let since = Instant::now();
        let answer = self.exchange(registry, attempt, wanted, mutating).await;
        let outcome = match &answer {
            Ok(answer) if answer.allowed => Outcome::Allowed,
            Ok(answer) => Outcome::Refused(answer.result["code"].as_u64().unwrap_or_default().max(400)),
            Err(Failure::Calling(_)) if self.optional => Outcome::DoneWithout,
            Err(_) => Outcome::Failed,
        };
        let (sort, operation) = (if mutating { "admit" } else { "validating" }, attempt.operation.name());
        registry.dynamic().decisions().hook(&self.name, sort, operation, outcome, since.elapsed());
        answer
    }

    async fn exchange(
        &self,
        registry: &Registry,
        attempt: &Attempt,
        wanted: &Wanted,
        mutating: bool,
    ) -> Result<Answer, Failure> {
        if attempt.dry_run {
            match self.side_effects {
                SideEffects::None => {}
                SideEffects::Unsaid => return Err(Failure::Calling("Webhook SideEffects is nil".to_owned())),
                SideEffects::Some => {
                    let why = format!("admission webhook {:?} does not support dry run", self.name);
                    return Err(Failure::Refused(ApiError::BadRequest(why)));
                }
            }
        }
        let question = Question::new(&self.versions, attempt, wanted).map_err(Failure::Calling)?;
        let endpoint = self
            .endpoint
            .as_ref()
            .map_err(|why| Failure::Calling(format!("could not get REST client: {why}")))?;
        let answer = endpoint.post(registry, &question.body, self.timeout).await;
        let answer = answer.map_err(|why| Failure::Calling(format!("failed to call webhook: {why}")))?;
        let answer = question.read(&answer, mutating).map_err(Failure::Calling)?;
        for (key, value) in &answer.annotations {
            annotate(format!("{}/{key}", self.name), text(value));
        }
        Ok(answer)
    }

    /// What a failed call comes to: nothing, where it can be done without the webhook; `note` is the key under which the
    /// request's notes say so.
    ///
    /// # Errors
    /// The refusal of the request.
    pub(super) fn failed(&self, failure: Failure, note: String) -> Result<(), ApiError> {
        match failure {
            Failure::Refused(error) => Err(error),
            Failure::Calling(why) if self.optional => {
                tracing::warn!(webhook = self.name, why, "a webhook is done without");
                annotate(note, self.name.as_str());
                Ok(())
            }
            Failure::Calling(why) => {
                Err(ApiError::Internal(format!("failed calling webhook {:?}: {why}", self.name)))
            }
        }
    }
}
