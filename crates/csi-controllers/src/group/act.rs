//! The calls and the writes of one act.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tracing::field::Empty;
use tracing::{Instrument, info_span};
use trine_contracts::csi;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use trine_typed::kube::{self, Api, ResourceExt};

use super::fill;
use super::kinds::{API_VERSION, VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent};
use super::plan::{Action, BEING_CREATED, BEING_DELETED, BOUND, Begin, CONTENT, content_name, driver_name};
use crate::finalizers;
use crate::grpc::CallError;
use crate::run::Cx;
use crate::secrets::{self, Purpose};
use crate::snapshot::plan::NODE;
use crate::work::{Outcome, settled};

pub(super) type Done = Result<Outcome, kube::Error>;

/// What a content carries for its end: which secret the driver is to be told then.
const SECRET: &str = "groupsnapshot.storage.kubernetes.io/deletion-secret";

/// Does `action`; what failed is in events, in the object's status and in the log.
pub(super) async fn act(cx: Cx, action: Action) -> Outcome {
    let done = match &action {
        Action::Protect(group, class) => protect(&cx, group, class.as_deref()).await,
        Action::Begin(begin) => self::begin(&cx, begin).await,
        Action::Bind(group, content) => bind(&cx, group, content).await,
        Action::Fill(group, content, members) => fill::fill(&cx, group, content, members).await,
        Action::Tell(group, wanted) => tell(&cx, group, json!(wanted)).await,
        Action::Refuse(group, text) => refuse(&cx, group, text).await,
        Action::Discard(_, content, members) => {
            fill::discard(&cx, content.as_deref(), members).await.map(|()| Outcome::Done)
        }
        Action::Release(group) => {
            finalizers::remove(&groups(&cx, group), &group.name_any(), BOUND).await.map(|()| Outcome::Done)
        }
        Action::Take(content, class) => take(&cx, content, class.as_deref()).await,
        Action::Look(content) => look(&cx, content).await,
        Action::Delete(content, class) => delete(&cx, content, class.as_deref()).await,
        Action::Forget(content) => forget(&cx, content).await,
    };
    settled(done, "a group snapshot")
}

fn groups(cx: &Cx, group: &VolumeGroupSnapshot) -> Api<VolumeGroupSnapshot> {
    Api::namespaced(cx.client.clone(), &group.namespace().unwrap_or_default())
}

pub(super) fn contents(cx: &Cx) -> Api<VolumeGroupSnapshotContent> {
    Api::all(cx.client.clone())
}

async fn protect(cx: &Cx, group: &VolumeGroupSnapshot, class: Option<&str>) -> Done {
    let mut list = group.finalizers().to_vec();
    if !finalizers::has(group, BOUND) {
        list.push(BOUND.to_owned());
    }
    let mut patch = json!({"metadata": {"finalizers": list, "resourceVersion": group.resource_version()}});
    if let Some(class) = class {
        patch["spec"] = json!({"volumeGroupSnapshotClassName": class});
    }
    groups(cx, group).patch(&group.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(Outcome::Done)
}

async fn begin(cx: &Cx, begin: &Begin) -> Done {
    let object = content(begin, cx.config.node_name.as_deref());
    match contents(cx).create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => drop(other?),
    }
    let text = format!(
        "Waiting for a group snapshot {}/{} to be created by the CSI driver.",
        begin.group.namespace().unwrap_or_default(),
        begin.group.name_any()
    );
    cx.recorder.post(begin.group.as_ref(), Level::Normal, "CreatingGroupSnapshot", &text).await;
    Ok(Outcome::Done)
}

