//! NodeAffinity: `nodeSelector`, and what node affinity requires and prefers.

use trine_typed::k8s_openapi::api::core::v1::{NodeAffinity, Pod};
use trine_typed::placement::{is_selected, matches, term_matches};

use crate::framework::Rejection;
use crate::snapshot::NodeInfo;

/// `added` is asked for besides, by whoever runs the scheduler.
///
/// # Errors
/// The node does not match.
pub fn filter(pod: &Pod, node: &NodeInfo, added: Option<&NodeAffinity>) -> Result<(), Rejection> {
    let required = added.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    if required.is_some_and(|required| !matches(required, &node.node)) {
        return Err(Rejection::lasting("node(s) didn't match scheduler-enforced node affinity"));
    }
    if selects(pod, node) {
        return Ok(());
    }
    Err(Rejection::lasting("node(s) didn't match Pod's node affinity/selector"))
}

/// Whether a Pod's own words select a node.
#[must_use]
pub fn selects(pod: &Pod, node: &NodeInfo) -> bool {
    pod.spec.as_ref().is_none_or(|spec| is_selected(spec, &node.node))
}

/// The weights of the preferred terms that the node matches; to be compared with other nodes.
#[must_use]
pub fn score(pod: &Pod, node: &NodeInfo, added: Option<&NodeAffinity>) -> i64 {
    let own = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let preferred = own.into_iter().chain(added);
    let terms =
        preferred.flat_map(|a| a.preferred_during_scheduling_ignored_during_execution.iter().flatten());
    let matching = terms.filter(|term| term_matches(&term.preference, &node.node));
    matching.map(|term| i64::from(term.weight)).sum()
}
