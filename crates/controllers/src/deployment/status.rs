//! What a Deployment says of itself.

use std::time::Duration;

use trine_typed::k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet,
};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::limits::{limits, wanted};

/// Whether enough Pods are available.
const AVAILABLE: &str = "Available";
/// Whether the rollout goes on, or is done.
pub const PROGRESSING: &str = "Progressing";
/// That Pods cannot be made.
const FAILURE: &str = "ReplicaFailure";

/// The rollout is done.
pub const DONE: &str = "NewReplicaSetAvailable";
/// The rollout has stood still for too long.
pub const TIMED_OUT: &str = "ProgressDeadlineExceeded";
/// The Deployment is paused.
pub const PAUSED: &str = "DeploymentPaused";

/// A condition.
#[must_use]
pub fn condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        last_transition_time: Some(Time(now)),
        last_update_time: Some(Time(now)),
        message: Some(message),
        reason: Some(reason.to_owned()),
        status: Some(status.to_owned()),
        type_: Some(kind.to_owned()),
    }
}

/// The condition of a type.
#[must_use]
pub fn find<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|c| c.type_.as_deref() == Some(kind))
}

/// The reason of [`PROGRESSING`].
#[must_use]
pub fn progress_reason(status: &DeploymentStatus) -> Option<&str> {
    find(status, PROGRESSING).and_then(|c| c.reason.as_deref())
}

/// Sets a condition, unless it says so already with the same reason.
pub fn set(status: &mut DeploymentStatus, mut fresh: DeploymentCondition) {
    let kind = fresh.type_.clone().unwrap_or_default();
    if let Some(old) = find(status, &kind) {
        if old.status == fresh.status && old.reason == fresh.reason {
            return;
        }
        if old.status == fresh.status {
            fresh.last_transition_time.clone_from(&old.last_transition_time);
        }
    }
    remove(status, &kind);
    status.conditions.get_or_insert_default().push(fresh);
}

/// Removes a condition.
pub fn remove(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|c| c.type_.as_deref() != Some(kind));
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}

