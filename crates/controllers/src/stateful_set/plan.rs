//! What a StatefulSet does next: which Pods and claims it makes, removes and mends, and what it says.
//!
//! In order, one thing is done at a time, and each Pod waits until those before it are available. In parallel, nobody waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trine_typed::k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::ResourceExt;
use trine_typed::pods::is_finished;

use super::identity::{self, is_wanted, ordinal, start, wanted};
use super::retention;
use crate::workload::claim::reference;
use crate::workload::readiness::{available_in, is_available, is_ready};
use crate::workload::share::{self, Round};

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// A claim that a Pod needs.
    CreateClaim(Box<PersistentVolumeClaim>, String),
    /// Other owners for a claim.
    Own(Arc<PersistentVolumeClaim>, Vec<OwnerReference>),
    /// A Pod that is missing.
    Create(Box<Pod>),
    /// A Pod that goes.
    Delete(Arc<Pod>),
    /// A Pod that has lost the label with its name.
    Label(Arc<Pod>),
    /// A Pod cannot be made, because of this.
    Fail(String, String),
}

/// A revision: its name and the template that it keeps.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    /// Its name.
    pub name: String,
    /// The template.
    pub template: PodTemplateSpec,
}

/// What a decision is about.
pub struct Turn<'a> {
    /// The set.
    pub set: &'a StatefulSet,
    /// What Pods were made of before the last change.
    pub current: &'a Revision,
    /// What they are made of since.
    pub update: &'a Revision,
    /// The Pods that the set controls.
    pub pods: &'a [Arc<Pod>],
    /// The claims of the namespace that may be the set's, by name.
    pub claims: &'a BTreeMap<String, Arc<PersistentVolumeClaim>>,
    /// The time.
    pub now: Timestamp,
}

/// What a StatefulSet does in a turn.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// What is done, in order.
    pub acts: Vec<Act>,
    /// When to look again.
    pub again: Option<Duration>,
}

/// Whether the turn goes on.
#[derive(PartialEq)]
enum Go {
    On,
    No,
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

impl Turn<'_> {
    fn is_parallel(&self) -> bool {
        self.set.spec.pod_management_policy.as_deref() == Some("Parallel")
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.set.spec.min_ready_seconds.unwrap_or_default(), self.now)
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        !self.is_available(pod) || is_going(pod)
    }

    /// The Pod of each wanted ordinal.
    fn wanted(&self) -> Vec<(i32, Option<&Arc<Pod>>)> {
        let first = start(self.set);
        let find = |wanted: i32| self.pods.iter().find(|pod| ordinal(self.set, pod) == Some(wanted));
        (first..first.saturating_add(wanted(self.set))).map(|wanted| (wanted, find(wanted))).collect()
    }

    /// The others, the highest ordinal first.
    fn condemned(&self) -> Vec<&Arc<Pod>> {
        let of = |pod: &&Arc<Pod>| ordinal(self.set, pod).filter(|ordinal| !is_wanted(self.set, *ordinal));
        let mut pods: Vec<&Arc<Pod>> = self.pods.iter().filter(|pod| of(pod).is_some()).collect();
        pods.sort_by_key(|pod| std::cmp::Reverse(of(pod)));
        pods
    }

    fn strategy(&self) -> &str {
        let strategy = self.set.spec.update_strategy.as_ref();
        strategy.and_then(|s| s.type_.as_deref()).unwrap_or("RollingUpdate")
    }

    fn partition(&self) -> Option<i32> {
        Some(self.set.spec.update_strategy.as_ref()?.rolling_update.as_ref()?.partition.unwrap_or_default())
    }

    /// The revision that a new Pod of an ordinal is made of.
    fn revision_of(&self, ordinal: i32) -> &Revision {
        let replicas = self.set.status.as_ref().and_then(|s| s.current_replicas).unwrap_or_default();
        let olds = match self.partition() {
            _ if self.strategy() != "RollingUpdate" => 0,
            Some(partition) => partition,
            None => replicas,
        };
        if ordinal < start(self.set).saturating_add(olds) { self.current } else { self.update }
    }
}

