//! Filters of all plugins on all nodes, the best of those that remain, and upstream's sentence when none does.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::plugins::volume_binding::{self, Bindings};
use crate::plugins::{
    inter_pod_affinity, node_affinity, node_ports, node_resources_fit, node_unschedulable,
    node_volume_limits, pod_topology_spread, taint_toleration,
};
use crate::preemption::{self, Room};
use crate::scoring;
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
    /// Nowhere yet: the Pods that make room for it are still on their way out.
    Wait(String),
    /// Nowhere before these have made room.
    Preempt(Room, String),
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
    let state = CycleState {
        volumes,
        affinity: inter_pod_affinity::State::of(pod, snapshot),
        spread: pod_topology_spread::State::of(pod, snapshot),
    };
    let mut feasible = Vec::new();
    let mut rejected = Vec::new();
    for node in snapshot.nodes.values() {
        match filter(pod, &snapshot.for_pod(pod, node), snapshot, &state) {
            Ok(bindings) => feasible.push((node, bindings)),
            Err(reasons) => rejected.push((node, reasons)),
        }
    }
    let nodes: Vec<&NodeInfo> = feasible.iter().map(|(node, _)| *node).collect();
    let scores = scoring::scores(pod, &nodes, snapshot, &state).into_iter();
    let ranks: Vec<_> = scores.zip(&nodes).map(|(score, node)| (score, Reverse(node.pods.len()))).collect();
    let best = ranks.iter().max().copied();
    let mut winners: Vec<_> =
        feasible.into_iter().zip(ranks).filter(|(_, rank)| Some(*rank) == best).collect();
    if winners.is_empty() {
        return without_place(pod, snapshot, &state, &rejected);
    }
    let ((node, bindings), _) = winners.swap_remove(tie % winners.len());
    Decision::Place { node: node.name().to_owned(), bindings }
}

/// What is known about a Pod before nodes are looked at.
pub struct CycleState {
    volumes: volume_binding::PodVolumes,
    pub(crate) affinity: inter_pod_affinity::State,
    pub(crate) spread: pod_topology_spread::State,
}

/// What becomes of a Pod that fits nowhere as things are.
fn without_place(
    pod: &Pod,
    snapshot: &Snapshot,
    state: &CycleState,
    rejected: &[(&NodeInfo, Vec<Rejection>)],
) -> Decision {
    let total = rejected.len();
    let reasons = rejected.iter().flat_map(|(_, reasons)| reasons).map(|r| r.reason.as_str());
    let mut message = format!("0/{total} nodes are available: {}.", counted(reasons));
    if let Some(why) = preemption::forbidden(pod, snapshot) {
        message += &format!(" preemption: {why}");
        return match preemption::nominated_node(pod) {
            Some(_) => Decision::Wait(message),
            None => Decision::Nowhere(message),
        };
    }
    let (hopeless, hopeful): (Vec<_>, Vec<_>) =
        rejected.iter().partition(|(_, reasons)| reasons.iter().any(|r| r.lasting));
    let nodes = hopeful.iter().map(|(node, _)| *node);
    let room = preemption::make_room(pod, nodes, &snapshot.budgets, |node| {
        let fits = filter(pod, &snapshot.for_pod(pod, node), snapshot, state);
        fits.map(drop).map_err(|reasons| reasons.into_iter().map(|r| r.reason).collect())
    });
    match room {
        Ok(room) => Decision::Preempt(room, message),
        Err(mut why) => {
            why.extend(hopeless.iter().map(|_| "Preemption is not helpful for scheduling".to_owned()));
            let why = counted(why.iter().map(String::as_str));
            Decision::Nowhere(format!("{message} preemption: 0/{total} nodes are available: {why}."))
        }
    }
}

fn filter(
    pod: &Pod,
    node: &NodeInfo,
    snapshot: &Snapshot,
    state: &CycleState,
) -> Result<Bindings, Vec<Rejection>> {
    let one = |r: Rejection| vec![r];
    node_unschedulable::filter(pod, node).map_err(one)?;
    taint_toleration::filter(pod, node).map_err(one)?;
    node_affinity::filter(pod, node).map_err(one)?;
    node_ports::filter(pod, node).map_err(one)?;
    node_resources_fit::filter(pod, node)?;
    node_volume_limits::filter(pod, node, snapshot).map_err(one)?;
    let bindings = volume_binding::filter(&state.volumes, node, snapshot).map_err(one)?;
    state.spread.filter(pod, node, snapshot).map_err(one)?;
    state.affinity.filter(pod, node, snapshot).map_err(one)?;
    Ok(bindings)
}

/// `1 Insufficient cpu, 2 node(s) ...`, as upstream counts and sorts reasons.
fn counted<'a>(reasons: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut counted: Vec<String> = counts.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    counted.sort();
    counted.join(", ")
}

#[cfg(test)]
#[path = "framework_tests.rs"]
mod tests;
