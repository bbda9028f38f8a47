//! Which claims get a volume, and which volumes go. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::Code;
use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use trine_typed::volumes::SELECTED_NODE;

use super::source::{CLONING, Named, named};
use super::topology;
use crate::grpc::CallError;

/// Who is asked to make a volume for a claim; the second name is the old one.
pub const PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
/// Who made a volume.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Keeps a PersistentVolume until its driver has deleted the volume.
pub const VOLUME_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Keeps a claim while its volume is being made: a claim that is deleted in between is seen, and the volume with it.
pub const CLAIM_FINALIZER: &str = "csi.trine.dev/provisioning";

/// For whom the plan is.
#[derive(Debug, Clone, Default)]
pub struct Me {
    /// The driver's name.
    pub driver: String,
    /// The only node that the driver serves, if it is one per node.
    pub node: Option<String>,
}

/// What is read.
#[derive(Debug, Default)]
pub struct World {
    /// All claims.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// Classes by name.
    pub classes: BTreeMap<String, Arc<StorageClass>>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// Drivers of each node, by the node's name.
    pub csi_nodes: BTreeMap<String, Arc<CSINode>>,
    /// All attachments.
    pub attachments: Vec<Arc<VolumeAttachment>>,
}

/// One act; its key is the object's uid or name.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Make the claim's volume, then the PersistentVolume.
    Provision(Arc<PersistentVolumeClaim>, Arc<StorageClass>),
    /// The claim was deleted while its volume was being made: find out, and delete the volume.
    Abandon(Arc<PersistentVolumeClaim>, Option<Arc<StorageClass>>),
    /// The volume is made: the claim needs to be kept no longer.
    Release(Arc<PersistentVolumeClaim>),
    /// Say why nothing can be made.
    Refuse(Arc<PersistentVolumeClaim>, String),
    /// Delete the volume, then the PersistentVolume.
    Reclaim(Arc<PersistentVolume>),
    /// The PersistentVolume goes, the volume stays.
    Forget(Arc<PersistentVolume>),
    /// The claim is cloned no longer: let it go.
    Unprotect(Arc<PersistentVolumeClaim>),
}

impl Action {
    /// The object that the act is about.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Provision(c, _) | Self::Abandon(c, _) | Self::Release(c) | Self::Refuse(c, _) => {
                format!("claim {}", c.metadata.uid.as_deref().unwrap_or_default())
            }
            Self::Unprotect(c) => format!("source {}", c.metadata.uid.as_deref().unwrap_or_default()),
            Self::Reclaim(v) | Self::Forget(v) => {
                format!("volume {}", v.metadata.name.as_deref().unwrap_or_default())
            }
        }
    }
}

/// The name of the PersistentVolume, and of the volume at the driver.
#[must_use]
pub fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default())
}

/// All acts.
#[must_use]
pub fn plan(world: &World, me: &Me) -> Vec<Action> {
    let claims = world.claims.iter().filter_map(|claim| for_claim(world, me, claim));
    let volumes = world.volumes.values().filter_map(|volume| for_volume(world, me, volume));
    let cloned = world.claims.iter().filter(|claim| is_cloned_no_longer(world, me, claim));
    claims.chain(volumes).chain(cloned.map(|c| Action::Unprotect(Arc::clone(c)))).collect()
}

/// A claim that is kept as the source of others, all of which have their volumes.
fn is_cloned_no_longer(world: &World, me: &Me, claim: &PersistentVolumeClaim) -> bool {
    let kept = claim.metadata.finalizers.iter().flatten().any(|f| f == CLONING);
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let volume = claim.spec.as_ref().and_then(|s| s.volume_name.as_ref()).and_then(|v| world.volumes.get(v));
    let ours = volume.is_some_and(|v| {
        let csi = v.spec.as_ref().and_then(|s| s.csi.as_ref());
        csi.is_some_and(|csi| csi.driver == me.driver) && reachable(world, me, v)
    });
    let wanted = || {
        world.claims.iter().any(|other| {
            let unbound =
                other.spec.as_ref().is_some_and(|s| s.volume_name.as_deref().is_none_or(str::is_empty));
            unbound
                && other.metadata.namespace == claim.metadata.namespace
                && named(other) == Named::Claim(name)
        })
    };
    kept && ours && !wanted()
}

