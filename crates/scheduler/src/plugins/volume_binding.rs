//! VolumeBinding: bound volumes must be reachable from the node; claims that wait for their first consumer get a
//! volume that is free there, or are provisioned for it. Source: upstream's `volumebinding` plugin: storage
//! topology (WaitForFirstConsumer).

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use trine_typed::k8s_openapi::api::storage::v1::StorageClass;
use trine_typed::pods::{claim_name, is_made_for, not_made_for};
use trine_typed::volumes::{BIND_COMPLETED, NO_PROVISIONER, SELECTED_NODE, capacity, fits};

use trine_typed::placement;

use crate::framework::Rejection;
use crate::pod_info::PodInfo;
use crate::snapshot::{NodeInfo, Snapshot};

/// The volumes of one Pod before a node is looked at.
#[derive(Debug, Clone, Default)]
pub struct PodVolumes {
    bound: Vec<Arc<PersistentVolume>>,
    delayed: Vec<(Arc<PersistentVolumeClaim>, Arc<StorageClass>)>,
}

impl PodVolumes {
    /// Those that are there.
    pub fn bound(&self) -> impl Iterator<Item = &PersistentVolume> {
        self.bound.iter().map(AsRef::as_ref)
    }
}

/// What has to be written before the Pod can be bound to the chosen node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bindings {
    /// A free volume for a claim: set the volume's `claimRef`.
    pub to_bind: Vec<(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)>,
    /// A claim to provision for the node: set its `selected-node` annotation.
    pub to_provision: Vec<Arc<PersistentVolumeClaim>>,
}

/// True if `claim` has its volume for good.
#[must_use]
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let volume = claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()).unwrap_or_default();
    let annotations = claim.metadata.annotations.as_ref();
    !volume.is_empty() && annotations.is_some_and(|a| a.contains_key(BIND_COMPLETED))
}

/// Whether a claim of this name is made for a volume of the Pod's.
fn is_ephemeral(pod: &Pod, claim: &str) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    volumes.any(|volume| volume.ephemeral.is_some() && claim_name(pod, volume).as_deref() == Some(claim))
}

/// # Errors
/// A claim is missing, lost, being deleted, or unbound though its class binds at once.
pub fn pre_filter(pod: &PodInfo, snapshot: &Snapshot) -> Result<PodVolumes, Rejection> {
    let namespace = pod.pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut found = PodVolumes::default();
    for name in &pod.claims {
        let ephemeral = is_ephemeral(&pod.pod, name);
        let Some(claim) = snapshot.claim(namespace, name) else {
            // Right after the Pod was made this is as it should be.
            let why = if ephemeral {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                )
            } else {
                format!("persistentvolumeclaim {name:?} not found")
            };
            return Err(Rejection::lasting(why));
        };
        if ephemeral && !is_made_for(&claim.metadata, &pod.pod) {
            return Err(Rejection::lasting(not_made_for(claim, &pod.pod)));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(Rejection::lasting(format!("persistentvolumeclaim {name:?} is being deleted")));
        }
        if claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Lost") {
            let volume = claim.spec.as_ref().and_then(|s| s.volume_name.clone()).unwrap_or_default();
            return Err(Rejection::lasting(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            )));
        }
        let volume_name = claim.spec.as_ref().and_then(|s| s.volume_name.clone()).unwrap_or_default();
        if is_bound(claim) {
            let Some(volume) = snapshot.volumes.get(&volume_name) else {
                return Err(Rejection::lasting(
                    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
                ));
            };
            found.bound.push(Arc::clone(volume));
            continue;
        }
        match delaying_class(claim, snapshot) {
            Some(class) if volume_name.is_empty() => {
                found.delayed.push((Arc::clone(claim), Arc::clone(class)))
            }
            _ => return Err(Rejection::lasting("pod has unbound immediate PersistentVolumeClaims")),
        }
    }
    Ok(found)
}

fn delaying_class<'a>(
    claim: &PersistentVolumeClaim,
    snapshot: &'a Snapshot,
) -> Option<&'a Arc<StorageClass>> {
    let name = claim.spec.as_ref()?.storage_class_name.as_ref()?;
    let class = snapshot.classes.get(name)?;
    (class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")).then_some(class)
}

/// # Errors
/// A bound volume cannot be reached from the node, or a claim can get no volume there.
pub fn filter(volumes: &PodVolumes, node: &NodeInfo, snapshot: &Snapshot) -> Result<Bindings, Rejection> {
    if !volumes.bound.iter().all(|volume| reachable(volume, node)) {
        return Err(Rejection::lasting("node(s) didn't match PersistentVolume's node affinity"));
    }
    let mut bindings = Bindings::default();
    for (claim, class) in &volumes.delayed {
        let chosen = claim.metadata.annotations.as_ref().and_then(|a| a.get(SELECTED_NODE));
        if chosen.is_some_and(|n| n != node.name()) {
            return Err(Rejection::lasting("node(s) didn't find available persistent volumes to bind"));
        }
        let taken: Vec<&str> =
            bindings.to_bind.iter().filter_map(|(v, _)| v.metadata.name.as_deref()).collect();
        if chosen.is_none()
            && let Some(volume) = smallest_match(claim, node, snapshot, &taken)
        {
            bindings.to_bind.push((volume, Arc::clone(claim)));
        } else if class.provisioner == NO_PROVISIONER {
            return Err(Rejection::lasting("node(s) didn't find available persistent volumes to bind"));
        } else if topology_allows(class, node) {
            bindings.to_provision.push(Arc::clone(claim));
        } else {
            return Err(Rejection::lasting("node(s) didn't match the class's allowed topologies"));
        }
    }
    Ok(bindings)
}

fn reachable(volume: &PersistentVolume, node: &NodeInfo) -> bool {
    let affinity = volume.spec.as_ref().and_then(|s| s.node_affinity.as_ref());
    affinity.and_then(|a| a.required.as_ref()).is_none_or(|required| placement::matches(required, &node.node))
}

fn topology_allows(class: &StorageClass, node: &NodeInfo) -> bool {
    let Some(terms) = class.allowed_topologies.as_ref().filter(|t| !t.is_empty()) else { return true };
    terms.iter().any(|term| {
        let wanted = term.match_label_expressions.as_deref().unwrap_or_default();
        wanted.iter().all(|r| node.label(&r.key).is_some_and(|v| r.values.iter().any(|x| x == v)))
    })
}

fn smallest_match(
    claim: &PersistentVolumeClaim,
    node: &NodeInfo,
    snapshot: &Snapshot,
    taken: &[&str],
) -> Option<Arc<PersistentVolume>> {
    let free = snapshot.volumes.values().filter(|volume| {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let named = volume.spec.as_ref().is_some_and(|s| s.claim_ref.is_some());
        !named && !taken.contains(&name) && fits(volume, claim) && reachable(volume, node)
    });
    free.min_by_key(|volume| capacity(volume)).cloned()
}
