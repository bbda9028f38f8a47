//! A Deployment and its ReplicaSets within one turn, and what the turn has changed of them.

use std::collections::BTreeMap;
use std::time::Duration;

use trine_typed::k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::limits::{Limits, is_rolling, limits, wanted};
use super::plan::{Change, Plan};
use super::status::{self, actual, available, condition, progress_reason, size};
use super::{annotations, proportion};
use crate::workload::claim::reference;
use crate::workload::template::{self, HASH_LABEL};

/// The longest name of an object, bytes.
const NAME_MAX: usize = 253;

pub(super) struct Rollout {
    before: Deployment,
    deployment: Deployment,
    sets_before: Vec<ReplicaSet>,
    /// From the oldest on; the last one may be yet to be made.
    sets: Vec<ReplicaSet>,
    /// The one with the Deployment's template.
    new: Option<usize>,
    delete: Vec<String>,
    again: Option<Duration>,
    limits: Limits,
    now: Timestamp,
}

impl Rollout {
    pub fn new(deployment: Deployment, mut sets: Vec<ReplicaSet>, now: Timestamp) -> Self {
        sets.sort_by(|a, b| age(a).cmp(&age(b)));
        let wanted = &deployment.spec.template;
        let new =
            sets.iter().position(|set| set.spec.template.as_ref().is_some_and(|t| template::same(t, wanted)));
        let limits = limits(&deployment);
        let (before, sets_before) = (deployment.clone(), sets.clone());
        Self { before, deployment, sets_before, sets, new, delete: Vec::new(), again: None, limits, now }
    }

    pub fn is_paused(&self) -> bool {
        self.deployment.spec.paused.unwrap_or_default()
    }

    pub fn is_rolling(&self) -> bool {
        is_rolling(&self.deployment)
    }

    /// Whether the Deployment was resized since its ReplicaSets were.
    pub fn is_resized(&self) -> bool {
        let wanted = wanted(&self.deployment);
        let mut active = self.sets.iter().filter(|set| size(set) > 0);
        active.any(|set| annotations::desired(set).is_some_and(|desired| desired != wanted))
    }

    /// Whether the rollout was done when the turn began.
    pub fn was_complete(&self) -> bool {
        let status = self.deployment.status.clone().unwrap_or_default();
        status::is_complete(&self.deployment, &status)
    }

    fn status(&mut self) -> &mut DeploymentStatus {
        self.deployment.status.get_or_insert_default()
    }

    fn progress(&mut self, status: &str, reason: &str, message: String) {
        let fresh = condition(status::PROGRESSING, status, reason, message, self.now);
        status::set(self.status(), fresh);
    }

    /// A pause stops the clock of the rollout; its end starts it anew.
    pub fn note_pause(&mut self) {
        if status::deadline(&self.deployment).is_none() {
            return;
        }
        let reason = self.deployment.status.as_ref().and_then(progress_reason).map(str::to_owned);
        let noted = reason.as_deref() == Some(status::PAUSED);
        match (self.is_paused(), noted) {
            _ if reason.as_deref() == Some(status::TIMED_OUT) => {}
            (true, false) => self.progress("Unknown", status::PAUSED, "Deployment is paused".to_owned()),
            (false, true) => {
                self.progress("Unknown", "DeploymentResumed", "Deployment is resumed".to_owned());
            }
            _ => {}
        }
    }

    /// The revision that comes after those of the old ReplicaSets.
    fn next_revision(&self) -> i64 {
        let olds = self.olds();
        olds.iter().filter_map(|i| annotations::revision(&self.sets[*i])).max().unwrap_or_default().max(0) + 1
    }

    /// The newest ReplicaSet, if it is there, says which revision it is; so does the Deployment.
    pub fn sync_revision(&mut self) {
        let Some(new) = self.new else { return };
        let (next, least) = (self.next_revision(), self.min_ready_seconds());
        let set = &mut self.sets[new];
        annotations::set_newest(&self.deployment, set, next);
        if set.spec.min_ready_seconds.unwrap_or_default() != least {
            set.spec.min_ready_seconds = Some(least);
        }
        let revision = set.metadata.annotations.as_ref().and_then(|a| a.get(annotations::REVISION)).cloned();
        let name = set.metadata.name.clone().unwrap_or_default();
        self.set_revision(revision.unwrap_or_default());
        let unsaid = self.deployment.status.as_ref().and_then(progress_reason).is_none();
        if unsaid && status::deadline(&self.deployment).is_some() {
            self.progress("True", "FoundNewReplicaSet", format!("Found new replica set \"{name}\""));
        }
    }

    fn set_revision(&mut self, revision: String) {
        let annotations = self.deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(annotations::REVISION.to_owned(), revision);
    }

    fn min_ready_seconds(&self) -> i32 {
        self.deployment.spec.min_ready_seconds.unwrap_or_default()
    }

