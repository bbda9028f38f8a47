//! Which groups of snapshots are due, and what of each. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use sha2::{Digest, Sha256};
use trine_objects::selector::label::LabelSelector;
use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};

use super::kinds::{
    GroupStatus, Info, VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent,
};
use crate::provision::plan::Me;
use crate::snapshot::kinds::{VolumeSnapshot, VolumeSnapshotContent};
use crate::snapshot::plan::{NODE, group_of, is_copied, is_reached};

/// The class of a driver for groups that name none.
pub const DEFAULT_CLASS: &str = "groupsnapshot.storage.kubernetes.io/is-default-class";
/// Keeps a group until its content and its members are gone.
pub const BOUND: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-bound-protection";
/// Keeps a content until the driver's snapshots are gone.
pub const CONTENT: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";
/// Said of a content before the driver is asked: whoever comes next knows that there may be snapshots.
pub const BEING_CREATED: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created";
/// Said of a content whose group goes.
pub const BEING_DELETED: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";

/// What is read.
#[derive(Debug, Default)]
pub struct World {
    /// All groups.
    pub groups: Vec<Arc<VolumeGroupSnapshot>>,
    /// Their contents by name.
    pub contents: BTreeMap<String, Arc<VolumeGroupSnapshotContent>>,
    /// Their classes by name.
    pub classes: BTreeMap<String, Arc<VolumeGroupSnapshotClass>>,
    /// All snapshots.
    pub snapshots: Vec<Arc<VolumeSnapshot>>,
    /// Their contents by name.
    pub members: BTreeMap<String, Arc<VolumeSnapshotContent>>,
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
    /// Make the group carry its finalizer, and the class that it did not name.
    Protect(Arc<VolumeGroupSnapshot>, Option<String>),
    /// Make the content.
    Begin(Box<Begin>),
    /// Say on the content that it is this group's.
    Bind(Arc<VolumeGroupSnapshot>, Arc<VolumeGroupSnapshotContent>),
    /// Make a snapshot and its content for each of these members.
    Fill(Arc<VolumeGroupSnapshot>, Arc<VolumeGroupSnapshotContent>, Vec<Member>),
    /// Say on the group what its content says.
    Tell(Arc<VolumeGroupSnapshot>, Box<GroupStatus>),
    /// Say why nothing can be taken.
    Refuse(Arc<VolumeGroupSnapshot>, String),
    /// The group goes: delete its members, and its content.
    Discard(Arc<VolumeGroupSnapshot>, Option<Arc<VolumeGroupSnapshotContent>>, Vec<Arc<VolumeSnapshot>>),
    /// Let the group go.
    Release(Arc<VolumeGroupSnapshot>),
    /// Ask the driver to take it, and say what it says.
    Take(Arc<VolumeGroupSnapshotContent>, Option<Arc<VolumeGroupSnapshotClass>>),
    /// Ask the driver about a group that somebody else has taken.
    Look(Arc<VolumeGroupSnapshotContent>),
    /// The driver may have taken it or not: ask again, and delete what there is.
    Delete(Arc<VolumeGroupSnapshotContent>, Option<Arc<VolumeGroupSnapshotClass>>),
    /// The content goes, the driver's snapshots stay.
    Forget(Arc<VolumeGroupSnapshotContent>),
}

/// What a new content is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Begin {
    /// For which group.
    pub group: Arc<VolumeGroupSnapshot>,
    /// How.
    pub class: Arc<VolumeGroupSnapshotClass>,
    /// The driver's handles of the volumes, by the names of their claims.
    pub handles: Vec<String>,
}

/// One member that is to have its objects.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// What the driver says of it.
    pub info: Info,
    /// The volume that it is of, if that is still there.
    pub volume: Option<Arc<PersistentVolume>>,
}

impl Action {
    /// The object that the act is about.
    #[must_use]
    pub fn key(&self) -> String {
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        match self {
            Self::Begin(begin) => format!("group {}", name(&begin.group.metadata.uid)),
            Self::Protect(g, _)
            | Self::Bind(g, _)
            | Self::Fill(g, _, _)
            | Self::Tell(g, _)
            | Self::Refuse(g, _)
            | Self::Discard(g, _, _)
            | Self::Release(g) => format!("group {}", name(&g.metadata.uid)),
            Self::Take(c, _) | Self::Look(c) | Self::Delete(c, _) | Self::Forget(c) => {
                format!("content {}", name(&c.metadata.name))
            }
        }
    }
}

