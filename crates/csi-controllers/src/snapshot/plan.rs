//! Which snapshots are due, and what of each. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};

use super::kinds::{SnapshotStatus, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use crate::provision::plan::Me;
use crate::provision::topology;

/// The class of a driver for snapshots that name none.
pub const DEFAULT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// Keeps a snapshot until its content is gone.
pub const BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
/// Keeps a snapshot while volumes are made of it.
pub const AS_SOURCE: &str = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// Keeps a content until the driver's snapshot is gone.
pub const CONTENT: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// Keeps a claim while it is copied.
pub const CLAIM: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";
/// Said of a content before the driver is asked to take the snapshot: whoever comes next knows that there may be one.
pub const BEING_CREATED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// Said of a content whose snapshot goes.
pub const BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
/// On which node a content's snapshot lies, where each node has a driver of its own.
pub const NODE: &str = "snapshot.storage.kubernetes.io/managed-by";

/// Keeps a snapshot as long as the group that it was taken in.
pub const IN_GROUP: &str = "snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection";
/// Said of a content that was taken in a group: the driver's handle of that. It goes with the group, and the driver is not asked
/// about it alone.
pub const GROUP_HANDLE: &str = "groupsnapshot.storage.kubernetes.io/volumeGroupSnapshotHandle";

/// What is read.
#[derive(Debug, Default)]
pub struct World {
    /// All snapshots.
    pub snapshots: Vec<Arc<VolumeSnapshot>>,
    /// Contents by name.
    pub contents: BTreeMap<String, Arc<VolumeSnapshotContent>>,
    /// Classes by name.
    pub classes: BTreeMap<String, Arc<VolumeSnapshotClass>>,
    /// All claims.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<Node>>,
}

/// One act; its key is the object's.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Make the snapshot carry its finalizers, and the class that it did not name.
    Protect(Arc<VolumeSnapshot>, Option<String>),
    /// Keep the claim, then make the content.
    Begin(Box<Begin>),
    /// Say on the content that it is this snapshot's.
    Bind(Arc<VolumeSnapshot>, Arc<VolumeSnapshotContent>),
    /// Say on the snapshot what its content says.
    Tell(Arc<VolumeSnapshot>, Box<SnapshotStatus>),
    /// Say why nothing can be taken.
    Refuse(Arc<VolumeSnapshot>, String),
    /// The snapshot goes: delete its content.
    Discard(Arc<VolumeSnapshot>, Arc<VolumeSnapshotContent>),
    /// Let the snapshot go.
    Release(Arc<VolumeSnapshot>),
    /// The claim is copied no longer: let it go.
    Free(Arc<PersistentVolumeClaim>),
    /// Ask the driver to take it, and say what it says.
    Take(Arc<VolumeSnapshotContent>, Option<Arc<VolumeSnapshotClass>>),
    /// Ask the driver about a snapshot that somebody else has taken.
    Look(Arc<VolumeSnapshotContent>),
    /// The driver may have taken it or not: ask again, and delete what there is.
    Delete(Arc<VolumeSnapshotContent>, Option<Arc<VolumeSnapshotClass>>),
    /// The content goes, the driver's snapshot stays.
    Forget(Arc<VolumeSnapshotContent>),
}

/// What a new content is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Begin {
    /// For which snapshot.
    pub snapshot: Arc<VolumeSnapshot>,
    /// How.
    pub class: Arc<VolumeSnapshotClass>,
    /// Of which claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// Of which volume.
    pub volume: Arc<PersistentVolume>,
}

impl Action {
    /// The object that the act is about.
    #[must_use]
    pub fn key(&self) -> String {
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        match self {
            Self::Begin(begin) => format!("snapshot {}", name(&begin.snapshot.metadata.uid)),
            Self::Protect(s, _)
            | Self::Bind(s, _)
            | Self::Tell(s, _)
            | Self::Refuse(s, _)
            | Self::Discard(s, _)
            | Self::Release(s) => format!("snapshot {}", name(&s.metadata.uid)),
            Self::Free(claim) => format!("claim {}", name(&claim.metadata.uid)),
            Self::Take(c, _) | Self::Look(c) | Self::Delete(c, _) | Self::Forget(c) => {
                format!("content {}", name(&c.metadata.name))
            }
        }
    }
}

/// The name of a snapshot's content.
#[must_use]
pub fn content_name(snapshot: &VolumeSnapshot) -> String {
    format!("snapcontent-{}", snapshot.metadata.uid.as_deref().unwrap_or_default())
}

