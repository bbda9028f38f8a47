//! Pods that nobody else will ever finish: those of nodes that are gone, and those that were deleted before they
//! had a node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod};
use trine_typed::kube::api::{DeleteParams, Preconditions};
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

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
    let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default();
    if node.is_empty() { pod.metadata.deletion_timestamp.is_some() } else { !nodes.contains(node) }
}

async fn delete(cx: &Cx, pod: &Pod) -> Result<(), ControllerError> {
    let api: Api<Pod> = Api::namespaced(cx.client.clone(), &pod.namespace().unwrap_or_default());
    let same = Preconditions { uid: pod.uid(), resource_version: None };
    let params =
        DeleteParams { grace_period_seconds: Some(0), preconditions: Some(same), ..Default::default() };
    let done = api.delete(&pod.name_any(), &params).await;
    done.map(drop).map_err(ControllerError::of("delete orphaned Pod", pod.name_any()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