/// The name of a group's content.
#[must_use]
pub fn content_name(group: &VolumeGroupSnapshot) -> String {
    format!("groupsnapcontent-{}", group.metadata.uid.as_deref().unwrap_or_default())
}

/// The name of a content's group at the driver.
#[must_use]
pub fn driver_name(content: &VolumeGroupSnapshotContent) -> String {
    let uid = content.spec.volume_group_snapshot_ref.uid.as_deref();
    format!("groupsnapshot-{}", uid.unwrap_or_default())
}

/// The names of a member's snapshot and of its content.
#[must_use]
pub fn member_names(group: &VolumeGroupSnapshot, info: &Info) -> (String, String) {
    // Of a group that somebody else has taken the driver may not say which volumes it was of.
    let of = if info.volume_handle.is_empty() { &info.snapshot_handle } else { &info.volume_handle };
    let hash = Sha256::digest(format!("{}{of}", group.metadata.uid.as_deref().unwrap_or_default()));
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("snapshot-{hash}"), format!("snapcontent-{hash}"))
}

/// All acts.
#[must_use]
pub fn plan(world: &World, me: &Me) -> Vec<Action> {
    let groups = world.groups.iter().filter_map(|g| for_group(world, me, g));
    let contents = world.contents.values().filter_map(|c| for_content(world, me, c));
    groups.chain(contents).collect()
}

fn has(finalizers: Option<&Vec<String>>, finalizer: &str) -> bool {
    finalizers.into_iter().flatten().any(|f| f == finalizer)
}

fn content_is_mine(me: &Me, content: &VolumeGroupSnapshotContent) -> bool {
    let on = content.metadata.labels.as_ref().and_then(|l| l.get(NODE));
    content.spec.driver == me.driver && me.node.as_ref().is_none_or(|node| on.is_none_or(|on| on == node))
}

fn for_group(world: &World, me: &Me, group: &Arc<VolumeGroupSnapshot>) -> Option<Action> {
    let named = group.spec.source.volume_group_snapshot_content_name.clone();
    let content = world.contents.get(&named.unwrap_or_else(|| content_name(group)));
    if let Some(content) = content {
        return content_is_mine(me, content).then(|| with_content(world, group, content)).flatten();
    }
    let class = class_of(world, me, group);
    if group.metadata.deletion_timestamp.is_some() {
        let ours = class.is_ok_and(|class| class.driver == me.driver);
        return ours.then(|| leave(world, group, None)).flatten();
    }
    let selector = group.spec.source.selector.as_ref()?;
    let refuse = |text: String| {
        let text = format!("failed to create group snapshot content with error {text}");
        Some(Action::Refuse(Arc::clone(group), text))
    };
    let chosen = match chosen(world, me, group, &json!(selector)) {
        Ok(None) => return None,
        Ok(Some(handles)) => Ok(handles),
        Err(text) => Err(text),
    };
    let class = match class {
        Ok(class) if class.driver == me.driver => class,
        // Whose volumes they are may say so, but which of several drivers is that?
        Ok(_) => return None,
        Err(text) => return refuse(text),
    };
    let handles = match chosen {
        Ok(handles) => handles,
        Err(text) => return refuse(text),
    };
    if let Some(unprotected) = protect(group, &class) {
        return Some(unprotected);
    }
    Some(Action::Begin(Box::new(Begin { group: Arc::clone(group), class, handles })))
}

/// The driver's handles of the volumes that are meant; none if they are another node's affair. Where each node has a driver of its
/// own, the one that has the first of them speaks for all.
fn chosen(
    world: &World,
    me: &Me,
    group: &VolumeGroupSnapshot,
    selector: &serde_json::Value,
) -> Result<Option<Vec<String>>, String> {
    let selector = LabelSelector::from_object(selector).map_err(|error| error.to_string())?;
    let mut claims: Vec<_> = world
        .claims
        .iter()
        .filter(|c| c.metadata.namespace == group.metadata.namespace)
        .filter(|c| selector.matches(&json!(c.metadata.labels)))
        .collect();
    claims.sort_by_key(|c| c.metadata.name.clone());
    if claims.is_empty() {
        return Err("the selector matches no persistentVolumeClaim".to_owned());
    }
    let mut handles = Vec::new();
    for (place, claim) in claims.into_iter().enumerate() {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let volume = claim.spec.as_ref().and_then(|s| s.volume_name.as_ref());
        let volume = volume.and_then(|v| world.volumes.get(v)).ok_or_else(|| {
            format!("the PVC {name} is not yet bound to a PV, will not attempt to take a group snapshot")
        })?;
        let csi = volume.spec.as_ref().and_then(|s| s.csi.as_ref());
        let Some(csi) = csi.filter(|csi| csi.driver == me.driver) else {
            // Of another driver from the first on: that one's.
            if place == 0 {
                return Ok(None);
            }
            return Err(format!("the volume of PVC {name} is not of driver {}", me.driver));
        };
        if !is_reached(&world.nodes, me, volume) {
            if place == 0 {
                return Ok(None);
            }
            let node = me.node.as_deref().unwrap_or_default();
            return Err(format!("the volume of PVC {name} is not on node {node}, where another one is"));
        }
        handles.push(csi.volume_handle.clone());
    }
    Ok(Some(handles))
}