/// The name of a content's snapshot at the driver.
#[must_use]
pub fn driver_name(content: &VolumeSnapshotContent) -> String {
    format!("snapshot-{}", content.spec.volume_snapshot_ref.uid.as_deref().unwrap_or_default())
}

/// All acts.
#[must_use]
pub fn plan(world: &World, me: &Me) -> Vec<Action> {
    let snapshots = world.snapshots.iter().filter_map(|s| for_snapshot(world, me, s));
    let contents = world.contents.values().filter_map(|c| for_content(world, me, c));
    let claims = world.claims.iter().filter(|c| is_free(world, me, c));
    snapshots.chain(contents).chain(claims.map(|c| Action::Free(Arc::clone(c)))).collect()
}

fn has(finalizers: Option<&Vec<String>>, finalizer: &str) -> bool {
    finalizers.into_iter().flatten().any(|f| f == finalizer)
}

/// Where its data come from.
struct Origin {
    claim: Arc<PersistentVolumeClaim>,
    volume: Option<Arc<PersistentVolume>>,
}

fn origin(world: &World, snapshot: &VolumeSnapshot) -> Option<Origin> {
    let name = snapshot.spec.source.persistent_volume_claim_name.as_ref()?;
    let claim = world.claims.iter().find(|c| {
        c.metadata.name.as_ref() == Some(name) && c.metadata.namespace == snapshot.metadata.namespace
    })?;
    let volume = claim.spec.as_ref().and_then(|s| s.volume_name.as_ref()).and_then(|v| world.volumes.get(v));
    Some(Origin { claim: Arc::clone(claim), volume: volume.cloned() })
}

/// With a driver per node, a node's are those of the volumes that it can reach.
fn reaches(world: &World, me: &Me, volume: &PersistentVolume) -> bool {
    is_reached(&world.nodes, me, volume)
}

/// Whether a volume is of the driver, and where `me` serves only one node, in reach of that.
pub(crate) fn is_reached(nodes: &BTreeMap<String, Arc<Node>>, me: &Me, volume: &PersistentVolume) -> bool {
    let spec = volume.spec.as_ref();
    let ours = spec.and_then(|s| s.csi.as_ref()).is_some_and(|csi| csi.driver == me.driver);
    let affinity = spec.and_then(|s| s.node_affinity.as_ref());
    ours && me
        .node
        .as_ref()
        .is_none_or(|node| nodes.get(node).is_some_and(|node| topology::allows(affinity, node)))
}

fn content_is_mine(me: &Me, content: &VolumeSnapshotContent) -> bool {
    let on = content.metadata.labels.as_ref().and_then(|l| l.get(NODE));
    content.spec.driver == me.driver && me.node.as_ref().is_none_or(|node| on.is_none_or(|on| on == node))
}

/// The group that a snapshot was taken in.
#[must_use]
pub fn group_of(snapshot: &VolumeSnapshot) -> Option<&str> {
    let owners = snapshot.metadata.owner_references.iter().flatten();
    owners.into_iter().find(|o| o.kind == "VolumeGroupSnapshot").map(|o| o.uid.as_str())
}

fn for_snapshot(world: &World, me: &Me, snapshot: &Arc<VolumeSnapshot>) -> Option<Action> {
    let member = group_of(snapshot).is_some();
    let kept = has(snapshot.metadata.finalizers.as_ref(), IN_GROUP);
    if member
        && (content_of(world, snapshot).is_none() || kept && snapshot.metadata.deletion_timestamp.is_some())
    {
        // Its group makes it, and lets it go.
        return None;
    }
    let content = content_of(world, snapshot);
    if let Some(content) = content {
        if !content_is_mine(me, content) {
            return None;
        }
        return with_content(world, snapshot, content);
    }
    let leaving = snapshot.metadata.deletion_timestamp.is_some();
    let origin = origin(world, snapshot);
    let mine = origin.as_ref().and_then(|o| o.volume.as_ref()).is_some_and(|v| reaches(world, me, v));
    if leaving {
        return leave(world, me, snapshot, mine);
    }
    let (Some(Origin { claim, volume: Some(volume) }), true) = (origin, mine) else { return None };
    let class = match class_of(world, me, snapshot) {
        Ok(class) => class,
        Err(text) => return Some(Action::Refuse(Arc::clone(snapshot), text)),
    };
    if let Some(unprotected) = protect(snapshot, &class) {
        return Some(unprotected);
    }
    if class.driver != me.driver {
        let text = format!(
            "Failed to create snapshot content with error volume snapshot class {} is of driver {}, the volume of {}",
            class.metadata.name.as_deref().unwrap_or_default(),
            class.driver,
            me.driver
        );
        return Some(Action::Refuse(Arc::clone(snapshot), text));
    }
    let lost = claim.metadata.deletion_timestamp.is_some() && !has(claim.metadata.finalizers.as_ref(), CLAIM);
    if lost {
        let text = "Failed to create snapshot content with error its claim is being deleted".to_owned();
        return Some(Action::Refuse(Arc::clone(snapshot), text));
    }
    Some(Action::Begin(Box::new(Begin { snapshot: Arc::clone(snapshot), class, claim, volume })))
}