/// Decides for a StatefulSet.
#[must_use]
pub fn plan(turn: &Turn) -> Plan {
    let mut plan = Plan::default();
    if turn.set.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    for pod in turn.pods.iter().filter(|pod| !is_going(pod)) {
        let least = turn.set.spec.min_ready_seconds.unwrap_or_default();
        if let Some(wait) = available_in(pod, least, turn.now).filter(|wait| !wait.is_zero()) {
            plan.again = Some(plan.again.map_or(wait, |again| again.min(wait)));
        }
    }
    if scale(&mut plan.acts, turn) == Go::On && turn.strategy() == "RollingUpdate" {
        update(&mut plan.acts, turn);
    }
    plan
}

/// Sees that all that is wanted is there, and nothing else.
fn scale(acts: &mut Vec<Act>, turn: &Turn) -> Go {
    let in_order = !turn.is_parallel();
    for (ordinal, pod) in turn.wanted() {
        let go = match pod {
            None => {
                create(acts, turn, ordinal);
                Go::No
            }
            Some(pod) => keep(acts, turn, ordinal, pod),
        };
        if go == Go::No && in_order {
            return Go::No;
        }
    }
    let condemned = turn.condemned();
    for pod in &condemned {
        own(acts, turn, pod);
    }
    let unavailable = |pod: &&Arc<Pod>| turn.is_unavailable(pod);
    let first = turn.wanted().into_iter().find_map(|(_, pod)| pod.filter(|pod| unavailable(pod)));
    let first = first.or_else(|| condemned.iter().rev().copied().find(unavailable));
    for pod in condemned {
        let is_first = first.is_some_and(|first| Arc::ptr_eq(first, pod));
        match (in_order, is_going(pod)) {
            (true, true) => return Go::No,
            // What is not well is in the way, unless it is what has to go first. Upstream waits for a Pod that has failed, too,
            // and for ever if one below it has.
            (true, false) if !turn.is_available(pod) && !is_first && !is_finished(pod) => return Go::No,
            (_, false) => acts.push(Act::Delete(Arc::clone(pod))),
            (false, true) => {}
        }
        if in_order {
            return Go::No;
        }
    }
    Go::On
}

/// Makes a Pod, with its claims before it.
fn create(acts: &mut Vec<Act>, turn: &Turn, ordinal: i32) {
    let revision = turn.revision_of(ordinal);
    let pod = identity::pod(turn.set, &revision.template, &revision.name, ordinal);
    let claims = identity::claims(turn.set, ordinal);
    let there = |claim: &PersistentVolumeClaim| turn.claims.get(&claim.name_any());
    if claims.values().filter_map(there).any(|claim| retention::is_stale(claim, turn.set, &pod)) {
        return;
    }
    if let Some(going) = claims.values().filter_map(there).find(|c| c.metadata.deletion_timestamp.is_some()) {
        let why = format!("pvc {} is being deleted", going.name_any());
        return acts.push(Act::Fail(pod.name_any(), why));
    }
    create_claims(acts, turn, ordinal, &pod.name_any());
    acts.push(Act::Create(Box::new(pod)));
}

/// Makes the claims of an ordinal that are missing; they go with the set from the beginning, if they do.
fn create_claims(acts: &mut Vec<Act>, turn: &Turn, ordinal: i32, pod: &str) {
    for mut claim in identity::claims(turn.set, ordinal).into_values() {
        if !turn.claims.contains_key(&claim.name_any()) {
            if retention::goes_with_set(turn.set) {
                claim.metadata.owner_references = Some(vec![reference(turn.set)]);
            }
            acts.push(Act::CreateClaim(Box::new(claim), pod.to_owned()));
        }
    }
}

/// Sees to a Pod that is there; says whether those after it may go on.
fn keep(acts: &mut Vec<Act>, turn: &Turn, ordinal: i32, pod: &Arc<Pod>) -> Go {
    if is_finished(pod) {
        // It ran to its end, or was thrown out: another one takes its place.
        if !is_going(pod) {
            acts.push(Act::Delete(Arc::clone(pod)));
        }
        return Go::No;
    }
    if phase(pod) == "Pending" {
        create_claims(acts, turn, ordinal, &pod.name_any());
    }
    let well = phase(pod) == "Running" && is_ready(pod) && turn.is_available(pod) && !is_going(pod);
    if !well && !turn.is_parallel() {
        return Go::No;
    }
    own(acts, turn, pod);
    if pod.labels().get(identity::NAME) != pod.metadata.name.as_ref() {
        acts.push(Act::Label(Arc::clone(pod)));
    }
    Go::On
}

