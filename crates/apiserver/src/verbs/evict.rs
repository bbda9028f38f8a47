//! Eviction: a Pod is deleted if the disruption budgets allow it.

use serde_json::{Value, json};
use trine_objects::selector::label::LabelSelector;
use trine_objects::{conditions, time};
use trine_store::Expect;

use super::delete::{Options, delete};
use super::update::parse;
use crate::kinds::Objects;
use crate::registry::{Registry, now_unix, text};
use crate::request::{Query, Target};
use crate::status::ApiError;

/// How often a lost race is run again.
const RETRIES: usize = 20;
/// The most evictions of a budget that are under way. Source: `MaxDisruptedPodSize`.
const UNDER_WAY_MAX: usize = 2000;
/// Seconds after which a client may ask again while a budget is being counted.
const COUNTING_SECONDS: u32 = 10;
const CAUSE: &str = "DisruptionBudget";

/// Evicts a Pod.
///
/// # Errors
/// [`ApiError::TooManyRequests`] while its budget does not allow it.
pub async fn evict(
    registry: &Registry,
    target: &Target,
    eviction: &Value,
    query: &Query,
) -> Result<(), ApiError> {
    let name = target.name.as_deref().unwrap_or_default();
    let asked = text(&eviction["metadata"]["name"]);
    if !asked.is_empty() && asked != name {
        return Err(ApiError::BadRequest("name in URL does not match name in Eviction object".to_owned()));
    }
    let options = Options::parse(query, &eviction["deleteOptions"])?;
    let pod = parse(registry.get(&target.resource, &target.namespace, name)?.json())?;
    options.admit(target, name, &pod)?;
    if !is_free(&pod) {
        match budgets(registry, &pod).as_slice() {
            [] => {}
            [budget] => {
                if !is_healthy_without(&pod, budget) {
                    take_one(registry, name, budget, options.is_dry_run()).await?;
                }
            }
            _ => {
                let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(ApiError::Failed(why.to_owned()));
            }
        }
    }
    if !options.is_dry_run() && !is_free(&pod) {
        mark(registry, target, name).await?;
    }
    let pod = Target { subresource: None, ..target.clone() };
    delete(registry, &pod, &options).await.map(drop)
}

/// Whether no budget counts the Pod: it has ended, does not run yet, or goes already.
fn is_free(pod: &Value) -> bool {
    matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed" | "Pending")
        || !pod["metadata"]["deletionTimestamp"].is_null()
}

/// The budgets of the Pod's namespace that select it. One without a selector selects nothing.
fn budgets(registry: &Registry, pod: &Value) -> Vec<Value> {
    let all = registry.list_in("policy", "poddisruptionbudgets", text(&pod["metadata"]["namespace"]));
    let selects = |budget: &Value| {
        budget["spec"]["selector"].is_object()
            && LabelSelector::from_object(&budget["spec"]["selector"])
                .is_ok_and(|s| s.matches(&pod["metadata"]["labels"]))
    };
    all.into_iter().filter(selects).collect()
}

/// Whether a Pod that is not ready may go without being counted: always, or while the rest is healthy enough.
fn is_healthy_without(pod: &Value, budget: &Value) -> bool {
    let count = |key: &str| budget["status"][key].as_i64().unwrap_or(0);
    if conditions::is_true(pod, "Ready") {
        return false;
    }
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || count("desiredHealthy") > 0 && count("currentHealthy") >= count("desiredHealthy")
}

/// Takes one of the disruptions that the budget allows.
async fn take_one(registry: &Registry, pod: &str, budget: &Value, dry_run: bool) -> Result<(), ApiError> {
    let resource = registry.resource("policy", "v1", "poddisruptionbudgets")?;
    let (namespace, name) = (text(&budget["metadata"]["namespace"]), text(&budget["metadata"]["name"]));
    for attempt in 0.. {
        let current = registry.get(&resource, namespace, name)?;
        let mut budget = parse(current.json())?;
        decrement(&mut budget, pod, now_unix())?;
        if dry_run {
            return Ok(());
        }
        match registry.put(&resource, budget, Expect::At(current.revision)).await {
            Err(ApiError::Conflict { .. }) if attempt < RETRIES => {}
            done => return done.map(drop),
        }
    }
    Err(ApiError::Internal("no end of retries".to_owned()))
}