fn class_of(
    world: &World,
    me: &Me,
    group: &VolumeGroupSnapshot,
) -> Result<Arc<VolumeGroupSnapshotClass>, String> {
    if let Some(name) = &group.spec.volume_group_snapshot_class_name {
        return world.classes.get(name).cloned().ok_or_else(|| {
            format!("volumegroupsnapshotclass.groupsnapshot.storage.k8s.io \"{name}\" not found")
        });
    }
    let default = |c: &&Arc<VolumeGroupSnapshotClass>| {
        let annotations = c.metadata.annotations.as_ref();
        c.driver == me.driver
            && annotations.and_then(|a| a.get(DEFAULT_CLASS)).is_some_and(|value| value == "true")
    };
    let all: Vec<_> = world.classes.values().filter(default).collect();
    match all.as_slice() {
        [one] => Ok(Arc::clone(one)),
        [] => Err("cannot find default group snapshot class".to_owned()),
        many => Err(format!("{} default group snapshot classes were found", many.len())),
    }
}

fn protect(group: &Arc<VolumeGroupSnapshot>, class: &VolumeGroupSnapshotClass) -> Option<Action> {
    let named = group.spec.volume_group_snapshot_class_name.is_some();
    let protected = has(group.metadata.finalizers.as_ref(), BOUND);
    (!protected || !named).then(|| {
        let class = if named { None } else { class.metadata.name.clone() };
        Action::Protect(Arc::clone(group), class)
    })
}

/// The snapshots that were made for a group.
fn members_of(world: &World, group: &VolumeGroupSnapshot) -> Vec<Arc<VolumeSnapshot>> {
    let of = |s: &&Arc<VolumeSnapshot>| {
        s.metadata.namespace == group.metadata.namespace && group_of(s) == group.metadata.uid.as_deref()
    };
    world.snapshots.iter().filter(of).cloned().collect()
}

/// A group that goes: its members first, its content with them, then itself.
fn leave(
    world: &World,
    group: &Arc<VolumeGroupSnapshot>,
    content: Option<&Arc<VolumeGroupSnapshotContent>>,
) -> Option<Action> {
    let members = members_of(world, group);
    if members.iter().any(|member| is_copied(&world.claims, member)) {
        return None;
    }
    let goes = content.filter(|c| c.spec.deletion_policy == "Delete");
    let told = |c: &VolumeGroupSnapshotContent| {
        c.metadata.deletion_timestamp.is_some()
            && c.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(BEING_DELETED))
    };
    if !members.is_empty() || goes.is_some_and(|c| !told(c)) {
        return Some(Action::Discard(Arc::clone(group), goes.cloned(), members));
    }
    let held = has(group.metadata.finalizers.as_ref(), BOUND);
    (goes.is_none() && held).then(|| Action::Release(Arc::clone(group)))
}

fn with_content(
    world: &World,
    group: &Arc<VolumeGroupSnapshot>,
    content: &Arc<VolumeGroupSnapshotContent>,
) -> Option<Action> {
    let reference = &content.spec.volume_group_snapshot_ref;
    let same = reference.name == group.metadata.name && reference.namespace == group.metadata.namespace;
    let uid = reference.uid.as_deref().filter(|uid| !uid.is_empty());
    let bound = uid.is_some() && uid == group.metadata.uid.as_deref();
    if group.metadata.deletion_timestamp.is_some() {
        return leave(world, group, Some(content).filter(|_| bound || uid.is_none() && same));
    }
    if !same || (uid.is_some() && !bound) {
        let name = content.metadata.name.as_deref().unwrap_or_default();
        let text = format!("VolumeGroupSnapshotContent [{name}] is bound to a different group snapshot");
        return Some(Action::Refuse(Arc::clone(group), text));
    }
    if !has(group.metadata.finalizers.as_ref(), BOUND) {
        return Some(Action::Protect(Arc::clone(group), None));
    }
    if !bound {
        return Some(Action::Bind(Arc::clone(group), Arc::clone(content)));
    }
    let missing = missing(world, group, content);
    if !missing.is_empty() {
        return Some(Action::Fill(Arc::clone(group), Arc::clone(content), missing));
    }
    let wanted = status(content);
    let told = group.status.as_ref().is_some_and(|now| says(now, &wanted));
    (!told).then(|| Action::Tell(Arc::clone(group), Box::new(wanted)))
}

