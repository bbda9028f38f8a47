//! Filters of all plugins on all nodes, the best of those that remain, and upstream's sentence when none does.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::plugins::volume_binding::{self, Bindings};
use crate::plugins::{
    node_affinity, node_ports, node_resources_fit, node_unschedulable, node_volume_limits, taint_toleration,
};
use crate::snapshot::{NodeInfo, Snapshot};

/// Why one node is no place for a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// As it is shown in the event, without the count.
    pub reason: String,
    /// True if removing Pods from the node would not help (upstream: UnschedulableAndUnresolvable).
    pub lasting: bool,
}

impl Rejection {
    /// Removing Pods would not help.
    #[must_use]
    pub fn lasting(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), lasting: true }
    }

    /// Removing Pods could help.
    #[must_use]
    pub fn passing(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), lasting: false }
    }
}

/// Where a Pod goes.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// On this node, after these volume writes.
    Place {
        /// Node name.
        node: String,
        /// Volume writes.
        bindings: Bindings,
    },
    /// Nowhere; the message of the condition and the event.
    Nowhere(String),
}

/// Decides for one Pod. Of nodes with the same score the one with the fewest Pods wins, then `tie` turns.
#[must_use]
pub fn decide(pod: &Pod, snapshot: &Snapshot, tie: usize) -> Decision {
    if snapshot.nodes.is_empty() {
        return Decision::Nowhere("no nodes available to schedule pods".to_owned());
    }
    let total = snapshot.nodes.len();
    let volumes = match volume_binding::pre_filter(pod, snapshot) {
        Ok(volumes) => volumes,
        Err(rejection) => {
            return Decision::Nowhere(format!(
                "0/{total} nodes are available: {}. preemption: 0/{total} nodes are available: {total} \
                 Preemption is not helpful for scheduling.",
                rejection.reason
            ));
        }
    };
    let mut feasible = Vec::new();
    let mut rejected = Vec::new();
    for node in snapshot.nodes.values() {
        match filter(pod, node, snapshot, &volumes) {
            Ok(bindings) => feasible.push((node, bindings)),
            Err(reasons) => rejected.push(reasons),
        }
    }
    let best = feasible.iter().map(|(node, _)| rank(pod, node)).max();
    let mut winners: Vec<_> =
        feasible.into_iter().filter(|(node, _)| Some(rank(pod, node)) == best).collect();
    if winners.is_empty() {
        return Decision::Nowhere(fit_error(total, &rejected));
    }
    let (node, bindings) = winners.swap_remove(tie % winners.len());
    Decision::Place { node: node.name().to_owned(), bindings }
}

fn rank(pod: &Pod, node: &NodeInfo) -> (i128, std::cmp::Reverse<usize>) {
    (node_resources_fit::score(pod, node), std::cmp::Reverse(node.pods.len()))
}

fn filter(
    pod: &Pod,
    node: &NodeInfo,
    snapshot: &Snapshot,
    volumes: &volume_binding::PodVolumes,
) -> Result<Bindings, Vec<Rejection>> {
    let one = |r: Rejection| vec![r];
    node_unschedulable::filter(pod, node).map_err(one)?;
    taint_toleration::filter(pod, node).map_err(one)?;
    node_affinity::filter(pod, node).map_err(one)?;
    node_ports::filter(pod, node).map_err(one)?;
    node_resources_fit::filter(pod, node)?;
    node_volume_limits::filter(pod, node, snapshot).map_err(one)?;
    volume_binding::filter(volumes, node, snapshot).map_err(one)
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) ... . preemption: ...`, as upstream builds it.
fn fit_error(total: usize, rejected: &[Vec<Rejection>]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for rejection in rejected.iter().flatten() {
        *counts.entry(&rejection.reason).or_default() += 1;
    }
    let mut reasons: Vec<String> = counts.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    reasons.sort();
    let hopeless = rejected.iter().filter(|r| r.iter().any(|x| x.lasting)).count();
    let mut preemption = Vec::new();
    if total > hopeless {
        preemption.push(format!("{} No preemption victims found for incoming pod", total - hopeless));
    }
    if hopeless > 0 {
        preemption.push(format!("{hopeless} Preemption is not helpful for scheduling"));
    }
    format!(
        "0/{total} nodes are available: {}. preemption: 0/{total} nodes are available: {}.",
        reasons.join(", "),
        preemption.join(", ")
    )
}

#[cfg(test)]
#[path = "framework_tests.rs"]
mod tests;
