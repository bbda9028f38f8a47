//! Which VolumeAttachments should exist. The controller never calls a driver: the attacher does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use trine_typed::k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use trine_typed::pods::{claim_names, is_finished};

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Ask for `volume` on `node`.
    Attach {
        /// Name of the VolumeAttachment.
        name: String,
        /// CSI driver.
        driver: String,
        /// PersistentVolume.
        volume: String,
        /// Node.
        node: String,
    },
    /// Give a VolumeAttachment up.
    Detach {
        /// Name of the VolumeAttachment.
        name: String,
    },
    /// Say that a volume of one node at a time is still on another.
    MultiAttach {
        /// The Pod that waits.
        pod: Arc<Pod>,
        /// PersistentVolume.
        volume: String,
    },
    /// Write the node's `status.volumesAttached`.
    ReportAttached {
        /// Node.
        node: String,
        /// `kubernetes.io/csi/<driver>^<handle>`.
        volumes: Vec<String>,
    },
}

/// What is read.
#[derive(Debug, Default)]
pub struct World {
    /// All Pods.
    pub pods: Vec<Arc<Pod>>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// Claims by namespace and name.
    pub claims: BTreeMap<(String, String), Arc<PersistentVolumeClaim>>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// Drivers by name.
    pub drivers: BTreeMap<String, Arc<CSIDriver>>,
    /// All attachments.
    pub attachments: Vec<Arc<VolumeAttachment>>,
}

/// All writes.
#[must_use]
pub fn plan(world: &World) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut wanted = BTreeSet::new();
    for pod in world.pods.iter().filter(|p| !is_finished(p)) {
        let Some(node) = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty())
        else {
            continue;
        };
        for volume in attachable(world, pod) {
            let name = attachment_name(&volume, node);
            let first = wanted.insert(name.clone());
            let exists = world.attachments.iter().any(|a| a.metadata.name.as_ref() == Some(&name));
            if exists || !first || pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            if volume.single_node && attached_elsewhere(world, &volume, node) {
                actions.push(Action::MultiAttach { pod: Arc::clone(pod), volume: volume.name });
            } else if world.nodes.contains_key(node) {
                let (driver, node) = (volume.driver, node.to_owned());
                actions.push(Action::Attach { name, driver, volume: volume.name, node });
            }
        }
    }
    let mut released = BTreeSet::new();
    for attachment in &world.attachments {
        let name = attachment.metadata.name.clone().unwrap_or_default();
        let handled = attachment.metadata.deletion_timestamp.is_some();
        if name.starts_with("csi-") && !wanted.contains(&name) && !handled && !in_use(world, attachment) {
            released.insert(name);
        }
    }
    actions.extend(reports(world, &released));
    actions.extend(released.into_iter().map(|name| Action::Detach { name }));
    actions
}

/// A volume that has to be attached before it can be staged.
struct Attachable {
    name: String,
    driver: String,
    handle: String,
    single_node: bool,
}

fn attachable(world: &World, pod: &Pod) -> Vec<Attachable> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let claims = claim_names(pod).into_iter().filter_map(|n| world.claims.get(&(namespace.clone(), n)));
    claims
        .filter_map(|claim| {
            let name = claim.spec.as_ref()?.volume_name.clone().filter(|n| !n.is_empty())?;
            let spec = world.volumes.get(&name)?.spec.as_ref()?;
            let claimed_by = spec.claim_ref.as_ref()?;
            let csi = spec.csi.as_ref()?;
            let driver = world.drivers.get(&csi.driver);
            let needed = driver.is_none_or(|d| d.spec.attach_required.unwrap_or(true));
            let modes = spec.access_modes.as_deref().unwrap_or_default();
            let many = modes.is_empty() || modes.iter().any(|m| m == "ReadWriteMany" || m == "ReadOnlyMany");
            (needed && claimed_by.uid == claim.metadata.uid).then(|| Attachable {
                name,
                driver: csi.driver.clone(),
                handle: csi.volume_handle.clone(),
                single_node: !many,
            })
        })
        .collect()
}

/// `csi-` and the hash of handle, driver and node, as upstream names it.
fn attachment_name(volume: &Attachable, node: &str) -> String {
    let hash = Sha256::digest(format!("{}{}{node}", volume.handle, volume.driver).as_bytes());
    format!("csi-{}", hex::encode(hash))
}

fn attached_elsewhere(world: &World, volume: &Attachable, node: &str) -> bool {
    world.attachments.iter().any(|a| {
        a.spec.source.persistent_volume_name.as_ref() == Some(&volume.name) && a.spec.node_name != node
    })
}

/// `kubernetes.io/csi/<driver>^<handle>`: the name in a node's `volumesInUse` and `volumesAttached`.
fn unique_name(world: &World, attachment: &VolumeAttachment) -> Option<String> {
    let volume = world.volumes.get(attachment.spec.source.persistent_volume_name.as_ref()?)?;
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    Some(format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle))
}

/// True while the kubelet still reports the volume as mounted. A node that is gone reports nothing.
fn in_use(world: &World, attachment: &VolumeAttachment) -> bool {
    let Some(node) = world.nodes.get(&attachment.spec.node_name) else { return false };
    let Some(name) = unique_name(world, attachment) else { return false };
    let in_use = node.status.as_ref().and_then(|s| s.volumes_in_use.as_ref());
    in_use.is_some_and(|volumes| volumes.contains(&name))
}

fn reports(world: &World, released: &BTreeSet<String>) -> Vec<Action> {
    let mut attached: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for attachment in &world.attachments {
        let done = attachment.status.as_ref().is_some_and(|s| s.attached);
        let going = attachment.metadata.name.as_ref().is_some_and(|n| released.contains(n))
            || attachment.metadata.deletion_timestamp.is_some();
        if done
            && !going
            && let Some(name) = unique_name(world, attachment)
        {
            attached.entry(&attachment.spec.node_name).or_default().insert(name);
        }
    }
    let changed = world.nodes.iter().filter_map(|(name, node)| {
        let have = node.status.as_ref().and_then(|s| s.volumes_attached.as_ref());
        let have: BTreeSet<String> = have.into_iter().flatten().map(|v| v.name.clone()).collect();
        let want = attached.remove(name.as_str()).unwrap_or_default();
        (have != want)
            .then(|| Action::ReportAttached { node: name.clone(), volumes: want.into_iter().collect() })
    });
    changed.collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
