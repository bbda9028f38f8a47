//! Which volume belongs to which claim. Two-phase as upstream: the volume names the claim first, then the claim the
//! volume; each step can be repeated. Source: upstream's `pv_controller`.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use trine_typed::k8s_openapi::api::storage::v1::StorageClass;
use trine_typed::volumes::{BIND_COMPLETED, NO_PROVISIONER, SELECTED_NODE, capacity, fits};

/// The controller, not the user, chose.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Who is asked to make a volume for a claim.
pub const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The volume names the claim.
    ClaimVolume(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>),
    /// The claim names the volume, and is marked as complete.
    BindClaim(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>),
    /// The claim's phase, with the volume's capacity and modes when Bound.
    ClaimPhase(Arc<PersistentVolumeClaim>, &'static str, Option<Arc<PersistentVolume>>),
    /// The volume's phase.
    VolumePhase(Arc<PersistentVolume>, &'static str),
    /// A provisioner is asked.
    AskProvisioner(Arc<PersistentVolumeClaim>, String),
    /// An event on the claim.
    Say(Arc<PersistentVolumeClaim>, Tone, &'static str, String),
}

/// Normal or Warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// A healthy wait.
    Normal,
    /// A person has to act.
    Warning,
}

/// What is read.
#[derive(Debug, Default)]
pub struct World {
    /// All claims.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// Classes by name.
    pub classes: BTreeMap<String, Arc<StorageClass>>,
}

/// All writes.
#[must_use]
pub fn plan(world: &World) -> Vec<Action> {
    let mut taken = Vec::new();
    let mut actions: Vec<Action> =
        world.claims.iter().flat_map(|claim| for_claim(world, claim, &mut taken)).collect();
    actions.extend(world.volumes.values().filter_map(|volume| for_volume(world, volume)));
    actions
}

fn for_claim(world: &World, claim: &Arc<PersistentVolumeClaim>, taken: &mut Vec<String>) -> Vec<Action> {
    let wanted = claim.spec.as_ref().and_then(|s| s.volume_name.clone()).unwrap_or_default();
    let complete = annotation(claim, BIND_COMPLETED).is_some();
    match world.volumes.get(&wanted) {
        None if complete => claim_phase(claim, "Lost", None),
        Some(volume) if complete => match names(volume, claim) {
            Named::ByUid => claim_phase(claim, "Bound", Some(volume)),
            Named::ByName | Named::Nobody => vec![Action::ClaimVolume(Arc::clone(volume), Arc::clone(claim))],
            Named::Other => claim_phase(claim, "Lost", None),
        },
        _ if claim.metadata.deletion_timestamp.is_some() => Vec::new(),
        Some(volume) => match names(volume, claim) {
            Named::ByUid => bind(claim, volume),
            Named::ByName | Named::Nobody => vec![Action::ClaimVolume(Arc::clone(volume), Arc::clone(claim))],
            Named::Other => claim_phase(claim, "Pending", None),
        },
        None if !wanted.is_empty() => claim_phase(claim, "Pending", None),
        None => for_unbound(world, claim, taken),
    }
}

fn for_unbound(world: &World, claim: &Arc<PersistentVolumeClaim>, taken: &mut Vec<String>) -> Vec<Action> {
    let claimed = |named: Named| world.volumes.values().find(|v| names(v, claim) == named);
    if let Some(volume) = claimed(Named::ByUid) {
        return bind(claim, volume);
    }
    if let Some(volume) = claimed(Named::ByName) {
        return vec![Action::ClaimVolume(Arc::clone(volume), Arc::clone(claim))];
    }
    let class_name = claim.spec.as_ref().and_then(|s| s.storage_class_name.clone()).unwrap_or_default();
    let class = world.classes.get(&class_name);
    let delayed = class.is_some_and(|c| c.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
    if delayed && annotation(claim, SELECTED_NODE).is_none() {
        let text = "waiting for first consumer to be created before binding".to_owned();
        return vec![Action::Say(Arc::clone(claim), Tone::Normal, "WaitForFirstConsumer", text)];
    }
    if !delayed && let Some(volume) = smallest_match(world, claim, taken) {
        taken.push(volume.metadata.name.clone().unwrap_or_default());
        return vec![Action::ClaimVolume(Arc::clone(volume), Arc::clone(claim))];
    }
    let say = |tone, reason, text| vec![Action::Say(Arc::clone(claim), tone, reason, text)];
    match class {
        None if class_name.is_empty() => say(
            Tone::Normal,
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set".to_owned(),
        ),
        None => say(
            Tone::Warning,
            "ProvisioningFailed",
            format!("storageclass.storage.k8s.io {class_name:?} not found"),
        ),
        Some(class) if class.provisioner == NO_PROVISIONER => {
            say(Tone::Normal, "FailedBinding", "no persistent volumes available for this claim".to_owned())
        }
        Some(class) if annotation(claim, PROVISIONER) == Some(&class.provisioner) => say(
            Tone::Normal,
            "ExternalProvisioning",
            format!(
                "Waiting for a volume to be created either by the external provisioner '{}' or manually by the \
                 system administrator. If volume creation is delayed, please verify that the provisioner is \
                 running and correctly registered.",
                class.provisioner
            ),
        ),
        Some(class) => vec![Action::AskProvisioner(Arc::clone(claim), class.provisioner.clone())],
    }
}

fn bind(claim: &Arc<PersistentVolumeClaim>, volume: &Arc<PersistentVolume>) -> Vec<Action> {
    let mut actions = vec![Action::BindClaim(Arc::clone(claim), Arc::clone(volume))];
    actions.extend(claim_phase(claim, "Bound", Some(volume)));
    actions
}

fn claim_phase(
    claim: &Arc<PersistentVolumeClaim>,
    phase: &'static str,
    volume: Option<&Arc<PersistentVolume>>,
) -> Vec<Action> {
    let status = claim.status.as_ref();
    let same_phase = status.and_then(|s| s.phase.as_deref()) == Some(phase);
    let has_capacity = volume.is_none() || status.is_some_and(|s| s.capacity.is_some());
    if same_phase && has_capacity {
        return Vec::new();
    }
    vec![Action::ClaimPhase(Arc::clone(claim), phase, volume.cloned())]
}

fn for_volume(world: &World, volume: &Arc<PersistentVolume>) -> Option<Action> {
    let reference = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    let phase = match reference {
        None => "Available",
        Some(reference) if reference.uid.is_none() => "Available",
        Some(reference) => {
            let claim = world.claims.iter().find(|c| c.metadata.uid == reference.uid);
            let name = volume.metadata.name.as_deref();
            match claim {
                None => "Released",
                Some(claim) if claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()) == name => "Bound",
                Some(_) => return None,
            }
        }
    };
    let have = volume.status.as_ref().and_then(|s| s.phase.as_deref());
    // A volume that could not be deleted stays Failed until somebody acts.
    let settled = have == Some(phase) || (phase == "Released" && have == Some("Failed"));
    (!settled).then(|| Action::VolumePhase(Arc::clone(volume), phase))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Nobody,
    ByName,
    ByUid,
    Other,
}

fn names(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Named {
    let Some(reference) = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref()) else {
        return Named::Nobody;
    };
    if reference.name != claim.metadata.name || reference.namespace != claim.metadata.namespace {
        return Named::Other;
    }
    match &reference.uid {
        None => Named::ByName,
        uid if *uid == claim.metadata.uid => Named::ByUid,
        Some(_) => Named::Other,
    }
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a String> {
    claim.metadata.annotations.as_ref()?.get(key)
}

fn smallest_match<'a>(
    world: &'a World,
    claim: &PersistentVolumeClaim,
    taken: &[String],
) -> Option<&'a Arc<PersistentVolume>> {
    let free = world.volumes.values().filter(|v| {
        names(v, claim) == Named::Nobody
            && !v.metadata.name.as_ref().is_some_and(|n| taken.contains(n))
            && fits(v, claim)
    });
    free.min_by_key(|v| capacity(v))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
