//! How many Pods of a PodDisruptionBudget may be disrupted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::policy::v1::{
    PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus,
};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use trine_typed::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::pods::is_finished;

use crate::workload::readiness::is_ready;
use crate::workload::share::{self, Round};

/// How long a Pod whose eviction was allowed counts as disrupted, if nobody deletes it. Upstream: 2 min.
pub const EVICTION: Duration = Duration::from_secs(120);
/// The condition that says whether any may be.
const ALLOWED: &str = "DisruptionAllowed";

/// What a budget asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// How many Pods there should be.
    pub expected: i32,
    /// How many of them have to be healthy.
    pub healthy: i32,
}

/// Whether a budget's numbers depend on how many Pods their controllers want.
#[must_use]
pub fn asks_controllers(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// What a budget asks for, of so many Pods and of controllers that want so many together. Percentages count up.
#[must_use]
pub fn wanted(spec: &PodDisruptionBudgetSpec, pods: usize, scale: i32) -> Wanted {
    if let Some(max) = &spec.max_unavailable {
        let healthy = scale.saturating_sub(share::of(max, scale, Round::Up)).max(0);
        return Wanted { expected: scale, healthy };
    }
    match &spec.min_available {
        Some(IntOrString::Int(min)) => {
            Wanted { expected: i32::try_from(pods).unwrap_or(i32::MAX), healthy: *min }
        }
        Some(percent) => Wanted { expected: scale, healthy: share::of(percent, scale, Round::Up) },
        None => Wanted { expected: 0, healthy: 0 },
    }
}

/// What is to be said of a budget.
#[derive(Debug, PartialEq)]
pub struct Told {
    /// The status.
    pub status: PodDisruptionBudgetStatus,
    /// Pods that were to go and did not.
    pub stayed: Vec<Arc<Pod>>,
    /// When to look again.
    pub again: Option<Duration>,
}

/// Counts the Pods of a budget.
#[must_use]
pub fn tell(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], wanted: Wanted, now: Timestamp) -> Told {
    let old = budget.status.clone().unwrap_or_default();
    let (mut disrupted, mut stayed, mut again) = (BTreeMap::new(), Vec::new(), None);
    let noted = old.disrupted_pods.clone().unwrap_or_default();
    let staying = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut healthy = 0;
    for pod in staying {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let left = noted.get(&name).map(|since| {
            let past = Duration::try_from(now.duration_since(since.0)).unwrap_or_default();
            EVICTION.saturating_sub(past)
        });
        match left {
            Some(Duration::ZERO) => stayed.push(Arc::clone(pod)),
            Some(left) => {
                again = Some(again.map_or(left, |again: Duration| again.min(left)));
                disrupted.extend(noted.get_key_value(&name).map(|(k, v)| (k.clone(), v.clone())));
            }
            None => {}
        }
        if left.is_none_or(|left| left.is_zero()) && is_ready(pod) {
            healthy += 1;
        }
    }
    let allowed = if wanted.expected > 0 { (healthy - wanted.healthy).max(0) } else { 0 };
    let generation = budget.metadata.generation;
    let (value, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let status = PodDisruptionBudgetStatus {
        conditions: Some(conditions(old.conditions, value, reason, String::new(), generation, now)),
        current_healthy: Some(healthy),
        desired_healthy: Some(wanted.healthy),
        disrupted_pods: Some(disrupted).filter(|disrupted| !disrupted.is_empty()),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(wanted.expected),
        observed_generation: generation,
    };
    Told { status, stayed, again }
}

/// The status of a budget whose numbers are not known: nothing may be disrupted.
#[must_use]
pub fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.clone().unwrap_or_default();
    status.disruptions_allowed = Some(0);
    let observed = status.observed_generation;
    let old = status.conditions.take();
    status.conditions = Some(conditions(old, "False", "SyncFailed", why.to_owned(), observed, now));
    // These are always said.
    for number in [&mut status.current_healthy, &mut status.desired_healthy, &mut status.expected_pods] {
        number.get_or_insert_default();
    }
    status
}

/// The conditions with that of [`ALLOWED`], whose time is that of the last change of its status.
fn conditions(
    old: Option<Vec<Condition>>,
    status: &str,
    reason: &str,
    message: String,
    observed_generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = old.unwrap_or_default();
    let since = conditions.iter().find(|c| c.type_ == ALLOWED && c.status == status);
    let fresh = Condition {
        last_transition_time: since.map_or(Time(now), |c| c.last_transition_time.clone()),
        message,
        observed_generation,
        reason: reason.to_owned(),
        status: status.to_owned(),
        type_: ALLOWED.to_owned(),
    };
    match conditions.iter_mut().find(|c| c.type_ == ALLOWED) {
        Some(old) => *old = fresh,
        None => conditions.push(fresh),
    }
    conditions
}