/// The content of a group that is to be taken.
fn content(begin: &Begin, node: Option<&str>) -> VolumeGroupSnapshotContent {
    let mut object = VolumeGroupSnapshotContent::default();
    object.metadata.name = Some(content_name(&begin.group));
    object.metadata.finalizers = Some(vec![CONTENT.to_owned()]);
    object.metadata.labels = node.map(|node| BTreeMap::from([(NODE.to_owned(), node.to_owned())]));
    object.spec.deletion_policy.clone_from(&begin.class.deletion_policy);
    object.spec.driver.clone_from(&begin.class.driver);
    object.spec.source.volume_handles = Some(begin.handles.clone());
    object.spec.volume_group_snapshot_class_name = begin.class.metadata.name.clone();
    let reference = &mut object.spec.volume_group_snapshot_ref;
    reference.api_version = Some(API_VERSION.to_owned());
    reference.kind = Some("VolumeGroupSnapshot".to_owned());
    reference.name = begin.group.metadata.name.clone();
    reference.namespace = begin.group.metadata.namespace.clone();
    reference.uid = begin.group.metadata.uid.clone();
    reference.resource_version = begin.group.metadata.resource_version.clone();
    let of = secrets::Of::group(&object);
    if let Some((name, namespace)) =
        secrets::named(begin.class.parameters.as_ref(), Purpose::GroupSnapshot, &of)
    {
        object.metadata.annotations = Some(BTreeMap::from([
            (format!("{SECRET}-name"), name),
            (format!("{SECRET}-namespace"), namespace),
        ]));
    }
    object
}

async fn bind(cx: &Cx, group: &VolumeGroupSnapshot, content: &VolumeGroupSnapshotContent) -> Done {
    let mut patch = json!({"metadata": {"resourceVersion": content.resource_version()},
        "spec": {"volumeGroupSnapshotRef": {"uid": group.uid()}}});
    if let (Some(class), None) =
        (&group.spec.volume_group_snapshot_class_name, &content.spec.volume_group_snapshot_class_name)
    {
        patch["spec"]["volumeGroupSnapshotClassName"] = json!(class);
    }
    contents(cx).patch(&content.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(Outcome::Done)
}

async fn tell(cx: &Cx, group: &VolumeGroupSnapshot, mut status: Value) -> Done {
    // What a merge does not mention stays.
    for field in ["creationTime", "error"] {
        if status.get(field).is_none() {
            status[field] = Value::Null;
        }
    }
    let ready = status["readyToUse"] == true;
    let name = group.name_any();
    let patch = Patch::Merge(json!({"status": status}));
    groups(cx, group).patch_status(&name, &PatchParams::default(), &patch).await?;
    if ready && group.status.as_ref().is_none_or(|s| s.ready_to_use != Some(true)) {
        let text = format!("GroupSnapshot {}/{name} is ready to use.", group.namespace().unwrap_or_default());
        cx.recorder.post(group, Level::Normal, "GroupSnapshotReady", &text).await;
    }
    Ok(Outcome::Done)
}

fn failed(text: &str) -> Value {
    json!({"readyToUse": false, "error": {"time": Time(Timestamp::now()), "message": text}})
}

async fn refuse(cx: &Cx, group: &VolumeGroupSnapshot, text: &str) -> Done {
    let said = group.status.as_ref().and_then(|s| s.error.as_ref()).and_then(|e| e.message.as_deref());
    if said != Some(text) {
        let patch = Patch::Merge(json!({"status": failed(text)}));
        groups(cx, group).patch_status(&group.name_any(), &PatchParams::default(), &patch).await?;
        cx.recorder.post(group, Level::Warning, "GroupSnapshotContentCreationFailed", text).await;
    }
    Ok(Outcome::Retry)
}

async fn say(cx: &Cx, name: &str, status: Value) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({"status": status}));
    contents(cx).patch_status(name, &PatchParams::default(), &patch).await.map(drop)
}