/// A snapshot that goes and has no content: nothing holds it but its users. Where each node has a driver of its own, and nobody
/// knows whose it was, all of them may let it go.
fn leave(world: &World, me: &Me, snapshot: &Arc<VolumeSnapshot>, mine: bool) -> Option<Action> {
    let class = snapshot.spec.volume_snapshot_class_name.as_ref().and_then(|c| world.classes.get(c));
    let ours = mine || class.is_some_and(|c| c.driver == me.driver);
    let held = [BOUND, AS_SOURCE].iter().any(|f| has(snapshot.metadata.finalizers.as_ref(), f));
    (ours && held && !is_used(world, snapshot)).then(|| Action::Release(Arc::clone(snapshot)))
}

fn content_of<'a>(world: &'a World, snapshot: &VolumeSnapshot) -> Option<&'a Arc<VolumeSnapshotContent>> {
    if group_of(snapshot).is_some() {
        let bound = snapshot.status.as_ref()?.bound_volume_snapshot_content_name.as_ref();
        return world.contents.get(bound?);
    }
    let named = snapshot.spec.source.volume_snapshot_content_name.clone();
    world.contents.get(&named.unwrap_or_else(|| content_name(snapshot)))
}

fn class_of(world: &World, me: &Me, snapshot: &VolumeSnapshot) -> Result<Arc<VolumeSnapshotClass>, String> {
    if let Some(name) = &snapshot.spec.volume_snapshot_class_name {
        return world.classes.get(name).cloned().ok_or_else(|| {
            format!(
                "Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io \"{name}\" not found"
            )
        });
    }
    let default = |c: &&Arc<VolumeSnapshotClass>| {
        let annotations = c.metadata.annotations.as_ref();
        c.driver == me.driver
            && annotations.and_then(|a| a.get(DEFAULT_CLASS)).is_some_and(|value| value == "true")
    };
    let all: Vec<_> = world.classes.values().filter(default).collect();
    match all.as_slice() {
        [one] => Ok(Arc::clone(one)),
        [] => {
            Err("Failed to set default snapshot class with error cannot find default snapshot class"
                .to_owned())
        }
        many => Err(format!(
            "Failed to set default snapshot class with error {} default snapshot classes were found",
            many.len()
        )),
    }
}

fn protect(snapshot: &Arc<VolumeSnapshot>, class: &VolumeSnapshotClass) -> Option<Action> {
    let protected = [BOUND, AS_SOURCE].iter().all(|f| has(snapshot.metadata.finalizers.as_ref(), f));
    let named = snapshot.spec.volume_snapshot_class_name.is_some();
    (!protected || !named).then(|| {
        let class = if named { None } else { class.metadata.name.clone() };
        Action::Protect(Arc::clone(snapshot), class)
    })
}