    /// The newest ReplicaSet is made if it is not there, as large as it may be now.
    pub fn ensure_new(&mut self) {
        if self.new.is_some() {
            return;
        }
        let Some(mut set) = new_set(&self.deployment) else { return };
        let next = self.next_revision();
        annotations::set_newest(&self.deployment, &mut set, next);
        annotations::set_size(&self.deployment, &mut set);
        let name = set.metadata.name.clone().unwrap_or_default();
        self.sets.push(set);
        let new = self.sets.len() - 1;
        self.new = Some(new);
        let size = self.size_of_new(new);
        self.sets[new].spec.replicas = Some(size);
        self.set_revision(next.to_string());
        if status::deadline(&self.deployment).is_some() {
            self.progress("True", "NewReplicaSetCreated", format!("Created new replica set \"{name}\""));
        }
    }

    /// How large the newest ReplicaSet may be now.
    fn size_of_new(&self, new: usize) -> i32 {
        let (wanted, now) = (wanted(&self.deployment), size(&self.sets[new]));
        if !self.is_rolling() {
            return wanted;
        }
        let total: i32 = self.sets.iter().map(size).fold(0, i32::saturating_add);
        let room = wanted.saturating_add(self.limits.surge).saturating_sub(total);
        now + room.min(wanted - now).max(0)
    }

    /// Brings the newest ReplicaSet nearer to the wanted number; says whether that changes it.
    pub fn scale_up_new(&mut self) -> bool {
        let Some(new) = self.new else { return false };
        let wanted = wanted(&self.deployment);
        let to = if size(&self.sets[new]) > wanted { wanted } else { self.size_of_new(new) };
        self.scale(new, to)
    }

    /// The newest ReplicaSet gets the wanted number.
    pub fn fill_new(&mut self) {
        if let Some(new) = self.new {
            self.scale(new, wanted(&self.deployment));
        }
    }

    /// Takes from the old ReplicaSets what is not needed for availability: what is of no use first; says whether there was any.
    pub fn scale_down_old(&mut self) -> bool {
        let Some(new) = self.new else { return false };
        let olds = self.active_olds();
        let needed = wanted(&self.deployment) - self.limits.unavailable;
        let total: i32 = self.sets.iter().map(size).sum();
        let mut left = total - needed - (size(&self.sets[new]) - available(&self.sets[new]));
        if olds.is_empty() || left <= 0 {
            return false;
        }
        let mut any = false;
        for old in &olds {
            let set = &self.sets[*old];
            let useless = (size(set) - available(set)).min(left).max(0);
            if useless > 0 {
                let to = size(set) - useless;
                any |= self.scale(*old, to);
                left -= useless;
            }
        }
        // A set that has just been made smaller may not say so yet.
        let stays = |i: &usize| available(&self.sets[*i]).min(size(&self.sets[*i]));
        let mut spare = olds.iter().chain([&new]).map(stays).sum::<i32>() - needed;
        for old in &olds {
            let less = size(&self.sets[*old]).min(spare);
            if less > 0 {
                let to = size(&self.sets[*old]) - less;
                any |= self.scale(*old, to);
                spare -= less;
            }
        }
        any
    }

    /// Takes all from the old ReplicaSets; says whether there was any.
    pub fn stop_old(&mut self) -> bool {
        let olds = self.active_olds();
        for old in &olds {
            self.scale(*old, 0);
        }
        !olds.is_empty()
    }

    /// Whether Pods of old ReplicaSets have not ended.
    pub fn old_run(&self, running: &BTreeMap<String, usize>) -> bool {
        let new = self.new.and_then(|new| self.sets[new].metadata.uid.as_deref());
        self.olds().iter().any(|old| actual(&self.sets[*old]) > 0)
            || running.iter().any(|(uid, count)| *count > 0 && Some(uid.as_str()) != new)
    }

    /// Takes over the Deployment's wanted number without going on with a rollout.
    pub fn resize(&mut self) {
        let wanted = wanted(&self.deployment);
        let active: Vec<usize> = (0..self.sets.len()).filter(|i| size(&self.sets[*i]) > 0).collect();
        match active[..] {
            [] => {
                if let Some(latest) = self.new.or_else(|| self.sets.len().checked_sub(1)) {
                    self.scale(latest, wanted);
                }
            }
            [only] => {
                self.scale(only, wanted);
            }
            _ if self.new.is_some_and(|new| self.is_saturated(new)) => {
                self.stop_old();
            }
            _ if self.is_rolling() => {
                let sets: Vec<&ReplicaSet> = active.iter().map(|i| &self.sets[*i]).collect();
                let sizes = proportion::sizes(&self.deployment, &sets);
                for (i, to) in active.into_iter().zip(sizes) {
                    self.scale(i, to);
                    annotations::set_size(&self.deployment, &mut self.sets[i]);
                }
            }
            _ => {}
        }
    }

    /// Whether a ReplicaSet alone has all that is wanted.
    fn is_saturated(&self, set: usize) -> bool {
        let (wanted, set) = (wanted(&self.deployment), &self.sets[set]);
        size(set) == wanted && annotations::desired(set) == Some(wanted) && available(set) == wanted
    }

