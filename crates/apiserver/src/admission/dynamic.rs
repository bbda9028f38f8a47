//! Those who decide about writes because objects say so: webhooks and policies.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use trine_store::{Cache, Object};

use super::again::Again;
use super::attempt::Attempt;
use super::policies::mutating::{self, Mutating};
use super::policies::validating::{self, Validating};
use super::policies::{Binding, Bound, Pairs, Policy};
use super::webhooks::{self, Hook};
use crate::access::follow::{Derive, Follower};
use crate::metrics::Decisions;
use crate::registry::Registry;
use crate::status::ApiError;

/// The group of their kinds.
const GROUP: &str = "admissionregistration.k8s.io";
/// Their kinds.
const SOURCES: [&str; 6] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// Whether a kind configures admission: nobody who is configured decides about these.
fn is_exempt(attempt: &Attempt) -> bool {
    attempt.resource.group == GROUP
}

/// Webhooks by their configurations' names, which are their order.
#[derive(Default)]
struct Hooks {
    of: BTreeMap<String, Vec<Arc<Hook>>>,
    all: Arc<[Arc<Hook>]>,
}

impl Hooks {
    fn set(&mut self, key: &str, hooks: Vec<Hook>) {
        if hooks.is_empty() {
            self.of.remove(key);
        } else {
            self.of.insert(key.to_owned(), hooks.into_iter().map(Arc::new).collect());
        }
        self.all = self.of.values().flatten().cloned().collect();
    }
}

/// All that is configured.
#[derive(Default)]
struct Index {
    mutating: Hooks,
    validating: Hooks,
    policies: Bound<Validating>,
    mutating_policies: Bound<Mutating>,
}

impl Derive for Index {
    fn put(&mut self, source: usize, key: &str, object: &Object) {
        let object: Value = serde_json::from_slice(object.json()).unwrap_or_default();
        match SOURCES[source] {
            "mutatingwebhookconfigurations" => self.mutating.set(key, Hook::read_all(&object)),
            "validatingwebhookconfigurations" => self.validating.set(key, Hook::read_all(&object)),
            "validatingadmissionpolicies" => self.policies.set_policy(key, Some(Policy::validating(&object))),
            "validatingadmissionpolicybindings" => {
                self.policies.set_binding(key, Some(Binding::read(&object)))
            }
            "mutatingadmissionpolicies" => {
                self.mutating_policies.set_policy(key, Some(Policy::mutating(&object)))
            }
            _ => self.mutating_policies.set_binding(key, Some(Binding::read(&object))),
        }
    }

    fn remove(&mut self, source: usize, key: &str) {
        match SOURCES[source] {
            "mutatingwebhookconfigurations" => self.mutating.set(key, Vec::new()),
            "validatingwebhookconfigurations" => self.validating.set(key, Vec::new()),
            "validatingadmissionpolicies" => self.policies.set_policy(key, None),
            "validatingadmissionpolicybindings" => self.policies.set_binding(key, None),
            "mutatingadmissionpolicies" => self.mutating_policies.set_policy(key, None),
            _ => self.mutating_policies.set_binding(key, None),
        }
    }

    fn clear(&mut self, source: usize) {
        match SOURCES[source] {
            "mutatingwebhookconfigurations" => self.mutating = Hooks::default(),
            "validatingwebhookconfigurations" => self.validating = Hooks::default(),
            "validatingadmissionpolicies" => self.policies.clear_policies(),
            "validatingadmissionpolicybindings" => self.policies.clear_bindings(),
            "mutatingadmissionpolicies" => self.mutating_policies.clear_policies(),
            _ => self.mutating_policies.clear_bindings(),
        }
    }
}

/// Knows who is configured to decide. Costs a look into memory where nobody is.
pub struct Dynamic {
    follower: Follower<Index>,
    decisions: Decisions,
}

impl Dynamic {
    /// Follows the configurations in the cache.
    #[must_use]
    pub fn start(cache: &Cache) -> Self {
        let source = |plural: &str| {
            let scope = format!("/{GROUP}/{plural}/");
            let prefix = cache.prefix(&scope);
            (scope, prefix)
        };
        let follower = Follower::start(SOURCES.map(source).into(), Index::default());
        Self { follower, decisions: Decisions::default() }
    }

    /// What they decided so far.
    #[must_use]
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// A request that somebody may want to change; `None` if nobody does.
    #[must_use]
    pub fn mutation(&self, attempt: impl FnOnce() -> Option<Attempt>) -> Option<Mutation> {
        let (policies, hooks) =
            self.follower.with(|index| (index.mutating_policies.pairs(), Arc::clone(&index.mutating.all)));
        if hooks.is_empty() && policies.is_empty() {
            return None;
        }
        let attempt = attempt().filter(|attempt| !is_exempt(attempt))?;
        Some(Mutation {
            policies: (policies, Again::default()),
            hooks: (hooks, Again::default()),
            attempt,
            round: 0,
        })
    }

    /// Refuses what somebody refuses who is configured to.
    ///
    /// # Errors
    /// The first refusal.
    pub async fn validate(
        &self,
        registry: &Registry,
        attempt: impl FnOnce() -> Option<Attempt>,
        (object, old): (Option<&Value>, Option<&Value>),
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let (policies, hooks) =
            self.follower.with(|index| (index.policies.pairs(), Arc::clone(&index.validating.all)));
        if hooks.is_empty() && policies.is_empty() {
            return Ok(());
        }
        let Some(attempt) = attempt().filter(|attempt| !is_exempt(attempt)) else { return Ok(()) };
        validating::validate(registry, &policies, &attempt, object, old, warnings).await?;
        webhooks::validate(registry, &hooks, &attempt, object, old, warnings).await
    }
}

/// A request that somebody may want to change.
pub struct Mutation {
    policies: (Pairs<Mutating>, Again<mutating::Id>),
    hooks: (Arc<[Arc<Hook>]>, Again<webhooks::Id>),
    attempt: Attempt,
    round: usize,
}

impl Mutation {
    /// Lets them change the object: all of them the first time, then those who mind what changed after them. Says whether
    /// anybody did so: then what the server itself fills in may be different, too, and a second round follows.
    ///
    /// # Errors
    /// The first refusal.
    pub async fn round(
        &mut self,
        registry: &Registry,
        (object, old): (&mut Option<Value>, Option<&Value>),
        warnings: &mut Vec<String>,
    ) -> Result<bool, ApiError> {
        let round = self.round;
        self.round += 1;
        let (policies, again) = &mut self.policies;
        again.begin(round, object.as_ref());
        mutating::mutate(registry, policies, &self.attempt, (object, old), (round, again)).await?;
        again.end(object.as_ref());
        let changed = again.changed();
        let (hooks, again) = &mut self.hooks;
        again.begin(round, object.as_ref());
        webhooks::mutate(registry, hooks, &self.attempt, (object, old), (round, again), warnings).await?;
        again.end(object.as_ref());
        Ok(changed || again.changed())
    }
}
