//! Which Pod of several alike goes first when there are too many.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::readiness::{is_active, ready_since};

/// What people say a Pod costs; the cheaper one goes. Default 0.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// How many active Pods of these each node has.
pub fn per_node<'a>(pods: impl IntoIterator<Item = &'a Arc<Pod>>) -> BTreeMap<String, usize> {
    let mut nodes = BTreeMap::new();
    for pod in pods.into_iter().filter(|pod| is_active(pod)) {
        *nodes.entry(node(pod).to_owned()).or_default() += 1;
    }
    nodes
}

/// Sorts Pods so that the ones to go are first: those without a node, pending before running, not ready before ready, cheap
/// before dear, crowded nodes (`per_node`) before others, ready for a shorter before a longer time, more restarts before fewer,
/// younger before older. Times count by their order of magnitude, so that Pods of about the same age go at random.
pub fn sort(pods: &mut [Arc<Pod>], per_node: &BTreeMap<String, usize>, now: Timestamp) {
    pods.sort_by(|a, b| compare(a, b, per_node, now));
}

fn compare(a: &Pod, b: &Pod, per_node: &BTreeMap<String, usize>, now: Timestamp) -> Ordering {
    let crowd = |pod| Reverse(per_node.get(node(pod)).copied().unwrap_or_default());
    let (ready_a, ready_b) = (ready_since(a), ready_since(b));
    (!node(a).is_empty())
        .cmp(&!node(b).is_empty())
        .then_with(|| phase(a).cmp(&phase(b)))
        .then_with(|| ready_a.is_some().cmp(&ready_b.is_some()))
        .then_with(|| cost(a).cmp(&cost(b)))
        .then_with(|| crowd(a).cmp(&crowd(b)))
        .then_with(|| ready_a.zip(ready_b).map_or(Ordering::Equal, |(a, b)| younger_first(a, b, now)))
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| {
            let made = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
            match (made(a), made(b)) {
                (Some(a), Some(b)) => younger_first(a, b, now),
                (a, b) => a.is_some().cmp(&b.is_some()),
            }
        })
        .then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
}

/// By the logarithm of the age: equal within a power of two.
fn younger_first(a: Timestamp, b: Timestamp, now: Timestamp) -> Ordering {
    let magnitude = |time: Timestamp| {
        let age = now.as_nanosecond() - time.as_nanosecond();
        u128::try_from(age).ok().and_then(u128::checked_ilog2)
    };
    magnitude(a).cmp(&magnitude(b))
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default()
}

fn phase(pod: &Pod) -> u8 {
    match pod.status.as_ref().and_then(|s| s.phase.as_deref()) {
        Some("Running") => 2,
        Some("Unknown") => 1,
        _ => 0,
    }
}

fn cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|a| a.get(COST));
    text.and_then(|t| t.parse().ok()).unwrap_or_default()
}

/// The most restarts of a container, then of a sidecar.
fn restarts(pod: &Pod) -> (i32, i32) {
    let Some(status) = &pod.status else { return (0, 0) };
    let most = status.container_statuses.iter().flatten().map(|c| c.restart_count).max();
    let init = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten());
    let sidecars: Vec<&str> =
        init.filter(|c| c.restart_policy.as_deref() == Some("Always")).map(|c| c.name.as_str()).collect();
    let of_sidecars = status.init_container_statuses.iter().flatten();
    let of_sidecars = of_sidecars.filter(|c| sidecars.contains(&c.name.as_str())).map(|c| c.restart_count);
    (most.unwrap_or_default(), of_sidecars.max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    /// A ready Pod on node n that was made two hours and is ready for an hour, changed by a merge patch.
    fn pod(uid: &str, change: &Value) -> Arc<Pod> {
        let mut pod = json!({"metadata": {"uid": uid, "creationTimestamp": "2026-01-01T10:00:00Z", "annotations": {}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}]}});
        merge(&mut pod, change);
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn merge(into: &mut Value, change: &Value) {
        match (into, change) {
            (Value::Object(into), Value::Object(change)) => {
                for (key, value) in change {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, change) => *into = change.clone(),
        }
    }

    #[test]
    fn each_rule_decides_where_those_before_it_do_not() {
        let ready_at = |time: &str| json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}]}});
        let restarted = |count: i32| json!({"status": {"containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": count}]}});
        let cost = |cost: &str| json!({"metadata": {"annotations": {COST: cost}}});
        // What goes first, and what would be first by the next rule.
        let rows = [
            ("without a node", json!({"spec": {"nodeName": null}}), json!({"status": {"phase": "Pending"}})),
            ("pending", json!({"status": {"phase": "Pending"}}), json!({"status": {"conditions": []}})),
            ("unknown", json!({"status": {"phase": "Unknown"}}), json!({"status": {"conditions": []}})),
            ("not ready", json!({"status": {"conditions": []}}), cost("-1")),
            ("cheap", cost("-1"), json!({"spec": {"nodeName": "crowded"}})),
            ("on a crowded node", json!({"spec": {"nodeName": "crowded"}}), ready_at("2026-01-01T11:59:00Z")),
            ("ready for a short time", ready_at("2026-01-01T11:59:00Z"), restarted(3)),
            (
                "with restarts",
                restarted(3),
                json!({"metadata": {"creationTimestamp": "2026-01-01T11:59:00Z"}}),
            ),
            ("young", json!({"metadata": {"creationTimestamp": "2026-01-01T11:59:00Z"}}), json!({})),
        ];
        let nodes = BTreeMap::from([("crowded".to_owned(), 2), ("n".to_owned(), 1)]);
        for (name, first, second) in rows {
            for uids in [["1", "2"], ["2", "1"]] {
                let mut pods = [pod(uids[1], &second), pod(uids[0], &first)];
                sort(&mut pods, &nodes, now());
                assert_eq!(pods[0].metadata.uid.as_deref(), Some(uids[0]), "{name}");
            }
        }
    }

    #[test]
    fn ages_of_one_magnitude_are_alike() {
        let made = |uid: &str, time: &str| pod(uid, &json!({"metadata": {"creationTimestamp": time}}));
        let mut pods = [made("b", "2026-01-01T10:00:01Z"), made("a", "2026-01-01T10:00:00Z")];
        sort(&mut pods, &BTreeMap::new(), now());
        assert_eq!(pods[0].metadata.uid.as_deref(), Some("a"), "by UID");
    }
}
