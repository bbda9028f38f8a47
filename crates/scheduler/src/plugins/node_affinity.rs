//! NodeAffinity: `nodeSelector`, and what node affinity requires and prefers.

use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::placement::{is_selected, term_matches};

use crate::framework::Rejection;
use crate::snapshot::NodeInfo;

/// # Errors
/// The node does not match.
pub fn filter(pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
    match &pod.spec {
        Some(spec) if !is_selected(spec, &node.node) => {
            Err(Rejection::lasting("node(s) didn't match Pod's node affinity/selector"))
        }
        _ => Ok(()),
    }
}

/// The weights of the preferred terms that the node matches; to be compared with other nodes.
#[must_use]
pub fn score(pod: &Pod, node: &NodeInfo) -> i64 {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let preferred = affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
    let matching = preferred.into_iter().flatten().filter(|term| term_matches(&term.preference, &node.node));
    matching.map(|term| i64::from(term.weight)).sum()
}
