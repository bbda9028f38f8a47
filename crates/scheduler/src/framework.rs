//! Filters of all plugins on all nodes, the best of those that remain, and upstream's sentence when none does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::amounts::Kind;
use crate::devices::ResourceClaim;
use crate::devices::extended::{Extended, class_of};
use crate::events::Plugin;
use crate::plugins::dynamic_resources::{self, Given, Refusal};
use crate::plugins::volume_binding::{self, Bindings};
use crate::plugins::{
    inter_pod_affinity, node_affinity, node_ports, node_resources_fit, node_unschedulable,
    node_volume_limits, pod_topology_spread, taint_toleration, volume_restrictions, volume_zone,
};
use crate::pod_info::PodInfo;
use crate::preemption::{self, Room, nominated_node};
use crate::profile::Profile;
use crate::profile::plugins::Point;
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
    /// On this node, after these writes.
    Place {
        /// Node name.
        node: String,
        /// Volume writes.
        bindings: Bindings,
        /// Devices that its claims get.
        devices: Given,
    },
    /// Nowhere; the message of the condition and the event.
    Nowhere(String),
    /// Nowhere yet: the Pods that make room for it are still on their way out.
    Wait(String),
    /// Nowhere: something is wrong that has to be put right. It is tried again after the Pod's back-off.
    Failed(String),
    /// Nowhere before these have made room.
    Preempt(Room, String),
}

/// What deciding for a Pod has come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Where the Pod goes.
    pub decision: Decision,
    /// Who kept it from nodes; only of interest if it goes nowhere.
    pub rejected_by: BTreeSet<Plugin>,
    /// How many nodes were looked at until enough were found.
    pub looked_at: usize,
    /// A claim that gives its devices back, so that the Pod can get some elsewhere.
    pub give_back: Option<Arc<ResourceClaim>>,
}

/// How many nodes that fit are enough for a choice, of so many; `percentage` 0: the fewer, the more there are. Upstream:
/// `numFeasibleNodesToFind`.
#[must_use]
pub fn enough(nodes: usize, percentage: usize) -> usize {
    let share = match percentage {
        0 => 50_usize.saturating_sub(nodes / 125).max(5),
        share => share,
    };
    (nodes * share / 100).max(nodes.min(100))
}

/// Decides for one Pod. Of nodes with the same score the one with the fewest Pods wins, then `tie` turns.
#[must_use]
pub fn attempt(pod: &PodInfo, snapshot: &Snapshot, profile: &Profile, tie: usize) -> Attempt {
    let settled = |decision: Decision, rejected_by: BTreeSet<Plugin>, looked_at: usize| Attempt {
        decision,
        rejected_by,
        looked_at,
        give_back: None,
    };
    let nowhere = |message: String, by: Plugin| settled(Decision::Nowhere(message), [by].into(), 0);
    if snapshot.nodes.is_empty() {
        return nowhere("no nodes available to schedule pods".to_owned(), Plugin::NodeUnschedulable);
    }
    let total = snapshot.nodes.len();
    let on_none = |reason: &str, by: Plugin| {
        let message = format!(
            "0/{total} nodes are available: {reason}. preemption: 0/{total} nodes are available: {total} \
             Preemption is not helpful for scheduling."
        );
        nowhere(message, by)
    };
    let volumes = match volume_binding::pre_filter(pod, snapshot) {
        Ok(volumes) => volumes,
        Err(_) if !profile.chosen.filters(Plugin::VolumeBinding) => volume_binding::PodVolumes::default(),
        Err(rejection) => return on_none(&rejection.reason, Plugin::VolumeBinding),
    };
    let extended = Extended::of(&pod.pod, &snapshot.devices, snapshot.nodes.from(0), offers);
    let devices = match dynamic_resources::State::of(&pod.pod, &snapshot.devices, extended.as_ref()) {
        _ if !profile.chosen.filters(Plugin::DynamicResources) => None,
        Ok(devices) => devices,
        Err(reason) => return on_none(&reason, Plugin::DynamicResources),
    };
    let exclusive = volume_restrictions::exclusive(pod, snapshot);
    let state = CycleState {
        profile,
        volumes,
        csi_volumes: node_volume_limits::volumes_by_driver(pod, snapshot),
        users_of_exclusive: volume_restrictions::users(&exclusive, pod, snapshot),
        exclusive,
        affinity: inter_pod_affinity::State::of(pod, snapshot, &profile.args),
        spread: pod_topology_spread::State::of(pod, snapshot, profile.args.spread.as_deref()),
        devices,
    };
    let tried = |node| (node, filter(pod, &snapshot.for_pod(pod, node), snapshot, &state));
    // Others have made room there.
    let promised = nominated_node(&pod.pod).and_then(|name| snapshot.nodes.get(name)).map(tried);
    if let Some((node, Ok(found))) = promised {
        return settled(found.on(node), BTreeSet::new(), 0);
    }
    let (mut feasible, mut rejected) = (Vec::new(), Vec::new());
    // Where nothing is compared the first one is as good as any.
    let enough =
        if profile.chosen.compares() { enough(total, profile.percentage_of_nodes_to_score) } else { 1 };
    for (node, outcome) in snapshot.nodes.from(snapshot.start).map(tried) {
        match outcome {
            Ok(found) => feasible.push((node, found)),
            Err(Rejections { by, everywhere: Some(why), .. }) => {
                let message = format!("running \"{}\" filter plugin: {why}", by.name());
                return settled(Decision::Failed(message), [by].into(), 0);
            }
            Err(rejections) => rejected.push((node, rejections)),
        }
        if feasible.len() >= enough {
            break;
        }
    }
    let looked_at = feasible.len() + rejected.len();
    let (decision, give_back) = match best(pod, snapshot, &state, feasible, tie) {
        Some(place) => (place, None),
        None => without_place(pod, snapshot, &state, &rejected),
    };
    let rejected_by = rejected.iter().map(|(_, rejections)| rejections.by).collect();
    Attempt { decision, rejected_by, looked_at, give_back }
}

