//! How many Pods to make or which to remove, and what to say of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::kinds::Replicated;
use crate::workload::readiness::{is_available, is_ready};
use crate::workload::{ranking, selecting};

/// Pods made or removed in one turn. Upstream: 500.
const BURST: usize = 500;
/// The condition that says that Pods cannot be made or removed.
const FAILURE: &str = "ReplicaFailure";

/// What to do about the number of Pods.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// It is right.
    Stay,
    /// So many more.
    Create(usize),
    /// These are too many.
    Delete(Vec<Arc<Pod>>),
}

/// Why Pods could not be made or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure<'a> {
    /// `FailedCreate` or `FailedDelete`.
    pub reason: &'static str,
    /// What the API server said.
    pub message: &'a str,
}

/// Compares the active Pods with how many are wanted. `per_node` counts the Pods of all sets of the same owner.
#[must_use]
pub fn step(active: &[Arc<Pod>], wanted: i32, per_node: &BTreeMap<String, usize>, now: Timestamp) -> Step {
    let wanted = usize::try_from(wanted).unwrap_or_default();
    if active.len() < wanted {
        return Step::Create((wanted - active.len()).min(BURST));
    }
    let extra = (active.len() - wanted).min(BURST);
    if extra == 0 {
        return Step::Stay;
    }
    let mut pods = active.to_vec();
    ranking::sort(&mut pods, per_node, now);
    pods.truncate(extra);
    Step::Delete(pods)
}

/// What is to be said of a set. Zeros are left out, as upstream does.
#[must_use]
pub fn status<K: Replicated>(
    set: &K,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<Failure>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let count = |of: &dyn Fn(&Pod) -> bool| {
        let count = active.iter().filter(|pod| of(pod)).count();
        i32::try_from(count).ok().filter(|count| *count > 0)
    };
    let labels = set.template().and_then(|t| t.metadata.as_ref()).and_then(|m| m.labels.as_ref());
    let labels = selecting::of_labels(labels);
    ReplicaSetStatus {
        available_replicas: count(&|pod| is_available(pod, set.min_ready_seconds(), now)),
        conditions: conditions(set.status().conditions, failure, now),
        fully_labeled_replicas: count(&|pod| selecting::selects(&labels, &pod.metadata)),
        observed_generation: set.meta().generation,
        ready_replicas: count(&is_ready),
        replicas: i32::try_from(active.len()).unwrap_or(i32::MAX),
        terminating_replicas: i32::try_from(terminating).ok(),
    }
}

/// The failure is said once, and until it is over.
fn conditions(
    old: Option<Vec<ReplicaSetCondition>>,
    failure: Option<Failure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = old.unwrap_or_default();
    let is_failure = |c: &ReplicaSetCondition| c.type_.as_deref() == Some(FAILURE);
    match failure {
        None => conditions.retain(|c| !is_failure(c)),
        Some(_) if conditions.iter().any(is_failure) => {}
        Some(failure) => conditions.push(ReplicaSetCondition {
            last_transition_time: Some(Time(now)),
            message: Some(failure.message.to_owned()),
            reason: Some(failure.reason.to_owned()),
            status: Some("True".to_owned()),
            type_: Some(FAILURE.to_owned()),
        }),
    }
    (!conditions.is_empty()).then_some(conditions)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use trine_typed::k8s_openapi::api::apps::v1::ReplicaSet;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn pod(name: &str, labels: Value, ready_since: Option<&str>) -> Arc<Pod> {
        let conditions: Vec<Value> = ready_since
            .map(|since| json!({"type": "Ready", "status": "True", "lastTransitionTime": since}))
            .into_iter()
            .collect();
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels},
                "spec": {"nodeName": "n", "containers": []},
                "status": {"phase": "Running", "conditions": conditions}}))
            .unwrap(),
        )
    }

    #[test]
    fn the_number_of_pods_is_made_right_within_limits() {
        let pods = |count: usize| vec![pod("p", json!({}), None); count];
        let rows = [
            (0, 0, "stay"),
            (2, 2, "stay"),
            (1, 3, "create 2"),
            (0, 2000, "create 500"),
            (3, 1, "delete 2"),
            (700, 0, "delete 500"),
            (1, -1, "delete 1"),
        ];
        for (active, wanted, expected) in rows {
            let found = match step(&pods(active), wanted, &BTreeMap::new(), now()) {
                Step::Stay => "stay".to_owned(),
                Step::Create(count) => format!("create {count}"),
                Step::Delete(pods) => format!("delete {}", pods.len()),
            };
            assert_eq!(found, expected, "{active} of {wanted}");
        }
    }

    #[test]
    fn those_that_are_of_no_use_yet_are_removed_first() {
        let ready = |name| pod(name, json!({}), Some("2026-01-01T11:00:00Z"));
        let pods = [ready("a"), pod("b", json!({}), None), ready("c")];
        let Step::Delete(pods) = step(&pods, 2, &BTreeMap::new(), now()) else { panic!() };
        assert_eq!(pods[0].metadata.name.as_deref(), Some("b"));
    }

    #[test]
    fn the_status_counts_what_the_pods_are() {
        let set: ReplicaSet = serde_json::from_value(json!({
            "metadata": {"name": "rs", "generation": 3},
            "spec": {"replicas": 4, "minReadySeconds": 10, "selector": {"matchLabels": {"app": "a"}},
                "template": {"metadata": {"labels": {"app": "a", "tier": "b"}}}}}))
        .unwrap();
        let full = json!({"app": "a", "tier": "b", "more": "c"});
        let pods = [
            pod("a", full.clone(), Some("2026-01-01T11:59:00Z")),
            pod("b", full, Some("2026-01-01T11:59:55Z")),
            pod("c", json!({"app": "a"}), None),
        ];
        let found = json!(status(&set, &pods, 1, None, now()));
        let expected = json!({"replicas": 3, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1,
            "terminatingReplicas": 1, "observedGeneration": 3});
        assert_eq!(found, expected);
        let none = json!(status(&set, &[], 0, None, now()));
        assert_eq!(none, json!({"replicas": 0, "terminatingReplicas": 0, "observedGeneration": 3}));
    }

    #[test]
    fn a_failure_is_said_until_it_is_over() {
        let mut set: ReplicaSet =
            serde_json::from_value(json!({"metadata": {"name": "rs"}, "spec": {"selector": {}}})).unwrap();
        let said = |set: &ReplicaSet| {
            let conditions = set.status().conditions.unwrap_or_default();
            conditions.iter().map(|c| format!("{:?} {:?}", c.reason, c.message)).collect::<Vec<_>>()
        };
        for (failure, expected) in
            [(Some("no"), "FailedCreate no"), (Some("still no"), "FailedCreate no"), (None, "")]
        {
            let failure = failure.map(|message| Failure { reason: "FailedCreate", message });
            set = set.with_status(status(&set, &[], 0, failure, now()));
            let said = said(&set).join("").replace(['"', '(', ')'], "").replace("Some", "");
            assert_eq!(said, expected);
        }
    }
}
