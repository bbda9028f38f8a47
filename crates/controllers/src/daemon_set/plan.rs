//! Which nodes a DaemonSet gives a Pod, which Pods it removes, and what it says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus, RollingUpdateDaemonSet};
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod};
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::pods::is_finished;

use super::pod::{Belongs, HASH, belongs, node_of, tolerations};
use crate::workload::readiness::{available_in, is_available, is_ready};
use crate::workload::share::{self, Round};

/// Something to tell.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// How bad it is.
    pub level: Level,
    /// The reason of the event.
    pub reason: &'static str,
    /// What it says.
    pub text: String,
}

/// What a DaemonSet does in a turn.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Nodes that get a Pod.
    pub create: Vec<String>,
    /// Pods that go.
    pub delete: Vec<Arc<Pod>>,
    /// Nodes whose failed Pod goes: the next one there that fails stays longer.
    pub failed: Vec<String>,
    /// What is told.
    pub notes: Vec<Note>,
    /// When to look again.
    pub again: Option<Duration>,
}

impl Plan {
    fn look_again(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |again| again.min(wait)));
    }
}

/// What a decision is about: a DaemonSet, all nodes, its Pods, and the time.
pub struct Turn<'a> {
    set: &'a DaemonSet,
    /// The hash of its template.
    hash: &'a str,
    nodes: Vec<(&'a str, Belongs)>,
    pods: BTreeMap<&'a str, Vec<&'a Arc<Pod>>>,
    now: Timestamp,
}