/// What is written once a Pod goes to a node.
#[derive(Debug, Default)]
struct Found {
    bindings: Bindings,
    devices: Given,
}

impl Found {
    fn on(self, node: &NodeInfo) -> Decision {
        Decision::Place { node: node.name().to_owned(), bindings: self.bindings, devices: self.devices }
    }
}

/// The node that is taken of those that fit, if any does.
fn best(
    pod: &PodInfo,
    snapshot: &Snapshot,
    state: &CycleState<'_>,
    mut feasible: Vec<(&NodeInfo, Found)>,
    tie: usize,
) -> Option<Decision> {
    if feasible.len() > 1 {
        let nodes: Vec<&NodeInfo> = feasible.iter().map(|(node, _)| *node).collect();
        let score = |(_, found): &(&NodeInfo, Found)| {
            state.devices.as_ref().map(|devices| devices.score(&found.devices))
        };
        let devices: Option<Vec<i64>> = feasible.iter().map(score).collect();
        let scores = scoring::scores(pod, &nodes, devices.as_deref(), snapshot, state).into_iter();
        let ranks: Vec<_> =
            scores.zip(&nodes).map(|(score, node)| (score, Reverse(node.pods.len()))).collect();
        let best = ranks.iter().max().copied();
        let mut ranks = ranks.into_iter();
        feasible.retain(|_| ranks.next() == best);
    }
    let winner = tie.checked_rem(feasible.len())?;
    let (node, found) = feasible.swap_remove(winner);
    Some(found.on(node))
}

/// What is known about a Pod before nodes are looked at.
pub struct CycleState<'a> {
    pub(crate) profile: &'a Profile,
    volumes: volume_binding::PodVolumes,
    /// Its volumes that are bound, by driver and handle.
    csi_volumes: Vec<(String, String)>,
    /// The claims that it wants to be alone with, and how many Pods use one of them.
    exclusive: BTreeSet<&'a str>,
    users_of_exclusive: usize,
    pub(crate) affinity: inter_pod_affinity::State,
    pub(crate) spread: pod_topology_spread::State,
    /// Its claims of devices, if it has any.
    devices: Option<dynamic_resources::State<'a>>,
}

/// Which plugin has kept a Pod from a node, and why.
struct Rejections {
    by: Plugin,
    reasons: Vec<Rejection>,
    /// Why no other node need be looked at either.
    everywhere: Option<String>,
}

impl Rejections {
    fn here(by: Plugin, reasons: Vec<Rejection>) -> Self {
        Self { by, reasons, everywhere: None }
    }
}