/// A content's status, by what the driver says.
fn taken(group: &csi::VolumeGroupSnapshot) -> Value {
    let member = |snapshot: &csi::Snapshot| {
        let nanos = snapshot.creation_time.as_ref().map(|t| t.seconds * 1_000_000_000 + i64::from(t.nanos));
        json!({"volumeHandle": snapshot.source_volume_id, "snapshotHandle": snapshot.snapshot_id,
            "creationTime": nanos, "readyToUse": snapshot.ready_to_use,
            "restoreSize": (snapshot.size_bytes > 0).then_some(snapshot.size_bytes)})
    };
    let members: Vec<Value> = group.snapshots.iter().map(member).collect();
    let time = group.creation_time.as_ref().and_then(|t| Timestamp::from_second(t.seconds).ok()).map(Time);
    let ready = group.ready_to_use && group.snapshots.iter().all(|s| s.ready_to_use);
    json!({"volumeGroupSnapshotHandle": group.group_snapshot_id, "creationTime": time, "readyToUse": ready,
        "error": null, "volumeSnapshotInfoList": without_nulls(members)})
}

/// A list is written as a whole, so nothing in it means "remove".
fn without_nulls(mut members: Vec<Value>) -> Vec<Value> {
    for fields in members.iter_mut().filter_map(Value::as_object_mut) {
        fields.retain(|_, value| !value.is_null());
    }
    members
}

async fn ask(
    cx: &Cx,
    content: &VolumeGroupSnapshotContent,
    class: Option<&VolumeGroupSnapshotClass>,
) -> Result<csi::VolumeGroupSnapshot, CallError> {
    let parameters = class.and_then(|c| c.parameters.as_ref());
    let of = secrets::Of::group(content);
    let secrets = secrets::named(parameters, Purpose::GroupSnapshot, &of);
    let secrets = secrets::read(&cx.client, secrets).await?;
    let mut told = secrets::without(parameters);
    if cx.config.tell_claims {
        let reference = &content.spec.volume_group_snapshot_ref;
        let mut tell = |key: &str, value: &Option<String>| {
            told.insert(format!("csi.storage.k8s.io/{key}"), value.clone().unwrap_or_default());
        };
        tell("volumegroupsnapshot/name", &reference.name);
        tell("volumegroupsnapshot/namespace", &reference.namespace);
        tell("volumegroupsnapshotcontent/name", &content.metadata.name);
    }
    let request = csi::CreateVolumeGroupSnapshotRequest {
        name: driver_name(content),
        source_volume_ids: content.spec.source.volume_handles.clone().unwrap_or_default(),
        secrets,
        parameters: told.into_iter().collect(),
    };
    cx.driver.take_group(request).await
}

async fn done_creating(cx: &Cx, name: &str) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {"annotations": {BEING_CREATED: null}}});
    contents(cx).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

async fn take(
    cx: &Cx,
    content: &VolumeGroupSnapshotContent,
    class: Option<&VolumeGroupSnapshotClass>,
) -> Done {
    finalizers::add(&contents(cx), content, CONTENT, Some((BEING_CREATED, "yes"))).await?;
    let name = content.name_any();
    let step =
        info_span!(target: "trine::step", "group snapshot", plane = "csi", detail = %name, error = Empty);
    match ask(cx, content, class).instrument(step.clone()).await {
        Ok(group) => {
            let status = taken(&group);
            let ready = status["readyToUse"] == true;
            say(cx, &name, status).await?;
            done_creating(cx, &name).await?;
            // One that is not ready is asked for again, until it is.
            Ok(if ready { Outcome::Done } else { Outcome::Retry })
        }
        Err(error) => {
            step.record("error", error.to_string());
            let text = format!("Failed to create group snapshot: {error}");
            say(cx, &name, failed(&text)).await?;
            cx.recorder.post(content, Level::Warning, "GroupSnapshotCreationFailed", &text).await;
            if error.is_final() {
                done_creating(cx, &name).await?;
            }
            Ok(Outcome::Retry)
        }
    }
}

