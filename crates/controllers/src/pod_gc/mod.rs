//! Pods that nobody else will ever finish: those of nodes that are gone, and those that were deleted before they
//! had a node. No kubelet says how such a Pod has ended, so it is said here that it failed: who waits for its end, as a Job does
//! that replaces only what has failed, would wait for ever.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use trine_objects::time;
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod};
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;
use trine_typed::pods::is_finished;

use crate::frame::{ControllerError, Cx, log};

/// How often it looks. Upstream: 20 s.
const PERIOD: Duration = Duration::from_secs(20);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    // Woken by its timer alone: a node that is missing for a moment is no reason to delete its Pods.
    let changed = Arc::new(Notify::new());
    let pods: Mirror<Pod> = cx.mirror(&changed);
    let nodes: Mirror<Node> = cx.mirror(&changed);
    tokio::join!(pods.ready(), nodes.ready());
    let mut suspects = BTreeSet::new();
    loop {
        let known: BTreeSet<String> = nodes.all().iter().map(|n| n.name_any()).collect();
        let found: Vec<Arc<Pod>> = pods.all().into_iter().filter(|p| is_orphan(p, &known)).collect();
        for pod in &found {
            if suspects.contains(&pod.uid())
                && let Err(error) = delete(&cx, pod).await
            {
                log("pod-gc", &error);
            }
        }
        suspects = found.iter().map(|p| p.uid()).collect();
        tokio::select! {
            () = cx.stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

/// True if no kubelet will finish the Pod.
#[must_use]
pub fn is_orphan(pod: &Pod, nodes: &BTreeSet<String>) -> bool {
    node_of(pod).map_or(pod.metadata.deletion_timestamp.is_some(), |node| !nodes.contains(node))
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

/// What is said of a Pod before it goes; nothing if it has ended by itself.
fn last_words(pod: &Pod, now: Timestamp) -> Option<Value> {
    if is_finished(pod) {
        return None;
    }
    let mut status = json!({"phase": "Failed"});
    if node_of(pod).is_some() {
        status["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists", "lastTransitionTime": time::format(now.as_second())}]);
    }
    Some(status)
}

async fn delete(cx: &Cx, pod: &Pod) -> Result<(), ControllerError> {
    let (name, same) = (pod.name_any(), Preconditions { uid: pod.uid(), resource_version: None });
    let api: Api<Pod> = Api::namespaced(cx.client.clone(), &pod.namespace().unwrap_or_default());
    if let Some(status) = last_words(pod, trine_clock::now()) {
        let patch = Patch::Strategic(json!({"metadata": {"uid": same.uid}, "status": status}));
        let done = api.patch_status(&name, &PatchParams::default(), &patch).await;
        done.map_err(ControllerError::of("patch status of orphaned Pod", &name))?;
    }
    let params =
        DeleteParams { grace_period_seconds: Some(0), preconditions: Some(same), ..Default::default() };
    let done = api.delete(&name, &params).await;
    done.map(drop).map_err(ControllerError::of("delete orphaned Pod", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_kubelet_ends_has_failed_and_says_why_if_its_node_is_gone() {
        let words = |spec: Value, phase: &str| {
            let pod = json!({"spec": spec, "status": {"phase": phase}});
            last_words(&serde_json::from_value(pod).unwrap(), Timestamp::UNIX_EPOCH)
        };
        let placed = json!({"containers": [], "nodeName": "n"});
        let said = words(placed.clone(), "Running").unwrap();
        assert_eq!(
            (&said["phase"], &said["conditions"][0]["reason"]),
            (&json!("Failed"), &json!("DeletionByPodGC"))
        );
        assert_eq!(words(json!({"containers": []}), "Pending"), Some(json!({"phase": "Failed"})));
        assert_eq!(words(placed, "Succeeded"), None);
    }

    #[test]
    fn only_pods_without_a_kubelet_are_orphans() {
        let nodes = BTreeSet::from(["n1".to_owned()]);
        let rows = [
            ("on a known node", json!({"spec": {"containers": [], "nodeName": "n1"}}), false),
            ("on a vanished node", json!({"spec": {"containers": [], "nodeName": "n2"}}), true),
            ("not yet placed", json!({"spec": {"containers": []}}), false),
            (
                "deleted before it was placed",
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"containers": []}}),
                true,
            ),
        ];
        for (name, pod, expected) in rows {
            assert_eq!(is_orphan(&serde_json::from_value(pod).unwrap(), &nodes), expected, "{name}");
        }
    }
}