/// What becomes of a Pod that fits nowhere as things are.
fn without_place(
    pod: &PodInfo,
    snapshot: &Snapshot,
    state: &CycleState<'_>,
    rejected: &[(&NodeInfo, Rejections)],
) -> (Decision, Option<Arc<ResourceClaim>>) {
    let total = rejected.len();
    let reasons = rejected.iter().flat_map(|(_, rejections)| &rejections.reasons).map(|r| r.reason.as_str());
    let mut message = format!("0/{total} nodes are available: {}.", counted(reasons));
    let helps = |plugin: Plugin| state.profile.chosen.has(plugin, Point::PostFilter);
    let without_devices = rejected.iter().filter(|(_, rejections)| rejections.by == Plugin::DynamicResources);
    let devices = state.devices.as_ref().filter(|_| helps(Plugin::DynamicResources));
    let give_back = devices
        .and_then(|devices| devices.to_give_back(&pod.pod, without_devices.map(|(node, _)| &*node.node)));
    if give_back.is_some() {
        message += " deallocation of ResourceClaim completed";
    }
    if !helps(Plugin::DefaultPreemption) {
        return (Decision::Nowhere(message), give_back);
    }
    let then = if give_back.is_some() { ", preemption:" } else { " preemption:" };
    if let Some(why) = preemption::forbidden(&pod.pod, snapshot) {
        message += &format!("{then} {why}");
        let decision = match nominated_node(&pod.pod) {
            Some(_) => Decision::Wait(message),
            None => Decision::Nowhere(message),
        };
        return (decision, give_back);
    }
    let (hopeless, hopeful): (Vec<_>, Vec<_>) =
        rejected.iter().partition(|(_, rejections)| rejections.reasons.iter().any(|r| r.lasting));
    let nodes = hopeful.iter().map(|(node, _)| *node);
    let budgets: Vec<_> = snapshot.budgets.values().map(AsRef::as_ref).collect();
    let candidates = preemption::candidates(total, &state.profile.args);
    let room = preemption::make_room(&pod.pod, nodes, &budgets, candidates, |node| {
        let fits = filter(pod, &snapshot.for_pod(pod, node), snapshot, state);
        fits.map(drop).map_err(|rejections| rejections.reasons.into_iter().map(|r| r.reason).collect())
    });
    let decision = match room {
        Ok(room) => Decision::Preempt(room, message),
        Err(mut why) => {
            why.extend(hopeless.iter().map(|_| "Preemption is not helpful for scheduling".to_owned()));
            let why = counted(why.iter().map(String::as_str));
            Decision::Nowhere(format!("{message}{then} 0/{total} nodes are available: {why}."))
        }
    };
    (decision, give_back)
}

fn filter(
    pod: &PodInfo,
    node: &NodeInfo,
    snapshot: &Snapshot,
    state: &CycleState<'_>,
) -> Result<Found, Rejections> {
    let (chosen, args) = (&state.profile.chosen, &state.profile.args);
    let check = |by: Plugin, filter: &dyn Fn() -> Result<(), Rejection>| {
        if !chosen.filters(by) {
            return Ok(());
        }
        filter().map_err(|rejection| Rejections::here(by, vec![rejection]))
    };
    check(Plugin::NodeUnschedulable, &|| node_unschedulable::filter(&pod.pod, node))?;
    check(Plugin::TaintToleration, &|| taint_toleration::filter(&pod.pod, node))?;
    check(Plugin::NodeAffinity, &|| node_affinity::filter(&pod.pod, node, args.added_affinity.as_ref()))?;
    check(Plugin::NodePorts, &|| node_ports::filter(pod, node))?;
    if chosen.filters(Plugin::NodeResourcesFit) {
        let short = |reasons| Rejections::here(Plugin::NodeResourcesFit, reasons);
        let by_devices = |name: &str| {
            chosen.filters(Plugin::DynamicResources)
                && !offers(node, name)
                && class_of(name, &snapshot.devices).is_some()
        };
        node_resources_fit::filter(pod, node, &args.ignored, by_devices).map_err(short)?;
    }
    check(Plugin::VolumeRestrictions, &|| {
        volume_restrictions::filter(&state.exclusive, state.users_of_exclusive, pod, node, snapshot)
    })?;
    check(Plugin::NodeVolumeLimits, &|| node_volume_limits::filter(&state.csi_volumes, node, snapshot))?;
    let mut bindings = Bindings::default();
    if chosen.filters(Plugin::VolumeBinding) {
        let unbound = |rejection| Rejections::here(Plugin::VolumeBinding, vec![rejection]);
        bindings = volume_binding::filter(&state.volumes, node, snapshot).map_err(unbound)?;
    }
    check(Plugin::VolumeZone, &|| volume_zone::filter(state.volumes.bound(), node))?;
    check(Plugin::PodTopologySpread, &|| state.spread.filter(pod, node, snapshot))?;
    check(Plugin::InterPodAffinity, &|| state.affinity.filter(pod, node, snapshot))?;
    let mut devices = Given::default();
    if let Some(claims) = &state.devices {
        let by = Plugin::DynamicResources;
        devices = claims.filter(&node.node, |name| offers(node, name)).map_err(|refusal| match refusal {
            Refusal::Here(rejection) => Rejections::here(by, vec![rejection]),
            Refusal::Everywhere(why) => Rejections { by, reasons: Vec::new(), everywhere: Some(why) },
        })?;
    }
    Ok(Found { bindings, devices })
}

/// Whether a node has something of a resource without devices.
fn offers(node: &NodeInfo, name: &str) -> bool {
    node.allocatable.of(&Kind::of(name)) > 0
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

/// Decides for a Pod of which nothing is known yet.
#[cfg(test)]
pub fn decide(
    pod: &trine_typed::k8s_openapi::api::core::v1::Pod,
    snapshot: &Snapshot,
    tie: usize,
) -> Decision {
    attempt(&std::sync::Arc::new(pod.clone()).into(), snapshot, &Profile::default(), tie).decision
}

#[cfg(test)]
#[path = "framework_tests.rs"]
mod tests;