impl<'a> Turn<'a> {
    /// `pods` are those that the DaemonSet controls.
    #[must_use]
    pub fn new(
        set: &'a DaemonSet,
        hash: &'a str,
        nodes: &'a [Arc<Node>],
        pods: &'a [Arc<Pod>],
        now: Timestamp,
    ) -> Self {
        let tolerations = tolerations(set);
        let name = |node: &'a Arc<Node>| node.metadata.name.as_deref().unwrap_or_default();
        let nodes = nodes.iter().map(|node| (name(node), belongs(set, node, &tolerations))).collect();
        let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in pods {
            // What has ended and is going is nobody's business any more.
            let over = is_finished(pod) && is_going(pod);
            if let Some(node) = node_of(pod).filter(|_| !over) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        for pods in by_node.values_mut() {
            pods.sort_by_key(|pod| {
                let placed = pod.spec.as_ref().and_then(|s| s.node_name.as_ref()).is_some();
                let made = pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
                (!placed, made, pod.metadata.name.clone())
            });
        }
        Self { set, hash, nodes, pods: by_node, now }
    }

    fn on(&self, node: &str) -> &[&'a Arc<Pod>] {
        self.pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    fn is_new(&self, pod: &Pod) -> bool {
        pod.metadata.labels.as_ref().and_then(|l| l.get(HASH)).is_some_and(|hash| hash == self.hash)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.set.spec.min_ready_seconds.unwrap_or_default(), self.now)
    }

    fn wanted(&self) -> i32 {
        let wanted = self.nodes.iter().filter(|(_, belongs)| *belongs == Belongs::Yes).count();
        i32::try_from(wanted).unwrap_or(i32::MAX)
    }
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

/// Decides for a DaemonSet: that each node has its Pod comes first, new templates after that. `waits` says how long a failed Pod
/// of a node has to stay yet.
#[must_use]
pub fn plan(turn: &Turn, waits: &BTreeMap<String, Duration>) -> Plan {
    let mut plan = Plan::default();
    for (node, belongs) in &turn.nodes {
        place(&mut plan, turn, node, *belongs, waits.get(*node).copied().unwrap_or_default());
    }
    // What never got to its node is removed by nobody else when that is gone.
    let known = |node: &str| turn.nodes.iter().any(|(name, _)| *name == node);
    for (_, pods) in turn.pods.iter().filter(|(node, _)| !known(node)) {
        let unplaced = pods.iter().filter(|pod| pod.spec.as_ref().is_none_or(|s| s.node_name.is_none()));
        plan.delete.extend(unplaced.filter(|pod| !is_going(pod)).map(|pod| Arc::clone(pod)));
    }
    if plan.create.is_empty() && plan.delete.is_empty() {
        roll(&mut plan, turn);
    }
    for pod in turn.pods.values().flatten() {
        let least = turn.set.spec.min_ready_seconds.unwrap_or_default();
        if let Some(wait) = available_in(pod, least, turn.now).filter(|wait| !wait.is_zero()) {
            plan.look_again(wait);
        }
    }
    plan
}

/// What a node has to have and not to have.
fn place(plan: &mut Plan, turn: &Turn, node: &str, belongs: Belongs, wait: Duration) {
    let pods = turn.on(node);
    match belongs {
        Belongs::Yes if pods.is_empty() => plan.create.push(node.to_owned()),
        Belongs::No => {
            plan.delete.extend(pods.iter().filter(|pod| !is_going(pod)).map(|pod| Arc::clone(pod)))
        }
        Belongs::Yes | Belongs::MayStay => {
            let mut running = Vec::new();
            for pod in pods.iter().filter(|pod| !is_going(pod)) {
                match phase(pod) {
                    // A kubelet that refuses Pods would be asked again and again.
                    "Failed" if !wait.is_zero() => plan.look_again(wait),
                    "Failed" => {
                        plan.failed.push(node.to_owned());
                        remove_ended(plan, pod, node, Level::Warning, "FailedDaemonPod", "failed", "kill");
                    }
                    "Succeeded" => {
                        remove_ended(
                            plan,
                            pod,
                            node,
                            Level::Normal,
                            "SucceededDaemonPod",
                            "succeeded",
                            "delete",
                        );
                    }
                    _ => running.push(*pod),
                }
            }
            if limits(turn).0 == 0 {
                plan.delete.extend(running.into_iter().skip(1).map(Arc::clone));
            } else if running.is_empty() {
                // A Pod on its way out makes nobody wait, if there may be two.
                let failed = pods.iter().any(|pod| phase(pod) == "Failed" && !is_going(pod));
                if belongs == Belongs::Yes && !failed {
                    plan.create.push(node.to_owned());
                }
            } else {
                plan.delete.extend(superseded(turn, &running).into_iter().cloned());
            }
        }
    }
}

fn remove_ended(
    plan: &mut Plan,
    pod: &Arc<Pod>,
    node: &str,
    level: Level,
    reason: &'static str,
    how: &str,
    what: &str,
) {
    let meta = &pod.metadata;
    let (namespace, name) =
        (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let text = format!("Found {how} daemon pod {namespace}/{name} on node {node}, will try to {what} it");
    plan.notes.push(Note { level, reason, text });
    plan.delete.push(Arc::clone(pod));
}

/// Of an old and a new Pod on one node the old one goes when it is of no use or the new one is; all others go at once.
fn superseded<'a>(turn: &Turn, running: &[&'a Arc<Pod>]) -> Vec<&'a Arc<Pod>> {
    let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = running.iter().partition(|pod| turn.is_new(pod));
    let mut gone: Vec<&Arc<Pod>> = new.iter().skip(1).chain(old.iter().skip(1)).copied().collect();
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!is_ready(old) || turn.is_available(new))
    {
        gone.push(old);
    }
    gone
}

/// How many nodes may have two Pods, and how many none that is available.
fn limits(turn: &Turn) -> (i32, i32) {
    let strategy = turn.set.spec.update_strategy.as_ref();
    let nothing = RollingUpdateDaemonSet::default();
    let rolling = match strategy {
        Some(strategy) if strategy.type_.as_deref() == Some("OnDelete") => return (0, 0),
        Some(strategy) => strategy.rolling_update.as_ref().unwrap_or(&nothing),
        None => &nothing,
    };
    let total = turn.wanted();
    let surge = rolling.max_surge.as_ref().map_or(0, |value| share::of(value, total.max(1), Round::Up));
    let unavailable = rolling.max_unavailable.as_ref().map_or(1, |value| share::of(value, total, Round::Up));
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// The old and the new Pod of a node.
type Pair<'a> = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>);

/// They; none if there are more than one of a kind, which are removed first.
fn pair<'a>(turn: &Turn, pods: &[&'a Arc<Pod>]) -> Option<Pair<'a>> {
    let staying = pods.iter().filter(|pod| !is_going(pod));
    let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = staying.partition(|pod| turn.is_new(pod));
    (new.len() <= 1 && old.len() <= 1).then(|| (old.first().copied(), new.first().copied()))
}