/// After how long without progress a rollout counts as failed.
#[must_use]
pub fn deadline(deployment: &Deployment) -> Option<Duration> {
    let seconds = deployment.spec.progress_deadline_seconds?;
    (seconds != i32::MAX).then(|| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

/// Counts what the ReplicaSets say. Zeros are left out, as upstream does.
#[must_use]
pub fn counted(
    deployment: &Deployment,
    sets: &[ReplicaSet],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) -> DeploymentStatus {
    let sum = |of: fn(&ReplicaSet) -> i32| sets.iter().map(of).fold(0, i32::saturating_add);
    let some = |count: i32| (count != 0).then_some(count);
    let old = deployment.status.clone().unwrap_or_default();
    let free = sum(available);
    let mut status = DeploymentStatus {
        available_replicas: some(free),
        collision_count: old.collision_count,
        conditions: old.conditions,
        observed_generation: deployment.metadata.generation,
        ready_replicas: some(sum(|s| s.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or_default())),
        replicas: some(sum(actual)),
        terminating_replicas: terminating(sets),
        unavailable_replicas: some(sum(size).saturating_sub(free).max(0)),
        updated_replicas: some(new.map_or(0, actual)),
    };
    let fresh = if free >= wanted(deployment) - limits(deployment).unavailable {
        let message = "Deployment has minimum availability.".to_owned();
        condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
    } else {
        let message = "Deployment does not have minimum availability.".to_owned();
        condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)
    };
    set(&mut status, fresh);
    status
}

/// The Pods on their way out, if all ReplicaSets that were looked at say how many.
fn terminating(sets: &[ReplicaSet]) -> Option<i32> {
    let mut sum = 0;
    for set in sets {
        let status = set.status.clone().unwrap_or_default();
        match status.terminating_replicas {
            Some(count) => sum += count,
            None if status.observed_generation.unwrap_or_default() == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

/// Whether a status says that all wanted Pods are new and available, and no others are there.
#[must_use]
pub fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = wanted(deployment);
    [status.updated_replicas, status.replicas, status.available_replicas]
        .iter()
        .all(|n| n.unwrap_or_default() == wanted)
        && status.observed_generation >= deployment.metadata.generation
}

/// Whether more is done by `new` than by `old`: more new Pods, fewer old ones, more ready or available ones.
fn is_further(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let n = |count: Option<i32>| count.unwrap_or_default();
    let olds = |status: &DeploymentStatus| n(status.replicas) - n(status.updated_replicas);
    n(new.updated_replicas) > n(old.updated_replicas)
        || olds(new) < olds(old)
        || n(new.ready_replicas) > n(old.ready_replicas)
        || n(new.available_replicas) > n(old.available_replicas)
}

/// Says how a rollout goes: done, on its way, or standing still for too long.
pub fn set_progress(
    deployment: &Deployment,
    new: Option<&ReplicaSet>,
    status: &mut DeploymentStatus,
    now: Timestamp,
) {
    let Some(deadline) = deadline(deployment) else { return remove(status, PROGRESSING) };
    let old = deployment.status.clone().unwrap_or_default();
    let current = find(&old, PROGRESSING);
    let updated = status.replicas == status.updated_replicas;
    if updated && current.is_some_and(|c| c.reason.as_deref() == Some(DONE)) {
        return;
    }
    let what = match new.and_then(|set| set.metadata.name.as_deref()) {
        Some(name) => format!("ReplicaSet \"{name}\""),
        None => format!("Deployment \"{}\"", deployment.metadata.name.as_deref().unwrap_or_default()),
    };
    if is_complete(deployment, status) {
        let message = format!("{what} has successfully progressed.");
        set(status, condition(PROGRESSING, "True", DONE, message, now));
    } else if is_further(&old, status) {
        let message = format!("{what} is progressing.");
        let mut fresh = condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now);
        if let Some(current) = current.filter(|c| c.status.as_deref() == Some("True")) {
            fresh.last_transition_time.clone_from(&current.last_transition_time);
        }
        // The time of the last progress is news even if nothing else is.
        remove(status, PROGRESSING);
        set(status, fresh);
    } else if has_timed_out(status, deadline, now) {
        let message = format!("{what} has timed out progressing.");
        set(status, condition(PROGRESSING, "False", TIMED_OUT, message, now));
    }
}

fn has_timed_out(status: &DeploymentStatus, deadline: Duration, now: Timestamp) -> bool {
    let Some(current) = find(status, PROGRESSING) else { return false };
    match current.reason.as_deref() {
        Some(DONE) => false,
        Some(TIMED_OUT) => true,
        _ => left(current, deadline, now) == Some(Duration::ZERO),
    }
}

/// How long a rollout may stand still from now on.
fn left(current: &DeploymentCondition, deadline: Duration, now: Timestamp) -> Option<Duration> {
    let since = current.last_update_time.as_ref()?.0;
    let still = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    Some(deadline.saturating_sub(still))
}

/// When to look whether a rollout has stood still for too long.
#[must_use]
pub fn look_again(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<Duration> {
    let (deadline, current) = (deadline(deployment)?, find(status, PROGRESSING)?);
    if is_complete(deployment, status) || current.reason.as_deref() == Some(TIMED_OUT) {
        return None;
    }
    // A second more, because times are told in whole seconds.
    left(current, deadline, now).map(|left| left + Duration::from_secs(1))
}

/// Takes over that Pods of a ReplicaSet cannot be made, of the new one first.
pub fn set_failure(sets: &[ReplicaSet], new: Option<&ReplicaSet>, status: &mut DeploymentStatus) {
    let failure = |set: &ReplicaSet| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|c| c.type_.as_deref() == Some(FAILURE)).cloned()
    };
    match new.and_then(failure).or_else(|| sets.iter().find_map(failure)) {
        None => remove(status, FAILURE),
        Some(failure) => {
            let fresh = DeploymentCondition {
                last_update_time: failure.last_transition_time.clone(),
                last_transition_time: failure.last_transition_time,
                message: failure.message,
                reason: failure.reason,
                status: failure.status,
                type_: failure.type_,
            };
            set(status, fresh);
        }
    }
}

/// The size that a ReplicaSet is to have.
#[must_use]
pub fn size(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

/// The Pods that it has.
#[must_use]
pub fn actual(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |s| s.replicas)
}

/// Those that are available.
#[must_use]
pub fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|s| s.available_replicas).unwrap_or_default()
}
