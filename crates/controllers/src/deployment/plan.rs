//! What a Deployment does next: which ReplicaSets to make, resize and remove, and what to say of it.
//!
//! Each turn goes on from what the ReplicaSets say; what is decided in a turn is seen by the rest of that turn.

use std::collections::BTreeMap;
use std::time::Duration;

use trine_typed::k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::rollout::Rollout;

/// What a Deployment does in a turn, in this order.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// A ReplicaSet to make.
    pub create: Option<ReplicaSet>,
    /// ReplicaSets to change.
    pub change: Vec<Change>,
    /// Names of ReplicaSets to remove.
    pub delete: Vec<String>,
    /// The Deployment with its new revision and status, if they differ.
    pub tell: Option<Deployment>,
    /// When to look again, if nothing happens until then.
    pub again: Option<Duration>,
}

/// What changes of a ReplicaSet.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Its name.
    pub name: String,
    /// The version that this was decided by.
    pub resource_version: Option<String>,
    /// Pods, before and after.
    pub replicas: Option<(i32, i32)>,
    /// `minReadySeconds`.
    pub min_ready_seconds: Option<i32>,
    /// Annotations that are set.
    pub annotations: BTreeMap<String, String>,
}

/// Decides for a Deployment. `sets` are its ReplicaSets; `running` counts the Pods of each (by UID) that have not ended.
#[must_use]
pub fn plan(
    deployment: &Deployment,
    sets: Vec<ReplicaSet>,
    running: &BTreeMap<String, usize>,
    now: Timestamp,
) -> Plan {
    let mut rollout = Rollout::new(deployment.clone(), sets, now);
    if deployment.metadata.deletion_timestamp.is_some() {
        rollout.sync_revision();
        rollout.tell();
        return rollout.into_plan();
    }
    rollout.note_pause();
    rollout.sync_revision();
    if rollout.is_paused() || rollout.is_resized() {
        rollout.resize();
        if rollout.is_paused() {
            rollout.clean_up();
        }
        rollout.tell();
        return rollout.into_plan();
    }
    if rollout.is_rolling() {
        roll(&mut rollout)
    } else {
        recreate(&mut rollout, running)
    }
    rollout.tell_progress();
    rollout.into_plan()
}

/// A step of a rolling update: up as far as the surge allows, else down as far as availability allows.
fn roll(rollout: &mut Rollout) {
    rollout.ensure_new();
    if !rollout.scale_up_new() && !rollout.scale_down_old() && rollout.was_complete() {
        rollout.clean_up();
    }
}

/// The new Pods come when the old ones are gone.
fn recreate(rollout: &mut Rollout, running: &BTreeMap<String, usize>) {
    if rollout.stop_old() || rollout.old_run(running) {
        return;
    }
    rollout.ensure_new();
    rollout.fill_new();
    if rollout.was_complete() {
        rollout.clean_up();
    }
}
