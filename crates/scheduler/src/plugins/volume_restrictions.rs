//! VolumeRestrictions: a claim that one Pod alone may use (`ReadWriteOncePod`).

use std::collections::BTreeSet;

use crate::framework::Rejection;
use crate::pod_info::PodInfo;
use crate::snapshot::{NodeInfo, Snapshot};

const TAKEN: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// The claims of a Pod that it wants to be alone with.
#[must_use]
pub fn exclusive<'a>(pod: &'a PodInfo, snapshot: &Snapshot) -> BTreeSet<&'a str> {
    let namespace = pod.pod.metadata.namespace.as_deref().unwrap_or_default();
    let alone = |name: &&String| {
        let modes =
            snapshot.claim(namespace, name).and_then(|claim| claim.spec.as_ref()?.access_modes.as_ref());
        modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteOncePod"))
    };
    pod.claims.iter().filter(alone).map(String::as_str).collect()
}

/// Whether one of the claims is used, on whichever node. What is counted is which nodes their users are on, so that it can be seen
/// whether removing them would help.
#[must_use]
pub fn users(claims: &BTreeSet<&str>, pod: &PodInfo, snapshot: &Snapshot) -> usize {
    if claims.is_empty() { 0 } else { snapshot.nodes.values().map(|node| on(claims, pod, node)).sum() }
}

/// # Errors
/// A Pod uses one of the claims. `node` may hold other Pods than in the snapshot.
pub fn filter(
    claims: &BTreeSet<&str>,
    users: usize,
    pod: &PodInfo,
    node: &NodeInfo,
    snapshot: &Snapshot,
) -> Result<(), Rejection> {
    if claims.is_empty() {
        return Ok(());
    }
    let before = snapshot.original(node).map_or(0, |original| on(claims, pod, original));
    let now = if snapshot.original(node).is_some() { on(claims, pod, node) } else { 0 };
    if users + now > before { Err(Rejection::passing(TAKEN)) } else { Ok(()) }
}

fn on(claims: &BTreeSet<&str>, pod: &PodInfo, node: &NodeInfo) -> usize {
    let namespace = &pod.pod.metadata.namespace;
    let uses = |other: &&PodInfo| {
        other.pod.metadata.namespace == *namespace
            && other.claims.iter().any(|claim| claims.contains(claim.as_str()))
    };
    node.pods.iter().filter(uses).count()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str, claim: &str) -> PodInfo {
        let pod = json!({"metadata": {"name": name, "uid": name, "namespace": "d"},
            "spec": {"nodeName": node, "containers": [],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}});
        let pod: trine_typed::k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
        Arc::new(pod).into()
    }

    #[test]
    fn a_claim_for_one_pod_is_free_when_that_pod_would_be_gone() {
        let mut snapshot = Snapshot::default();
        for name in ["a", "b"] {
            let node = json!({"metadata": {"name": name}});
            snapshot.put_node(Arc::new(serde_json::from_value(node).unwrap()));
        }
        for (name, mode) in [("alone", "ReadWriteOncePod"), ("shared", "ReadWriteOnce")] {
            let claim =
                json!({"metadata": {"name": name, "namespace": "d"}, "spec": {"accessModes": [mode]}});
            let claim = Arc::new(serde_json::from_value(claim).unwrap());
            snapshot.claims.insert(("d".to_owned(), name.to_owned()), claim);
        }
        snapshot.place([pod("first", "a", "alone").pod, pod("second", "a", "shared").pod]);
        let fits = |claim: &str, node: &NodeInfo| {
            let pod = pod("new", "", claim);
            let claims = exclusive(&pod, &snapshot);
            filter(&claims, users(&claims, &pod, &snapshot), &pod, node, &snapshot)
        };
        assert_eq!(fits("alone", &snapshot.nodes["a"]), Err(Rejection::passing(TAKEN)));
        assert_eq!(fits("alone", &snapshot.nodes["b"]), Err(Rejection::passing(TAKEN)), "elsewhere, too");
        assert_eq!(fits("shared", &snapshot.nodes["a"]), Ok(()));
        assert_eq!(fits("alone", &snapshot.nodes["a"].emptied()), Ok(()), "once its user has made room");
        assert_eq!(fits("alone", &snapshot.nodes["b"].emptied()), Err(Rejection::passing(TAKEN)));
    }
}
