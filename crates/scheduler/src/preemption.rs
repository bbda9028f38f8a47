//! DefaultPreemption: which Pods make room for one of higher priority. Pure. As upstream: on each node that could help, all Pods of
//! lower priority are taken away and, the most important first, given back as long as the Pod still fits; Pods whose budget
//! forbids it are given back before others. Of the nodes the one whose victims matter least is taken.

use std::cmp::Reverse;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::policy::v1::PodDisruptionBudget;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::placement::labels_match;

use crate::pod_info::PodInfo;
use crate::profile::Args;
use crate::snapshot::{NodeInfo, Snapshot};

/// Why a Pod on its way out goes, in its `DisruptionTarget` condition.
pub const REASON: &str = "PreemptionByScheduler";

/// The room that is made for a Pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Room {
    /// Where.
    pub node: String,
    /// Who goes, the most important first.
    pub victims: Vec<Arc<Pod>>,
}

/// Why a Pod may not have others removed.
#[must_use]
pub fn forbidden(pod: &Pod, snapshot: &Snapshot) -> Option<&'static str> {
    if pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let node = snapshot.nodes.get(nominated_node(pod)?)?;
    let goes = |other: &PodInfo| {
        let other = &other.pod;
        other.metadata.deletion_timestamp.is_some() && priority(other) < priority(pod) && is_preempted(other)
    };
    node.pods.iter().any(goes).then_some("not eligible due to a terminating pod on the nominated node.")
}

/// The node that was promised to a Pod.
#[must_use]
pub fn nominated_node(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
}

fn is_preempted(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")
        .any(|condition| condition.reason.as_deref() == Some(REASON))
}

/// A Pod's priority, 0 unless it has one.
#[must_use]
pub fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default()
}

/// On how many nodes that can make room the least painful is looked for, of so many nodes. Upstream:
/// `calculateNumCandidates`.
#[must_use]
pub fn candidates(nodes: usize, args: &Args) -> usize {
    (nodes * args.candidates_percentage / 100).max(args.candidates_absolute)
}

/// Makes room on the best of the first `candidates` of `nodes` that can make some; `fits` says whether the Pod fits on a node as it would be then, or else why not.
///
/// # Errors
/// Why each of the nodes is no help, if none is.
pub fn make_room<'a>(
    pod: &Pod,
    nodes: impl Iterator<Item = &'a NodeInfo>,
    budgets: &[&PodDisruptionBudget],
    candidates: usize,
    fits: impl Fn(&NodeInfo) -> Result<(), Vec<String>>,
) -> Result<Room, Vec<String>> {
    let mut rooms = Vec::new();
    let mut reasons = Vec::new();
    for node in nodes {
        match victims_on(pod, node, budgets, &fits) {
            Ok(victims) => rooms.push((node, victims)),
            Err(why) => reasons.extend(why),
        }
        if rooms.len() >= candidates {
            break;
        }
    }
    let cheapest = rooms.into_iter().min_by_key(|(_, victims)| victims.cost());
    let Some((node, victims)) = cheapest else { return Err(reasons) };
    Ok(Room { node: node.name().to_owned(), victims: victims.pods })
}

/// Who would have to go from one node.
struct Victims {
    /// The most important first.
    pods: Vec<Arc<Pod>>,
    /// How many of them are removed against their budget.
    against_budget: usize,
}

impl Victims {
    /// What upstream compares, in its order.
    fn cost(&self) -> (usize, i32, i64, usize, Reverse<Option<Timestamp>>) {
        let highest = self.pods.iter().map(|pod| priority(pod)).max().unwrap_or(i32::MIN);
        // Moved so that no priority is negative: many small ones cost more than few.
        let sum = self.pods.iter().map(|pod| i64::from(priority(pod)) - i64::from(i32::MIN)).sum();
        let earliest =
            self.pods.iter().filter(|pod| priority(pod) == highest).filter_map(|pod| started(pod)).min();
        (self.against_budget, highest, sum, self.pods.len(), Reverse(earliest))
    }
}

fn victims_on(
    pod: &Pod,
    node: &NodeInfo,
    budgets: &[&PodDisruptionBudget],
    fits: impl Fn(&NodeInfo) -> Result<(), Vec<String>>,
) -> Result<Victims, Vec<String>> {
    let (mut lower, stay): (Vec<_>, Vec<_>) =
        node.pods.iter().cloned().partition(|other| priority(&other.pod) < priority(pod));
    if lower.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".to_owned()]);
    }
    let mut emptied = node.emptied();
    for other in stay {
        emptied.add(other);
    }
    fits(&emptied)?;
    lower.sort_by_key(|other| importance(&other.pod));
    let (held, free) = by_budget(lower, budgets);
    let mut victims = Victims { pods: Vec::new(), against_budget: 0 };
    let held_ones = held.len();
    for (i, other) in held.into_iter().chain(free).enumerate() {
        emptied.add(other.clone());
        if fits(&emptied).is_err() {
            emptied.remove(other.uid());
            victims.against_budget += usize::from(i < held_ones);
            victims.pods.push(other.pod);
        }
    }
    victims.pods.sort_by_key(importance);
    Ok(victims)
}

/// Sorts the most important first: of the highest priority, then who has run longest.
fn importance(pod: &Arc<Pod>) -> (Reverse<i32>, Option<Timestamp>) {
    (Reverse(priority(pod)), started(pod))
}

fn started(pod: &Pod) -> Option<Timestamp> {
    Some(pod.status.as_ref()?.start_time.as_ref()?.0)
}

/// The Pods whose removal breaks a budget, when they go in this order, and the others.
fn by_budget(pods: Vec<PodInfo>, budgets: &[&PodDisruptionBudget]) -> (Vec<PodInfo>, Vec<PodInfo>) {
    let mut left: Vec<i32> = budgets
        .iter()
        .map(|b| b.status.as_ref().and_then(|s| s.disruptions_allowed).unwrap_or_default())
        .collect();
    pods.into_iter().partition(|pod| {
        let mut breaks = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            if covers(budget, &pod.pod) {
                *left -= 1;
                breaks |= *left < 0;
            }
        }
        breaks
    })
}

/// Whether a budget is for a Pod; one that is going by its leave is counted already.
fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref().filter(|labels| !labels.is_empty());
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let (Some(labels), Some(selector)) = (labels, selector) else { return false };
    let disrupted = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    budget.metadata.namespace == pod.metadata.namespace
        && labels_match(selector, Some(labels))
        && !disrupted.is_some_and(|pods| pods.contains_key(name))
}

#[cfg(test)]
#[path = "preemption_tests.rs"]
mod tests;