fn with_content(
    world: &World,
    snapshot: &Arc<VolumeSnapshot>,
    content: &Arc<VolumeSnapshotContent>,
) -> Option<Action> {
    let reference = &content.spec.volume_snapshot_ref;
    let same = reference.name == snapshot.metadata.name && reference.namespace == snapshot.metadata.namespace;
    let uid = reference.uid.as_deref().filter(|uid| !uid.is_empty());
    let bound = uid.is_some() && uid == snapshot.metadata.uid.as_deref();
    if snapshot.metadata.deletion_timestamp.is_some() {
        if is_used(world, snapshot) {
            return None;
        }
        let goes = content.spec.deletion_policy == "Delete" && (bound || uid.is_none() && same);
        if goes {
            let told = content.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(BEING_DELETED));
            let begun = told && content.metadata.deletion_timestamp.is_some();
            return (!begun).then(|| Action::Discard(Arc::clone(snapshot), Arc::clone(content)));
        }
        let held = [BOUND, AS_SOURCE].iter().any(|f| has(snapshot.metadata.finalizers.as_ref(), f));
        return held.then(|| Action::Release(Arc::clone(snapshot)));
    }
    if !same || (uid.is_some() && !bound) {
        let text = format!(
            "VolumeSnapshotContent {:?} is bound to a different VolumeSnapshot",
            content.metadata.name.as_deref().unwrap_or_default()
        );
        return Some(Action::Refuse(Arc::clone(snapshot), text));
    }
    let protected = [BOUND, AS_SOURCE].iter().all(|f| has(snapshot.metadata.finalizers.as_ref(), f));
    if !protected {
        return Some(Action::Protect(Arc::clone(snapshot), None));
    }
    if !bound {
        return Some(Action::Bind(Arc::clone(snapshot), Arc::clone(content)));
    }
    let status = super::status::of(content);
    let told = snapshot.status.as_ref().is_some_and(|now| super::status::says(now, &status));
    (!told).then(|| Action::Tell(Arc::clone(snapshot), Box::new(status)))
}

/// Whether a volume is being made of it: of a claim that has none yet.
fn is_used(world: &World, snapshot: &VolumeSnapshot) -> bool {
    is_copied(&world.claims, snapshot)
}

/// Whether one of `claims`, which has no volume yet, is to be filled from `snapshot`.
pub(crate) fn is_copied(claims: &[Arc<PersistentVolumeClaim>], snapshot: &VolumeSnapshot) -> bool {
    claims.iter().any(|claim| {
        let Some(spec) = &claim.spec else { return false };
        let named = spec.data_source.as_ref().map(|d| (d.kind.as_str(), Some(&d.name)));
        let unbound = spec.volume_name.as_deref().is_none_or(str::is_empty);
        claim.metadata.namespace == snapshot.metadata.namespace
            && claim.metadata.deletion_timestamp.is_none()
            && unbound
            && named == Some(("VolumeSnapshot", snapshot.metadata.name.as_ref()))
    })
}

/// Whether a claim is held, though no snapshot is being taken of it.
fn is_free(world: &World, me: &Me, claim: &PersistentVolumeClaim) -> bool {
    if !has(claim.metadata.finalizers.as_ref(), CLAIM) {
        return false;
    }
    let volume = claim.spec.as_ref().and_then(|s| s.volume_name.as_ref()).and_then(|v| world.volumes.get(v));
    let mine = volume.is_some_and(|v| reaches(world, me, v));
    let being_taken = world.snapshots.iter().any(|s| {
        s.metadata.namespace == claim.metadata.namespace
            && s.spec.source.persistent_volume_claim_name == claim.metadata.name
            && s.metadata.deletion_timestamp.is_none()
            && s.status
                .as_ref()
                .is_none_or(|status| status.ready_to_use != Some(true) && status.error.is_none())
    });
    mine && !being_taken
}

fn for_content(world: &World, me: &Me, content: &Arc<VolumeSnapshotContent>) -> Option<Action> {
    if !content_is_mine(me, content) {
        return None;
    }
    let class =
        content.spec.volume_snapshot_class_name.as_ref().and_then(|name| world.classes.get(name)).cloned();
    let status = content.status.as_ref();
    let ready = status.is_some_and(|s| s.ready_to_use == Some(true));
    if content.metadata.deletion_timestamp.is_some() {
        if !has(content.metadata.finalizers.as_ref(), CONTENT) {
            return None;
        }
        // A content that somebody deletes below its snapshot stays until that goes, too.
        let reference = &content.spec.volume_snapshot_ref;
        let user = world.snapshots.iter().find(|s| {
            s.metadata.name == reference.name
                && s.metadata.namespace == reference.namespace
                && s.metadata.uid == reference.uid
        });
        if user.is_some_and(|s| s.metadata.deletion_timestamp.is_none()) {
            return None;
        }
        let member = content.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(GROUP_HANDLE));
        return Some(if content.spec.deletion_policy == "Delete" && !member {
            Action::Delete(Arc::clone(content), class)
        } else {
            Action::Forget(Arc::clone(content))
        });
    }
    let member = content.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(GROUP_HANDLE));
    if ready || member {
        return None;
    }
    if content.spec.source.volume_handle.is_some() {
        return Some(Action::Take(Arc::clone(content), class));
    }
    Some(Action::Look(Arc::clone(content)))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