/// A step of a rolling update.
fn roll(plan: &mut Plan, turn: &Turn) {
    let strategy = turn.set.spec.update_strategy.as_ref().and_then(|s| s.type_.as_deref());
    if strategy == Some("OnDelete") {
        return;
    }
    let (surge, unavailable) = limits(turn);
    if surge == 0 { replace(plan, turn, unavailable) } else { stand_in(plan, turn, surge) }
}

/// Old Pods go, and the nodes get new ones: those that are of no use at once, others as many as may be missing.
fn replace(plan: &mut Plan, turn: &Turn, unavailable: i32) {
    let (mut missing, mut useful) = (0, Vec::new());
    let wanted = turn.nodes.iter().filter(|(_, belongs)| *belongs == Belongs::Yes).map(|(node, _)| *node);
    let nodes: std::collections::BTreeSet<&str> = wanted.chain(turn.pods.keys().copied()).collect();
    for node in nodes {
        match pair(turn, turn.on(node)) {
            Some((None, Some(new))) if turn.is_available(new) => {}
            Some((Some(old), None)) if turn.is_available(old) => useful.push(old),
            Some((Some(old), None)) => {
                missing += 1;
                plan.delete.push(Arc::clone(old));
            }
            _ => missing += 1,
        }
    }
    let more = usize::try_from(unavailable - missing).unwrap_or_default();
    plan.delete.extend(useful.into_iter().take(more).cloned());
}

/// New Pods come beside the old ones, as many as there may be too many; an old one goes when the new one is available.
fn stand_in(plan: &mut Plan, turn: &Turn, surge: i32) {
    let belongs: BTreeMap<&str, Belongs> = turn.nodes.iter().copied().collect();
    let (mut under_way, mut available) = (0, 0);
    let (mut candidates, mut misplaced) = (Vec::new(), Vec::new());
    for (node, pods) in &turn.pods {
        let Some((old, new)) = pair(turn, pods) else {
            under_way += 1;
            continue;
        };
        if old.or(new).is_some_and(|pod| turn.is_available(pod)) {
            available += 1;
        }
        let Some(old) = old else { continue };
        let stays = belongs.get(node) == Some(&Belongs::Yes);
        match new {
            None if !turn.is_available(old) && stays => plan.create.push((*node).to_owned()),
            None if !turn.is_available(old) => plan.delete.push(Arc::clone(old)),
            None if stays => candidates.push(*node),
            None => misplaced.push(old),
            Some(new) if turn.is_available(new) => plan.delete.push(Arc::clone(old)),
            Some(_) => under_way += 1,
        }
    }
    // A Pod whose node is no longer wanted stays until enough others are available.
    let spare = usize::try_from(available - turn.wanted()).unwrap_or_default();
    plan.delete.extend(misplaced.into_iter().take(spare).cloned());
    let more = usize::try_from(surge - under_way).unwrap_or_default();
    plan.create.extend(candidates.into_iter().take(more).map(str::to_owned));
}

/// What is to be said. The oldest Pod of a node counts.
#[must_use]
pub fn status(turn: &Turn) -> DaemonSetStatus {
    let old = turn.set.status.clone().unwrap_or_default();
    let (mut current, mut misplaced, mut ready, mut updated, mut available) = (0, 0, 0, 0, 0);
    for (node, belongs) in &turn.nodes {
        let first = turn.on(node).first();
        match (belongs, first) {
            (Belongs::Yes, Some(pod)) => {
                current += 1;
                ready += i32::from(is_ready(pod));
                available += i32::from(turn.is_available(pod));
                updated += i32::from(turn.is_new(pod));
            }
            (Belongs::MayStay | Belongs::No, Some(_)) => misplaced += 1,
            (_, None) => {}
        }
    }
    let some = |number: i32| (number != 0).then_some(number);
    DaemonSetStatus {
        collision_count: old.collision_count,
        conditions: old.conditions,
        current_number_scheduled: current,
        desired_number_scheduled: turn.wanted(),
        number_available: some(available),
        number_misscheduled: misplaced,
        number_ready: ready,
        number_unavailable: some(turn.wanted() - available),
        observed_generation: turn.set.metadata.generation,
        updated_number_scheduled: some(updated),
    }
}