    /// Removes old ReplicaSets without Pods beyond the history that is kept.
    pub fn clean_up(&mut self) {
        let kept = self.deployment.spec.revision_history_limit;
        let Some(kept) = kept.filter(|kept| *kept != i32::MAX).and_then(|kept| usize::try_from(kept).ok())
        else {
            return;
        };
        let mut olds = self.olds();
        olds.retain(|i| self.sets[*i].metadata.deletion_timestamp.is_none());
        let revision = |i: &usize| annotations::revision(&self.sets[*i]).unwrap_or_default();
        olds.sort_by_key(revision);
        let extra = olds.len().saturating_sub(kept);
        for old in olds.into_iter().take(extra) {
            let set = &self.sets[old];
            let observed = set.status.as_ref().and_then(|s| s.observed_generation).unwrap_or_default();
            let current = set.metadata.generation.unwrap_or_default() <= observed;
            if size(set) == 0 && actual(set) == 0 && current {
                self.delete.extend(set.metadata.name.clone());
            }
        }
    }

    /// Says how many Pods there are.
    pub fn tell(&mut self) {
        let new = self.new.map(|new| &self.sets[new]);
        self.deployment.status = Some(status::counted(&self.deployment, &self.sets, new, self.now));
    }

    /// Says how many Pods there are, and how the rollout goes.
    pub fn tell_progress(&mut self) {
        let new = self.new.map(|new| &self.sets[new]);
        let mut status = status::counted(&self.deployment, &self.sets, new, self.now);
        status::set_progress(&self.deployment, new, &mut status, self.now);
        status::set_failure(&self.sets, new, &mut status);
        self.again = status::look_again(&self.deployment, &status, self.now);
        self.deployment.status = Some(status);
    }

    pub fn into_plan(mut self) -> Plan {
        let made = self.sets.len() > self.sets_before.len();
        let create = if made { self.sets.pop() } else { None };
        let pairs = self.sets_before.iter().zip(&self.sets);
        let change = pairs.filter_map(|(before, after)| changed(before, after)).collect();
        let news = self.deployment != self.before;
        let tell = news.then_some(self.deployment);
        Plan { create, change, delete: self.delete, tell, again: self.again }
    }

    fn olds(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|i| Some(*i) != self.new).collect()
    }

    fn active_olds(&self) -> Vec<usize> {
        self.olds().into_iter().filter(|i| size(&self.sets[*i]) > 0).collect()
    }

    /// Gives a ReplicaSet another size; says whether it is another.
    fn scale(&mut self, set: usize, to: i32) -> bool {
        if size(&self.sets[set]) == to {
            return false;
        }
        annotations::set_size(&self.deployment, &mut self.sets[set]);
        self.sets[set].spec.replicas = Some(to);
        true
    }
}

/// From the oldest on.
fn age(set: &ReplicaSet) -> (Option<Timestamp>, &Option<String>) {
    (set.metadata.creation_timestamp.as_ref().map(|t| t.0), &set.metadata.name)
}

/// The ReplicaSet of the Deployment's template, without a size.
fn new_set(deployment: &Deployment) -> Option<ReplicaSet> {
    let spec = &deployment.spec;
    let collisions = deployment.status.as_ref().and_then(|s| s.collision_count);
    let hash = template::hash(&spec.template, collisions);
    let (mut template, mut selector) = (spec.template.clone(), spec.selector.clone());
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    let metadata = ObjectMeta {
        name: Some(name(deployment.metadata.name.as_deref()?, &hash)),
        namespace: deployment.metadata.namespace.clone(),
        labels: Some(labels.clone()),
        owner_references: Some(vec![reference(deployment)]),
        ..Default::default()
    };
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash);
    let spec = ReplicaSetSpec {
        min_ready_seconds: spec.min_ready_seconds,
        replicas: Some(0),
        selector,
        template: Some(template),
    };
    Some(ReplicaSet { metadata, spec, status: None })
}

/// `<deployment>-<hash>`, cut so that it may be a name.
fn name(deployment: &str, hash: &str) -> String {
    let fits = NAME_MAX.saturating_sub(hash.len() + 1).min(deployment.len());
    format!("{}-{hash}", &deployment[..fits])
}

fn changed(before: &ReplicaSet, after: &ReplicaSet) -> Option<Change> {
    let (old, new) = (before.metadata.annotations.as_ref(), after.metadata.annotations.as_ref());
    let same = |key: &str, value: &str| old.and_then(|old| old.get(key)).map(String::as_str) == Some(value);
    let annotations: BTreeMap<String, String> =
        new.into_iter().flatten().filter(|(k, v)| !same(k, v)).map(|(k, v)| (k.clone(), v.clone())).collect();
    let least = |set: &ReplicaSet| set.spec.min_ready_seconds;
    let change = Change {
        name: after.metadata.name.clone().unwrap_or_default(),
        resource_version: before.metadata.resource_version.clone(),
        replicas: (size(before) != size(after)).then(|| (size(before), size(after))),
        min_ready_seconds: least(after).filter(|after| least(before) != Some(*after)),
        annotations,
    };
    let any =
        change.replicas.is_some() || change.min_ready_seconds.is_some() || !change.annotations.is_empty();
    any.then_some(change)
}
