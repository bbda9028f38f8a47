//! Which policies want to decide about a request, and with what.

use std::sync::Arc;

use serde_json::Value;

use super::{Binding, Pairs, Policy, params};
use crate::admission::attempt::Attempt;
use crate::admission::conditions::Met;
use crate::admission::wanted::{Wanted, asking};
use crate::catalog::Served;
use crate::kinds::Objects;
use crate::registry::Registry;
use crate::status::ApiError;
use trine_cel::{Bindings, Run};

/// One decision to make.
pub(super) struct Call<E> {
    pub policy: Arc<Policy<E>>,
    pub binding: Arc<Binding>,
    pub version: Arc<Served>,
    pub param: Option<Value>,
}

/// What is wrong with how a policy is configured.
pub(super) struct Misconfigured {
    pub policy: String,
    /// Empty if it is not a binding's fault.
    pub binding: String,
    pub why: String,
}

/// The decisions to make about a request, and what is wrong with policies that must not fail.
pub(super) async fn calls<E>(
    registry: &Registry,
    pairs: &Pairs<E>,
    attempt: &Attempt,
    object: Option<&Value>,
    old: Option<&Value>,
) -> (Vec<Call<E>>, Vec<Misconfigured>) {
    let (mut calls, mut wrong) = (Vec::new(), Vec::new());
    for (policy, bindings) in pairs.iter() {
        let mut misconfigured = |binding: Option<&Binding>, why: String| {
            if !policy.lenient {
                let what = if binding.is_some() { "binding" } else { "policy" };
                let why = format!("failed to configure {what}: {why}");
                let binding = binding.map(|b| b.name.clone()).unwrap_or_default();
                wrong.push(Misconfigured { policy: policy.name.clone(), binding, why });
            }
        };
        let version = match policy.matching.find(registry, attempt, object, old) {
            Ok(Some(version)) => version,
            Ok(None) => continue,
            Err(error) => {
                misconfigured(None, error.to_string());
                continue;
            }
        };
        for binding in bindings {
            match binding.matching.find(registry, attempt, object, old) {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(error) => {
                    misconfigured(Some(binding), error.to_string());
                    continue;
                }
            }
            let params = params::collect(
                registry,
                policy.param_kind.as_ref(),
                binding.params.as_ref(),
                &attempt.namespace,
            )
            .await;
            match params {
                Ok(params) => calls.extend(params.into_iter().map(|param| Call {
                    policy: Arc::clone(policy),
                    binding: Arc::clone(binding),
                    version: Arc::clone(&version),
                    param,
                })),
                Err(why) => misconfigured(Some(binding), why),
            }
        }
    }
    (calls, wrong)
}

/// What a policy's expressions are told of the namespace: no more than upstream says.
pub(super) fn namespace_of(registry: &Registry, attempt: &Attempt) -> Option<Value> {
    if attempt.is_of_namespaces() || attempt.namespace.is_empty() {
        return None;
    }
    let mut namespace = Objects::get(registry, "", "namespaces", "", &attempt.namespace)?;
    if let Some(metadata) = namespace["metadata"].as_object_mut() {
        metadata.retain(|key, _| key != "managedFields" && key != "ownerReferences");
    }
    Some(namespace)
}

impl<E> Call<E> {
    /// The objects of a request as this policy wants them.
    pub async fn wanted(
        &self,
        registry: &Registry,
        attempt: &Attempt,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Wanted, ApiError> {
        let object = attempt.shown(registry, &self.version, object).await?;
        let old = attempt.shown(registry, &self.version, old).await?;
        Ok(Wanted { version: Arc::clone(&self.version), object, old })
    }

    /// Expressions about a request. Conditions know neither variables nor the namespace.
    pub fn run(
        &self,
        registry: &Registry,
        attempt: &Attempt,
        wanted: &Wanted,
        namespace: Option<&Value>,
    ) -> Run {
        let request = attempt.told(&self.version);
        Run::new(Bindings {
            object: wanted.object.as_ref(),
            old: wanted.old.as_ref(),
            request: Some(&request),
            params: self.param.as_ref(),
            namespace,
            more: Some(&asking(registry, attempt)),
            variables: Arc::clone(&self.policy.variables),
        })
    }

    /// Whether the policy's conditions are met.
    pub fn met(&self, registry: &Registry, attempt: &Attempt, wanted: &Wanted) -> Met {
        if self.policy.conditions.is_empty() {
            return Met::Yes;
        }
        self.policy.conditions.met(&self.run(registry, attempt, wanted, None))
    }
}