/// How long a Pod may still say that it is about to be disrupted, though nobody deletes it; none if it does not say so, or has
/// ended, or its kubelet says it.
#[must_use]
pub fn stale_in(pod: &Pod, now: Timestamp) -> Option<Duration> {
    if pod.metadata.deletion_timestamp.is_some() || is_finished(pod) {
        return None;
    }
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let target = conditions.find(|c| c.type_ == "DisruptionTarget" && c.status == "True")?;
    if target.reason.as_deref() == Some("TerminationByKubelet") {
        return None;
    }
    let since = target.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    let past = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    Some(EVICTION.saturating_sub(past))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn budget(spec: &Value, status: &Value) -> PodDisruptionBudget {
        serde_json::from_value(
            json!({"metadata": {"name": "b", "generation": 2}, "spec": spec, "status": status}),
        )
        .unwrap()
    }

    /// Pods as letters: `R`eady, `n`ot, `-` on their way out.
    fn pods(text: &str) -> Vec<Arc<Pod>> {
        let one = |(i, letter): (usize, char)| {
            let ready = if letter == 'n' { "False" } else { "True" };
            let going = (letter == '-').then_some("2026-01-01T00:00:00Z");
            Arc::new(
                serde_json::from_value(
                    json!({"metadata": {"name": format!("p{i}"), "deletionTimestamp": going},
                    "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
                )
                .unwrap(),
            )
        };
        text.chars().enumerate().map(one).collect()
    }

    #[test]
    fn what_is_allowed_is_what_is_healthy_beyond_what_has_to_be() {
        // The budget, the Pods, what their controllers want; healthy, wanted healthy, expected and allowed.
        let rows = [
            (json!({"minAvailable": 2}), "RRR", 0, [3, 2, 3, 1]),
            (json!({"minAvailable": 2}), "RnR-", 0, [2, 2, 4, 0]),
            (json!({"minAvailable": 5}), "RR", 0, [2, 5, 2, 0]),
            (json!({"minAvailable": "50%"}), "RRR", 3, [3, 2, 3, 1]),
            (json!({"minAvailable": "0%"}), "RRR", 3, [3, 0, 3, 3]),
            (json!({"maxUnavailable": 1}), "RRR", 3, [3, 2, 3, 1]),
            (json!({"maxUnavailable": 1}), "RR", 3, [2, 2, 3, 0]),
            (json!({"maxUnavailable": "10%"}), "RRR", 3, [3, 2, 3, 1]),
            (json!({"maxUnavailable": 5}), "RRR", 3, [3, 0, 3, 3]),
            (json!({"minAvailable": 0}), "", 0, [0, 0, 0, 0]),
        ];
        for (spec, text, scale, expected) in rows {
            let (budget, pods) = (budget(&spec, &json!({})), pods(text));
            let wanted = wanted(budget.spec.as_ref().unwrap(), pods.len(), scale);
            let status = tell(&budget, &pods, wanted, now()).status;
            let found = [
                status.current_healthy,
                status.desired_healthy,
                status.expected_pods,
                status.disruptions_allowed,
            ];
            assert_eq!(found.map(Option::unwrap), expected, "{spec} {text}");
            let condition = &status.conditions.unwrap()[0];
            assert_eq!(
                (condition.status == "True", condition.observed_generation),
                (expected[3] > 0, Some(2))
            );
        }
    }

    #[test]
    fn what_was_allowed_counts_until_it_happens_or_is_given_up() {
        let noted = json!({"p0": "2026-01-01T11:59:00Z", "p1": "2026-01-01T11:50:00Z", "gone": "2026-01-01T11:59:00Z"});
        let budget = budget(&json!({"minAvailable": 1}), &json!({"disruptedPods": noted}));
        let told = tell(&budget, &pods("RRR"), Wanted { expected: 3, healthy: 1 }, now());
        assert_eq!(told.status.current_healthy, Some(2));
        assert_eq!(told.status.disrupted_pods.unwrap().keys().collect::<Vec<_>>(), ["p0"]);
        assert_eq!(told.stayed[0].metadata.name.as_deref(), Some("p1"));
        assert_eq!(told.again, Some(Duration::from_secs(60)));
    }

    #[test]
    fn where_the_numbers_are_not_known_nothing_is_allowed() {
        let status = json!({"disruptionsAllowed": 3, "currentHealthy": 4, "observedGeneration": 1,
            "conditions": [{"type": ALLOWED, "status": "True", "reason": "SufficientPods", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let found = failed(&budget(&json!({"maxUnavailable": 1}), &status), "no", now());
        assert_eq!((found.disruptions_allowed, found.current_healthy), (Some(0), Some(4)));
        let condition = &found.conditions.unwrap()[0];
        assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("SyncFailed", "no"));
        assert_eq!(condition.last_transition_time.0, now());
    }

    #[test]
    fn a_pod_says_that_it_is_to_go_for_two_minutes_at_most() {
        let pod = |reason: &str, phase: &str| -> Pod {
            serde_json::from_value(json!({"status": {"phase": phase, "conditions": [{"type": "DisruptionTarget", "status": "True",
                "reason": reason, "lastTransitionTime": "2026-01-01T11:59:00Z"}]}}))
            .unwrap()
        };
        assert_eq!(stale_in(&pod("EvictionByEvictionAPI", "Running"), now()), Some(Duration::from_secs(60)));
        assert_eq!(stale_in(&pod("TerminationByKubelet", "Running"), now()), None);
        assert_eq!(stale_in(&pod("EvictionByEvictionAPI", "Failed"), now()), None);
    }
}
