//! One webhook, read from its configuration.

use std::time::Duration;

use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::admission::conditions::{Conditions, Met};
use crate::admission::matching::Matching;
use crate::admission::wanted::Wanted;
use crate::registry::{Registry, text};
use crate::status::ApiError;
use crate::webhook::Endpoint;
use trine_cel::Known;

/// How long a webhook may take that does not say.
const TIMEOUT_SECONDS: u64 = 10;

/// One webhook.
#[derive(Debug)]
pub struct Hook {
    /// The name of the configuration.
    pub configuration: String,
    /// Its own.
    pub name: String,
    /// Which requests it is asked about.
    pub matching: Matching,
    /// What must hold of these beside.
    pub conditions: Conditions,
    /// Where it is.
    pub endpoint: Result<Endpoint, String>,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether it is done without where it does not answer.
    pub optional: bool,
    /// Whether it may be asked about what will not be written.
    pub side_effects: SideEffects,
    /// Whether it is asked again when others changed the object after it.
    pub again: bool,
    /// The versions of AdmissionReview that it understands.
    pub versions: Vec<String>,
}

/// Whether a webhook does more than to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideEffects {
    /// Not when it is told that nothing will be written.
    None,
    /// Perhaps.
    Some,
    /// It does not say.
    Unsaid,
}

impl Hook {
    /// The webhooks of a configuration.
    #[must_use]
    pub fn read_all(configuration: &Value) -> Vec<Self> {
        let name = text(&configuration["metadata"]["name"]);
        let hooks = configuration["webhooks"].as_array();
        hooks.into_iter().flatten().map(|hook| Self::read(name, hook)).collect()
    }

    fn read(configuration: &str, hook: &Value) -> Self {
        let optional = hook["failurePolicy"] == "Ignore";
        let versions = hook["admissionReviewVersions"].as_array().into_iter().flatten();
        let known = Known { authorizer: true, ..Known::default() };
        Self {
            configuration: configuration.to_owned(),
            name: text(&hook["name"]).to_owned(),
            matching: Matching::of_webhook(hook),
            conditions: Conditions::read(&hook["matchConditions"], &known, optional),
            endpoint: Endpoint::read(&hook["clientConfig"]),
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT_SECONDS)),
            optional,
            side_effects: match text(&hook["sideEffects"]) {
                "None" | "NoneOnDryRun" => SideEffects::None,
                "" => SideEffects::Unsaid,
                _ => SideEffects::Some,
            },
            again: hook["reinvocationPolicy"] == "IfNeeded",
            versions: versions.map(|v| text(v).to_owned()).collect(),
        }
    }

    /// Under which version the webhook is asked about a request, with its objects under that version; `None` if it is not.
    ///
    /// # Errors
    /// If that cannot be said.
    pub async fn wants(
        &self,
        registry: &Registry,
        attempt: &Attempt,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Wanted>, ApiError> {
        let Some(version) = self.matching.find(registry, attempt, object, old)? else { return Ok(None) };
        let object = attempt.shown(registry, &version, object).await?;
        let old = attempt.shown(registry, &version, old).await?;
        let wanted = Wanted { version, object, old };
        if self.conditions.is_empty() {
            return Ok(Some(wanted));
        }
        let run = wanted.run(registry, attempt);
        match self.conditions.met(&run) {
            Met::Yes => Ok(Some(wanted)),
            Met::No => Ok(None),
            Met::Unknown(why) => {
                let (resource, name) = (attempt.resource.qualified(), attempt.name.clone());
                Err(ApiError::Denied { resource, name, why })
            }
        }
    }
}
