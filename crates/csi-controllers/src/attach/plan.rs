//! Which attachments are due. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::PersistentVolume;
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};

/// The node's id at the driver, kept on the attachment for when the node is gone.
pub const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";

/// For whom the plan is.
#[derive(Debug, Clone, Default)]
pub struct Me {
    /// The driver's name.
    pub driver: String,
    /// The only node that the driver serves, if it is one per node.
    pub node: Option<String>,
    /// The driver attaches at all.
    pub publishes: bool,
}

/// What is read.
#[derive(Debug, Default)]
pub struct World {
    /// All attachments.
    pub attachments: Vec<Arc<VolumeAttachment>>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// Drivers of each node, by the node's name.
    pub csi_nodes: BTreeMap<String, Arc<CSINode>>,
}

/// One act; its key is the object's name.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Attach this volume to the node of this id, and say so.
    Attach(Arc<VolumeAttachment>, Arc<PersistentVolume>, String),
    /// The driver does not attach: say that it is attached.
    Confirm(Arc<VolumeAttachment>),
    /// Detach this handle from the node of this id, and let the attachment go.
    Detach(Arc<VolumeAttachment>, String, String),
    /// Nothing was ever done for it: let it go.
    Drop(Arc<VolumeAttachment>),
    /// Say why it cannot be attached.
    Refuse(Arc<VolumeAttachment>, String),
    /// A volume that goes is attached nowhere any more: let it go.
    Release(Arc<PersistentVolume>),
}

impl Action {
    /// The object that the act is about.
    #[must_use]
    pub fn key(&self) -> String {
        let (kind, name) = match self {
            Self::Attach(a, ..)
            | Self::Confirm(a)
            | Self::Detach(a, ..)
            | Self::Drop(a)
            | Self::Refuse(a, _) => ("attachment", &a.metadata.name),
            Self::Release(v) => ("volume", &v.metadata.name),
        };
        format!("{kind} {}", name.as_deref().unwrap_or_default())
    }
}

/// The finalizer on attachments and their volumes.
#[must_use]
pub fn finalizer(driver: &str) -> String {
    format!("external-attacher/{}", driver.replace('.', "-"))
}

/// All acts.
#[must_use]
pub fn plan(world: &World, me: &Me) -> Vec<Action> {
    let finalizer = finalizer(&me.driver);
    let ours = |a: &&Arc<VolumeAttachment>| {
        a.spec.attacher == me.driver && me.node.as_ref().is_none_or(|node| *node == a.spec.node_name)
    };
    let attachments =
        world.attachments.iter().filter(ours).filter_map(|a| for_attachment(world, me, a, &finalizer));
    let volumes = world.volumes.values().filter(|v| is_free(world, v, &finalizer));
    attachments.chain(volumes.map(|v| Action::Release(Arc::clone(v)))).collect()
}

fn for_attachment(
    world: &World,
    me: &Me,
    attachment: &Arc<VolumeAttachment>,
    finalizer: &str,
) -> Option<Action> {
    let held = attachment.metadata.finalizers.iter().flatten().any(|f| f == finalizer);
    if attachment.metadata.deletion_timestamp.is_some() {
        return held.then(|| leave(world, me, attachment));
    }
    if attachment.status.as_ref().is_some_and(|s| s.attached) {
        return None;
    }
    if !me.publishes {
        return Some(Action::Confirm(Arc::clone(attachment)));
    }
    let refuse = |text: String| Some(Action::Refuse(Arc::clone(attachment), text));
    let Some(name) = &attachment.spec.source.persistent_volume_name else {
        return refuse("only attachments of PersistentVolumes are offered".to_owned());
    };
    let Some(volume) = world.volumes.get(name) else {
        return refuse(format!("PersistentVolume {name:?} not found"));
    };
    if volume.metadata.deletion_timestamp.is_some() {
        return refuse(format!("PersistentVolume {name:?} is marked for deletion"));
    }
    match node_id(world, me, attachment) {
        Some(id) => Some(Action::Attach(Arc::clone(attachment), Arc::clone(volume), id)),
        None => refuse(format!(
            "node {:?} has no NodeID annotation: driver {} is not registered there (CSINode)",
            attachment.spec.node_name, me.driver
        )),
    }
}

/// The driver may know of the attachment even if it never said so: whatever was begun is undone.
fn leave(world: &World, me: &Me, attachment: &Arc<VolumeAttachment>) -> Action {
    let name = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
    let handle =
        world.volumes.get(name).and_then(|v| Some(v.spec.as_ref()?.csi.as_ref()?.volume_handle.clone()));
    let kept = attachment.metadata.annotations.as_ref().and_then(|a| a.get(NODE_ID)).cloned();
    match (handle, node_id(world, me, attachment).or(kept)) {
        (Some(handle), Some(id)) if me.publishes => Action::Detach(Arc::clone(attachment), handle, id),
        _ => Action::Drop(Arc::clone(attachment)),
    }
}

fn node_id(world: &World, me: &Me, attachment: &VolumeAttachment) -> Option<String> {
    let node = world.csi_nodes.get(&attachment.spec.node_name)?;
    node.spec.drivers.iter().find(|d| d.name == me.driver).map(|d| d.node_id.clone())
}

fn is_free(world: &World, volume: &PersistentVolume, finalizer: &str) -> bool {
    volume.metadata.deletion_timestamp.is_some()
        && volume.metadata.finalizers.iter().flatten().any(|f| f == finalizer)
        && !world.attachments.iter().any(|a| a.spec.source.persistent_volume_name == volume.metadata.name)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