/// Counts one more disruption of a budget.
fn decrement(budget: &mut Value, pod: &str, now: i64) -> Result<(), ApiError> {
    let name = text(&budget["metadata"]["name"]).to_owned();
    let status = &budget["status"];
    let count = |key: &str| status[key].as_i64().unwrap_or(0);
    let busy = |seconds: u32, message: String| {
        let why = "Cannot evict pod as it would violate the pod's disruption budget.".to_owned();
        Err(ApiError::TooManyRequests {
            why,
            retry_seconds: seconds,
            causes: vec![(CAUSE.to_owned(), message)],
        })
    };
    let denied = |why: &str| {
        let resource = "poddisruptionbudget.policy".to_owned();
        Err(ApiError::Denied { resource, name: name.clone(), why: why.to_owned() })
    };
    if count("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        let message = format!("The disruption budget {name} is still being processed by the server.");
        return busy(COUNTING_SECONDS, message);
    }
    if count("disruptionsAllowed") < 0 {
        return denied("pdb disruptions allowed is negative");
    }
    if status["disruptedPods"].as_object().is_some_and(|m| m.len() > UNDER_WAY_MAX) {
        return denied("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    let (healthy, wanted) = (count("currentHealthy"), count("desiredHealthy"));
    if count("disruptionsAllowed") == 0 {
        let refused = conditions::find(budget, "DisruptionAllowed")
            .filter(|c| c["status"] == "False" && !text(&c["message"]).is_empty())
            .map(|c| (text(&c["reason"]), text(&c["message"])));
        let message = match refused {
            Some(("SyncFailed", why)) => {
                format!(
                    "The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
                )
            }
            _ if healthy <= wanted => {
                format!(
                    "The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
                )
            }
            Some((reason, why)) => {
                format!(
                    "The disruption budget {name} does not allow evicting pods currently ({reason}): {why}"
                )
            }
            None => format!("The disruption budget {name} does not allow evicting pods currently"),
        };
        return busy(0, message);
    }
    let left = count("disruptionsAllowed") - 1;
    let now = time::format(now);
    if left == 0 {
        conditions::set(budget, "DisruptionAllowed", false, "InsufficientPods", "", &now);
    }
    let status = &mut budget["status"];
    status["disruptionsAllowed"] = left.into();
    if !status["disruptedPods"].is_object() {
        status["disruptedPods"] = json!({});
    }
    status["disruptedPods"][pod] = now.into();
    Ok(())
}

/// Says on the Pod why it goes.
async fn mark(registry: &Registry, target: &Target, name: &str) -> Result<(), ApiError> {
    for attempt in 0.. {
        let current = registry.get(&target.resource, &target.namespace, name)?;
        let mut pod = parse(current.json())?;
        let now = time::format(now_unix());
        if !conditions::set(
            &mut pod,
            "DisruptionTarget",
            true,
            "EvictionByEvictionAPI",
            "Eviction API: evicting",
            &now,
        ) {
            return Ok(());
        }
        match registry.put(&target.resource, pod, Expect::At(current.revision)).await {
            Err(ApiError::Conflict { .. }) if attempt < RETRIES => {}
            done => return done.map(drop),
        }
    }
    Err(ApiError::Internal("no end of retries".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(status: Value) -> Value {
        json!({"metadata": {"name": "b", "generation": 2}, "status": status})
    }

    #[test]
    fn a_budget_is_used_up_and_then_refuses_with_the_cause() {
        let mut counted = budget(
            json!({"observedGeneration": 2, "disruptionsAllowed": 1, "desiredHealthy": 1, "currentHealthy": 2}),
        );
        decrement(&mut counted, "p", 0).unwrap();
        assert_eq!(counted["status"]["disruptionsAllowed"], 0);
        assert_eq!(counted["status"]["disruptedPods"], json!({"p": "1970-01-01T00:00:00Z"}));
        let rows = [
            (json!({"observedGeneration": 1}), "is still being processed by the server."),
            (
                json!({"observedGeneration": 2, "disruptionsAllowed": 0, "desiredHealthy": 3, "currentHealthy": 3}),
                "The disruption budget b needs 3 healthy pods and has 3 currently",
            ),
            (
                json!({"observedGeneration": 2, "disruptionsAllowed": 0, "conditions": [
                    {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no"}]}),
                "The disruption budget b does not allow evicting pods currently because it failed sync: no",
            ),
        ];
        for (status, message) in rows {
            let error = decrement(&mut budget(status), "p", 0).unwrap_err().status();
            assert_eq!((&error["code"], &error["reason"]), (&json!(429), &json!("TooManyRequests")));
            let cause = &error["details"]["causes"][0];
            assert_eq!(cause["reason"], "DisruptionBudget");
            assert!(cause["message"].as_str().unwrap().ends_with(message), "{cause}");
        }
    }

    #[test]
    fn pods_that_are_not_ready_go_while_the_rest_is_healthy() {
        let pod = json!({"status": {"phase": "Running"}});
        let enough = budget(json!({"desiredHealthy": 2, "currentHealthy": 2}));
        assert!(is_healthy_without(&pod, &enough));
        let few = budget(json!({"desiredHealthy": 2, "currentHealthy": 1}));
        assert!(!is_healthy_without(&pod, &few));
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert!(!is_healthy_without(&ready, &enough));
        assert!(is_free(&json!({"status": {"phase": "Pending"}})) && !is_free(&pod));
    }
}