async fn look(cx: &Cx, content: &VolumeGroupSnapshotContent) -> Done {
    let handles = content.spec.source.group_snapshot_handles.clone().unwrap_or_default();
    let name = content.name_any();
    let request = csi::GetVolumeGroupSnapshotRequest {
        group_snapshot_id: handles.volume_group_snapshot_handle,
        snapshot_ids: handles.volume_snapshot_handles,
        ..Default::default()
    };
    match cx.driver.look_at_group(request).await {
        Ok(group) => {
            finalizers::add(&contents(cx), content, CONTENT, None).await?;
            if let Some(node) = &cx.config.node_name {
                let patch = json!({"metadata": {"labels": {NODE: node}}});
                contents(cx).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            let status = taken(&group);
            let ready = status["readyToUse"] == true;
            say(cx, &name, status).await?;
            Ok(if ready { Outcome::Done } else { Outcome::Retry })
        }
        // It may be another node's.
        Err(_) if cx.config.node_name.is_some() => Ok(Outcome::Retry),
        Err(error) => {
            let text = format!("Failed to check and update group snapshot content: {error}");
            say(cx, &name, failed(&text)).await?;
            cx.recorder
                .post(content, Level::Warning, "GroupSnapshotContentCheckandUpdateFailed", &text)
                .await;
            Ok(Outcome::Retry)
        }
    }
}

/// The driver's handles of the group and its members, if there may be any.
async fn handles(
    cx: &Cx,
    content: &VolumeGroupSnapshotContent,
    class: Option<&VolumeGroupSnapshotClass>,
) -> Result<Option<(String, Vec<String>)>, CallError> {
    let status = content.status.as_ref();
    if let Some(handle) = status.and_then(|s| s.volume_group_snapshot_handle.clone()) {
        let infos = status.and_then(|s| s.volume_snapshot_info_list.clone()).unwrap_or_default();
        return Ok(Some((handle, infos.into_iter().map(|i| i.snapshot_handle).collect())));
    }
    if let Some(known) = content.spec.source.group_snapshot_handles.clone() {
        return Ok(Some((known.volume_group_snapshot_handle, known.volume_snapshot_handles)));
    }
    if !content.annotations().contains_key(BEING_CREATED) {
        return Ok(None);
    }
    // Asked for again, it is known: the name decides.
    match ask(cx, content, class).await {
        Ok(group) => {
            let members = group.snapshots.into_iter().map(|s| s.snapshot_id).collect();
            Ok(Some((group.group_snapshot_id, members)))
        }
        Err(error) if error.is_final() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn delete(
    cx: &Cx,
    content: &VolumeGroupSnapshotContent,
    class: Option<&VolumeGroupSnapshotClass>,
) -> Done {
    let deleted = async {
        let Some((group_snapshot_id, snapshot_ids)) = handles(cx, content, class).await? else {
            return Ok(());
        };
        let of = |part: &str| content.annotations().get(&format!("{SECRET}-{part}")).cloned();
        let secrets = secrets::read(&cx.client, of("name").zip(of("namespace"))).await?;
        let request = csi::DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, secrets };
        cx.driver.delete_group(request).await
    };
    if let Err(error) = deleted.await {
        let text = format!("Failed to delete group snapshot: {error}");
        cx.recorder.post(content, Level::Warning, "GroupSnapshotDeleteError", &text).await;
        return Ok(Outcome::Retry);
    }
    forget(cx, content).await
}

async fn forget(cx: &Cx, content: &VolumeGroupSnapshotContent) -> Done {
    finalizers::remove(&contents(cx), &content.name_any(), CONTENT).await.map(|()| Outcome::Done)
}

/// Says on a content that its group goes, and lets it go, too.
pub(super) async fn drop_content(cx: &Cx, content: &VolumeGroupSnapshotContent) -> Result<(), kube::Error> {
    let (api, name) = (contents(cx), content.name_any());
    if !content.annotations().contains_key(BEING_DELETED) {
        let patch = json!({"metadata": {"annotations": {BEING_DELETED: "yes"}}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    if content.metadata.deletion_timestamp.is_none() {
        api.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}