fn for_claim(world: &World, me: &Me, claim: &Arc<PersistentVolumeClaim>) -> Option<Action> {
    let spec = claim.spec.as_ref()?;
    let asked = PROVISIONER.iter().any(|key| annotation(claim, key) == Some(me.driver.as_str()));
    let kept = claim.metadata.finalizers.iter().flatten().any(|f| f == CLAIM_FINALIZER);
    let class = spec.storage_class_name.as_ref().and_then(|name| world.classes.get(name));
    let bound = spec.volume_name.as_deref().is_some_and(|name| !name.is_empty());
    if !asked || !is_mine(world, me, claim, class.map(AsRef::as_ref)) {
        return None;
    }
    if bound || world.volumes.contains_key(&volume_name(claim)) {
        return kept.then(|| Action::Release(Arc::clone(claim)));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return kept.then(|| Action::Abandon(Arc::clone(claim), class.cloned()));
    }
    let refuse = |text: &str| Some(Action::Refuse(Arc::clone(claim), text.to_owned()));
    let class = class?;
    if spec.selector.is_some() {
        return refuse("claim Selector is not supported");
    }
    // What else there may be is a populator's.
    (named(claim) != Named::Other).then(|| Action::Provision(Arc::clone(claim), Arc::clone(class)))
}

/// A claim of a delayed class waits for its node. With a driver per node, a claim that names no node goes to the
/// first node that has the driver, so exactly one makes the volume.
fn is_mine(world: &World, me: &Me, claim: &PersistentVolumeClaim, class: Option<&StorageClass>) -> bool {
    let delayed = class.and_then(|c| c.volume_binding_mode.as_deref()) == Some("WaitForFirstConsumer");
    match (&me.node, annotation(claim, SELECTED_NODE)) {
        (None, Some(_)) => true,
        (None, None) => !delayed,
        (Some(node), Some(selected)) => node == selected,
        (Some(_), None) if delayed => false,
        (Some(node), None) => {
            let has_driver = |n: &&Arc<CSINode>| n.spec.drivers.iter().any(|d| d.name == me.driver);
            let first = world.csi_nodes.values().find(has_driver);
            first.is_some_and(|n| n.metadata.name.as_ref() == Some(node))
        }
    }
}

fn for_volume(world: &World, me: &Me, volume: &Arc<PersistentVolume>) -> Option<Action> {
    let spec = volume.spec.as_ref()?;
    let annotations = volume.metadata.annotations.as_ref()?;
    let ours = annotations.get(PROVISIONED_BY) == Some(&me.driver)
        && spec.csi.as_ref().is_some_and(|csi| csi.driver == me.driver);
    if !ours || !reachable(world, me, volume) {
        return None;
    }
    let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default();
    let released = matches!(phase, "Released" | "Failed");
    let deletes = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    let leaving = volume.metadata.deletion_timestamp.is_some();
    let kept = volume.metadata.finalizers.iter().flatten().any(|f| f == VOLUME_FINALIZER);
    if !deletes {
        return (leaving && kept && phase != "Bound").then(|| Action::Forget(Arc::clone(volume)));
    }
    let due = released && (!leaving || kept);
    (due && !is_attached(world, volume)).then(|| Action::Reclaim(Arc::clone(volume)))
}

fn is_attached(world: &World, volume: &PersistentVolume) -> bool {
    world.attachments.iter().any(|a| a.spec.source.persistent_volume_name == volume.metadata.name)
}

/// With a driver per node, the volumes that this node can reach are this node's.
fn reachable(world: &World, me: &Me, volume: &PersistentVolume) -> bool {
    let Some(node) = &me.node else { return true };
    let affinity = volume.spec.as_ref().and_then(|s| s.node_affinity.as_ref());
    world.nodes.get(node).is_some_and(|node| topology::allows(affinity, node))
}

/// What a failure means for the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// There is no volume; later again.
    Finished,
    /// There may be a volume, now or later: ask again, even if the claim is deleted.
    InBackground,
    /// There is no room on this node: the scheduler may choose another.
    Reschedule,
}

/// What the driver's error means; `chosen` if the scheduler chose the node and topology binds the volume to it.
#[must_use]
pub fn failure(error: &CallError, chosen: bool) -> Failure {
    match error.code {
        Code::ResourceExhausted if chosen => Failure::Reschedule,
        _ if error.is_final() => Failure::Finished,
        _ => Failure::InBackground,
    }
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