/// Sees that the claims of a Pod go with whom they should.
fn own(acts: &mut Vec<Act>, turn: &Turn, pod: &Pod) {
    let Some(ordinal) = ordinal(turn.set, pod) else { return };
    for claim in identity::claims(turn.set, ordinal).into_values() {
        if let Some(claim) = turn.claims.get(&claim.name_any())
            && let Some(owners) = retention::owners(claim, turn.set, pod)
        {
            acts.push(Act::Own(Arc::clone(claim), owners));
        }
    }
}

/// Removes Pods of old revisions, from the highest ordinal down to the partition, as many as may be unavailable.
fn update(acts: &mut Vec<Act>, turn: &Turn) {
    let rolling = turn.set.spec.update_strategy.as_ref().and_then(|s| s.rolling_update.as_ref());
    let limit = rolling.and_then(|r| r.max_unavailable.as_ref());
    let limit = limit.map_or(1, |value| share::of(value, wanted(turn.set), Round::Down)).max(1);
    let all = turn.wanted();
    let unavailable = all.iter().filter(|(_, pod)| pod.is_none_or(|pod| turn.is_unavailable(pod))).count();
    let unavailable = i32::try_from(unavailable).unwrap_or(i32::MAX);
    let partition = usize::try_from(turn.partition().unwrap_or_default()).unwrap_or_default();
    let olds = all.iter().skip(partition).rev().filter_map(|(_, pod)| *pod);
    let olds =
        olds.filter(|pod| identity::revision(pod) != Some(turn.update.name.as_str()) && !is_going(pod));
    let mut left = usize::try_from(limit - unavailable).unwrap_or_default();
    let mut gone = Vec::new();
    for pod in olds {
        // In parallel, what is of no use goes at once.
        let useless = turn.is_parallel() && turn.is_unavailable(pod);
        if useless {
            gone.push(pod);
        } else if left > 0 {
            left -= 1;
            gone.push(pod);
        }
    }
    acts.extend(gone.into_iter().map(|pod| Act::Delete(Arc::clone(pod))));
}

/// What is to be said of a set whose Pods are these.
#[must_use]
pub fn status(turn: &Turn, collisions: i32) -> StatefulSetStatus {
    let members: Vec<&Arc<Pod>> = turn.pods.iter().filter(|pod| ordinal(turn.set, pod).is_some()).collect();
    let count = |is: &dyn Fn(&Pod) -> bool| {
        i32::try_from(members.iter().filter(|pod| is(pod)).count()).unwrap_or(i32::MAX)
    };
    let ready = |pod: &Pod| phase(pod) == "Running" && is_ready(pod);
    let of = |name: &str| count(&|pod| !is_going(pod) && identity::revision(pod) == Some(name));
    let some = |number: i32| (number != 0).then_some(number);
    let updated = of(&turn.update.name);
    let mut status = StatefulSetStatus {
        available_replicas: Some(count(&|pod| ready(pod) && turn.is_available(pod))),
        collision_count: Some(collisions),
        conditions: turn.set.status.as_ref().and_then(|s| s.conditions.clone()),
        current_replicas: some(of(&turn.current.name)),
        current_revision: Some(turn.current.name.clone()),
        observed_generation: turn.set.metadata.generation,
        ready_replicas: some(count(&ready)),
        replicas: count(&|_| true),
        update_revision: Some(turn.update.name.clone()),
        updated_replicas: some(updated),
    };
    let wanted = wanted(turn.set);
    if [updated, status.ready_replicas.unwrap_or_default(), status.replicas].iter().all(|n| *n == wanted) {
        status.current_replicas = some(updated);
        status.current_revision.clone_from(&status.update_revision);
    }
    status
}
