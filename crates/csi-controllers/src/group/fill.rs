//! The members of a group as objects: a snapshot and a content each, as if they had been asked for one by one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use trine_typed::kube::{self, Api, ResourceExt};

use super::act::{Done, drop_content};
use super::kinds::{API_VERSION, VolumeGroupSnapshot, VolumeGroupSnapshotContent};
use super::plan::{Member, member_names};
use crate::run::Cx;
use crate::snapshot::kinds::{VolumeSnapshot, VolumeSnapshotContent};
use crate::snapshot::plan::{AS_SOURCE, BOUND, CONTENT, GROUP_HANDLE, IN_GROUP, NODE};
use crate::work::Outcome;

/// Makes the objects of `members`, whatever of them is there already.
pub(super) async fn fill(
    cx: &Cx,
    group: &VolumeGroupSnapshot,
    content: &VolumeGroupSnapshotContent,
    members: &[Member],
) -> Done {
    for member in members {
        let (name, content_name) = member_names(group, &member.info);
        let snapshots: Api<VolumeSnapshot> =
            Api::namespaced(cx.client.clone(), &group.namespace().unwrap_or_default());
        let snapshot = made(&snapshots, snapshot(group, member, &name)).await?;
        let contents: Api<VolumeSnapshotContent> = Api::all(cx.client.clone());
        let object = self::content(cx, &snapshot, content, member, &content_name);
        made(&contents, object).await?;
        let handle = content.status.as_ref().and_then(|s| s.volume_group_snapshot_handle.clone());
        let status = json!({"snapshotHandle": member.info.snapshot_handle, "volumeGroupSnapshotHandle": handle,
            "creationTime": member.info.creation_time, "restoreSize": member.info.restore_size,
            "readyToUse": member.info.ready_to_use.unwrap_or_default()});
        let patch = Patch::Merge(json!({"status": status}));
        contents.patch_status(&content_name, &PatchParams::default(), &patch).await?;
        let status = json!({"boundVolumeSnapshotContentName": content_name,
            "volumeGroupSnapshotName": group.name_any()});
        let patch = Patch::Merge(json!({"status": status}));
        snapshots.patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(Outcome::Done)
}

/// `object`, made now or earlier.
async fn made<K>(api: &Api<K>, object: K) -> Result<K, kube::Error>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => api.get(&object.name_any()).await,
        other => other,
    }
}

fn snapshot(group: &VolumeGroupSnapshot, member: &Member, name: &str) -> VolumeSnapshot {
    let mut object = VolumeSnapshot::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.namespace = group.namespace();
    object.metadata.finalizers = Some(vec![IN_GROUP.to_owned()]);
    object.metadata.owner_references = Some(vec![OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: "VolumeGroupSnapshot".to_owned(),
        name: group.name_any(),
        uid: group.uid().unwrap_or_default(),
        ..Default::default()
    }]);
    let claim = member.volume.as_ref().and_then(|v| v.spec.as_ref()?.claim_ref.as_ref()?.name.clone());
    object.spec.source.persistent_volume_claim_name = Some(claim.unwrap_or_default());
    object
}

fn content(
    cx: &Cx,
    snapshot: &VolumeSnapshot,
    group: &VolumeGroupSnapshotContent,
    member: &Member,
    name: &str,
) -> VolumeSnapshotContent {
    let mut object = VolumeSnapshotContent::default();
    let handle = group.status.as_ref().and_then(|s| s.volume_group_snapshot_handle.clone());
    object.metadata.name = Some(name.to_owned());
    object.metadata.finalizers = Some(vec![CONTENT.to_owned()]);
    object.metadata.annotations =
        Some(BTreeMap::from([(GROUP_HANDLE.to_owned(), handle.unwrap_or_default())]));
    let node = cx.config.node_name.as_ref();
    object.metadata.labels = node.map(|node| BTreeMap::from([(NODE.to_owned(), node.clone())]));
    object.spec.deletion_policy.clone_from(&group.spec.deletion_policy);
    object.spec.driver.clone_from(&group.spec.driver);
    if member.info.volume_handle.is_empty() {
        object.spec.source.snapshot_handle = Some(member.info.snapshot_handle.clone());
    } else {
        object.spec.source.volume_handle = Some(member.info.volume_handle.clone());
    }
    let mode = member.volume.as_ref().and_then(|v| v.spec.as_ref()?.volume_mode.clone());
    object.spec.source_volume_mode = mode;
    let reference = &mut object.spec.volume_snapshot_ref;
    reference.kind = Some("VolumeSnapshot".to_owned());
    reference.name = snapshot.metadata.name.clone();
    reference.namespace = snapshot.metadata.namespace.clone();
    reference.uid = snapshot.metadata.uid.clone();
    object
}

/// The group goes: its members with their contents, and its own `content` if the driver's snapshots are to go.
pub(super) async fn discard(
    cx: &Cx,
    content: Option<&VolumeGroupSnapshotContent>,
    members: &[Arc<VolumeSnapshot>],
) -> Result<(), kube::Error> {
    for member in members {
        let bound = member.status.as_ref().and_then(|s| s.bound_volume_snapshot_content_name.as_ref());
        if let (Some(_), Some(name)) = (content, bound) {
            let contents: Api<VolumeSnapshotContent> = Api::all(cx.client.clone());
            gone(contents.delete(name, &DeleteParams::default()).await)?;
        }
        let snapshots: Api<VolumeSnapshot> =
            Api::namespaced(cx.client.clone(), &member.namespace().unwrap_or_default());
        let name = member.name_any();
        gone(snapshots.delete(&name, &DeleteParams::default()).await)?;
        let ours = [IN_GROUP, BOUND, AS_SOURCE];
        let kept: Vec<&String> = member.finalizers().iter().filter(|f| !ours.contains(&f.as_str())).collect();
        let patch = Patch::Merge(json!({"metadata": {"finalizers": kept}}));
        gone(snapshots.patch(&name, &PatchParams::default(), &patch).await)?;
    }
    match content {
        Some(content) => drop_content(cx, content).await,
        None => Ok(()),
    }
}

/// What is gone already is.
fn gone<T>(done: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}