/// The members that lack an object, or what binds it.
fn missing(world: &World, group: &VolumeGroupSnapshot, content: &VolumeGroupSnapshotContent) -> Vec<Member> {
    let status = content.status.as_ref();
    if status.is_none_or(|s| s.volume_group_snapshot_handle.is_none()) {
        return Vec::new();
    }
    let infos = status.and_then(|s| s.volume_snapshot_info_list.as_ref());
    let has_all = |info: &&Info| {
        let (name, content) = member_names(group, info);
        let there = world.snapshots.iter().any(|s| {
            let bound = s.status.as_ref().and_then(|s| s.bound_volume_snapshot_content_name.as_ref());
            s.metadata.name.as_ref() == Some(&name)
                && s.metadata.namespace == group.metadata.namespace
                && bound == Some(&content)
        });
        let said = world.members.get(&content).and_then(|c| c.status.as_ref());
        there && said.is_some_and(|s| s.snapshot_handle.is_some())
    };
    let of = |handle: &str| {
        let volume = world.volumes.values().find(|v| {
            let csi = v.spec.as_ref().and_then(|s| s.csi.as_ref());
            csi.is_some_and(|csi| csi.driver == content.spec.driver && csi.volume_handle == handle)
        });
        volume.cloned()
    };
    let infos = infos.into_iter().flatten().filter(|info| !has_all(info));
    infos.map(|info| Member { info: info.clone(), volume: of(&info.volume_handle) }).collect()
}

/// A group's status, by its content.
#[must_use]
pub fn status(content: &VolumeGroupSnapshotContent) -> GroupStatus {
    let status = content.status.clone().unwrap_or_default();
    GroupStatus {
        bound_volume_group_snapshot_content_name: content.metadata.name.clone(),
        creation_time: status.creation_time,
        ready_to_use: Some(status.ready_to_use.unwrap_or_default()),
        error: status.error,
    }
}

fn says(now: &GroupStatus, wanted: &GroupStatus) -> bool {
    let message = |status: &GroupStatus| status.error.as_ref().and_then(|e| e.message.clone());
    now.bound_volume_group_snapshot_content_name == wanted.bound_volume_group_snapshot_content_name
        && now.creation_time == wanted.creation_time
        && now.ready_to_use == wanted.ready_to_use
        && message(now) == message(wanted)
}

fn for_content(world: &World, me: &Me, content: &Arc<VolumeGroupSnapshotContent>) -> Option<Action> {
    if !content_is_mine(me, content) {
        return None;
    }
    let named = content.spec.volume_group_snapshot_class_name.as_ref();
    let class = named.and_then(|name| world.classes.get(name)).cloned();
    if content.metadata.deletion_timestamp.is_some() {
        let reference = &content.spec.volume_group_snapshot_ref;
        let user = world.groups.iter().find(|g| {
            g.metadata.name == reference.name
                && g.metadata.namespace == reference.namespace
                && g.metadata.uid == reference.uid
        });
        // A content that somebody deletes below its group stays until that goes, too, and its members are gone.
        let held = has(content.metadata.finalizers.as_ref(), CONTENT);
        let used =
            user.is_some_and(|g| g.metadata.deletion_timestamp.is_none() || !members_of(world, g).is_empty());
        if !held || used {
            return None;
        }
        return Some(if content.spec.deletion_policy == "Delete" {
            Action::Delete(Arc::clone(content), class)
        } else {
            Action::Forget(Arc::clone(content))
        });
    }
    if content.status.as_ref().is_some_and(|s| s.ready_to_use == Some(true)) {
        return None;
    }
    if content.spec.volume_group_snapshot_ref.uid.as_deref().is_none_or(str::is_empty) {
        // Its group binds it first.
        return None;
    }
    if content.spec.source.volume_handles.is_some() {
        return Some(Action::Take(Arc::clone(content), class));
    }
    Some(Action::Look(Arc::clone(content)))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
