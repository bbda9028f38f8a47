//! The calls and the writes of one act.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tracing::field::Empty;
use tracing::{Instrument, info_span};
use trine_contracts::csi;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::PersistentVolumeClaim;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use trine_typed::kube::{self, Api, ResourceExt};

use super::kinds::{API_VERSION, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use super::plan::{
    AS_SOURCE, Action, BEING_CREATED, BEING_DELETED, BOUND, Begin, CLAIM, CONTENT, NODE, content_name,
    driver_name,
};
use super::status;
use crate::finalizers;
use crate::grpc::CallError;
use crate::run::Cx;
use crate::secrets::{self, Purpose};
use crate::work::{Outcome, settled};

type Done = Result<Outcome, kube::Error>;

/// Does `action`; what failed is in events, in the object's status and in the log.
pub(super) async fn act(cx: Cx, action: Action) -> Outcome {
    let done = match &action {
        Action::Protect(snapshot, class) => protect(&cx, snapshot, class.as_deref()).await,
        Action::Begin(begin) => self::begin(&cx, begin).await,
        Action::Bind(snapshot, content) => bind(&cx, snapshot, content).await,
        Action::Tell(snapshot, wanted) => tell(&cx, snapshot, json!(wanted)).await,
        Action::Refuse(snapshot, text) => refuse(&cx, snapshot, text).await,
        Action::Discard(snapshot, content) => discard(&cx, snapshot, content).await,
        Action::Release(snapshot) => release(&cx, snapshot).await,
        Action::Free(claim) => {
            finalizers::remove(&claims(&cx, claim), &claim.name_any(), CLAIM).await.map(|()| Outcome::Done)
        }
        Action::Take(content, class) => take(&cx, content, class.as_deref()).await,
        Action::Look(content) => look(&cx, content).await,
        Action::Delete(content, class) => delete(&cx, content, class.as_deref()).await,
        Action::Forget(content) => forget(&cx, content).await,
    };
    settled(done, "a snapshot")
}

fn snapshots(cx: &Cx, snapshot: &VolumeSnapshot) -> Api<VolumeSnapshot> {
    Api::namespaced(cx.client.clone(), &snapshot.namespace().unwrap_or_default())
}

fn contents(cx: &Cx) -> Api<VolumeSnapshotContent> {
    Api::all(cx.client.clone())
}

fn claims(cx: &Cx, claim: &PersistentVolumeClaim) -> Api<PersistentVolumeClaim> {
    Api::namespaced(cx.client.clone(), &claim.namespace().unwrap_or_default())
}

async fn protect(cx: &Cx, snapshot: &VolumeSnapshot, class: Option<&str>) -> Done {
    let mut list = snapshot.finalizers().to_vec();
    for finalizer in [AS_SOURCE, BOUND] {
        if !finalizers::has(snapshot, finalizer) {
            list.push(finalizer.to_owned());
        }
    }
    let mut patch = json!({"metadata": {"finalizers": list, "resourceVersion": snapshot.resource_version()}});
    if let Some(class) = class {
        patch["spec"] = json!({"volumeSnapshotClassName": class});
    }
    let api = snapshots(cx, snapshot);
    api.patch(&snapshot.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(Outcome::Done)
}

async fn begin(cx: &Cx, begin: &Begin) -> Done {
    finalizers::add(&claims(cx, &begin.claim), &begin.claim, CLAIM, None).await?;
    let object = content(begin, cx.config.node_name.as_deref());
    match contents(cx).create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => drop(other?),
    }
    let text = format!(
        "Waiting for a snapshot {}/{} to be created by the CSI driver.",
        begin.snapshot.namespace().unwrap_or_default(),
        begin.snapshot.name_any()
    );
    cx.recorder.post(begin.snapshot.as_ref(), Level::Normal, "CreatingSnapshot", &text).await;
    Ok(Outcome::Done)
}

/// The content of a snapshot that is to be taken.
fn content(begin: &Begin, node: Option<&str>) -> VolumeSnapshotContent {
    let spec = begin.volume.spec.as_ref();
    let mut object: VolumeSnapshotContent = VolumeSnapshotContent::default();
    object.metadata.name = Some(content_name(&begin.snapshot));
    object.metadata.finalizers = Some(vec![CONTENT.to_owned()]);
    object.metadata.labels = node.map(|node| BTreeMap::from([(NODE.to_owned(), node.to_owned())]));
    if let Some((name, namespace)) = secrets::named(
        begin.class.parameters.as_ref(),
        Purpose::Snapshot,
        &secrets::Of::snapshot(&begin.snapshot),
    ) {
        object.metadata.annotations = Some(BTreeMap::from([
            ("snapshot.storage.kubernetes.io/deletion-secret-name".to_owned(), name),
            ("snapshot.storage.kubernetes.io/deletion-secret-namespace".to_owned(), namespace),
        ]));
    }
    object.spec.deletion_policy.clone_from(&begin.class.deletion_policy);
    object.spec.driver.clone_from(&begin.class.driver);
    object.spec.source.volume_handle = spec.and_then(|s| s.csi.as_ref()).map(|csi| csi.volume_handle.clone());
    object.spec.source_volume_mode = spec.and_then(|s| s.volume_mode.clone());
    object.spec.volume_snapshot_class_name = begin.class.metadata.name.clone();
    let reference = &mut object.spec.volume_snapshot_ref;
    reference.api_version = Some(API_VERSION.to_owned());
    reference.kind = Some("VolumeSnapshot".to_owned());
    reference.name = begin.snapshot.metadata.name.clone();
    reference.namespace = begin.snapshot.metadata.namespace.clone();
    reference.uid = begin.snapshot.metadata.uid.clone();
    reference.resource_version = begin.snapshot.metadata.resource_version.clone();
    object
}

async fn bind(cx: &Cx, snapshot: &VolumeSnapshot, content: &VolumeSnapshotContent) -> Done {
    let mut patch = json!({"metadata": {"resourceVersion": content.resource_version()},
        "spec": {"volumeSnapshotRef": {"uid": snapshot.uid()}}});
    if let (Some(class), None) =
        (&snapshot.spec.volume_snapshot_class_name, &content.spec.volume_snapshot_class_name)
    {
        patch["spec"]["volumeSnapshotClassName"] = json!(class);
    }
    contents(cx).patch(&content.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(Outcome::Done)
}

async fn tell(cx: &Cx, snapshot: &VolumeSnapshot, mut status: Value) -> Done {
    let was = snapshot.status.as_ref();
    // What a merge does not mention stays.
    for field in ["creationTime", "restoreSize", "error"] {
        if status.get(field).is_none() {
            status[field] = Value::Null;
        }
    }
    let (ready, bound) =
        (status["readyToUse"] == true, was.and_then(|s| s.bound_volume_snapshot_content_name.as_ref()));
    let name = snapshot.name_any();
    let patch = Patch::Merge(json!({"status": status}));
    snapshots(cx, snapshot).patch_status(&name, &PatchParams::default(), &patch).await?;
    let whole = format!("{}/{name}", snapshot.namespace().unwrap_or_default());
    if bound.is_none() {
        let text = format!("Snapshot {whole} was successfully created by the CSI driver.");
        if !status["creationTime"].is_null() {
            cx.recorder.post(snapshot, Level::Normal, "SnapshotCreated", &text).await;
        }
    }
    if ready && was.is_none_or(|s| s.ready_to_use != Some(true)) {
        let text = format!("Snapshot {whole} is ready to use.");
        cx.recorder.post(snapshot, Level::Normal, "SnapshotReady", &text).await;
    }
    Ok(Outcome::Done)
}

async fn refuse(cx: &Cx, snapshot: &VolumeSnapshot, text: &str) -> Done {
    let said = snapshot.status.as_ref().and_then(|s| s.error.as_ref()).and_then(|e| e.message.as_deref());
    if said != Some(text) {
        let patch = Patch::Merge(json!({"status": status::failed(text, Timestamp::now())}));
        snapshots(cx, snapshot).patch_status(&snapshot.name_any(), &PatchParams::default(), &patch).await?;
        cx.recorder.post(snapshot, Level::Warning, "SnapshotContentCreationFailed", text).await;
    }
    Ok(Outcome::Retry)
}

async fn discard(cx: &Cx, _: &VolumeSnapshot, content: &VolumeSnapshotContent) -> Done {
    let api = contents(cx);
    let name = content.name_any();
    if !content.annotations().contains_key(BEING_DELETED) {
        let patch = json!({"metadata": {"annotations": {BEING_DELETED: "yes"}}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    if content.metadata.deletion_timestamp.is_none() {
        api.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(Outcome::Done)
}

async fn release(cx: &Cx, snapshot: &VolumeSnapshot) -> Done {
    let list: Vec<&String> =
        snapshot.finalizers().iter().filter(|f| *f != BOUND && *f != AS_SOURCE).collect();
    let patch = json!({"metadata": {"finalizers": list, "resourceVersion": snapshot.resource_version()}});
    let api = snapshots(cx, snapshot);
    api.patch(&snapshot.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(Outcome::Done)
}

/// Makes the content carry its finalizer, and say that the driver is asked.
async fn intend(cx: &Cx, content: &VolumeSnapshotContent, creating: bool) -> Result<(), kube::Error> {
    let said = content.annotations().contains_key(BEING_CREATED);
    if finalizers::has(content, CONTENT) && said == creating {
        return Ok(());
    }
    let annotation = creating.then_some((BEING_CREATED, "yes"));
    finalizers::add(&contents(cx), content, CONTENT, annotation).await
}

async fn done_creating(cx: &Cx, name: &str) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {"annotations": {BEING_CREATED: null}}});
    contents(cx).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

async fn ask(
    cx: &Cx,
    content: &VolumeSnapshotContent,
    class: Option<&VolumeSnapshotClass>,
) -> Result<csi::Snapshot, CallError> {
    let parameters = class.and_then(|c| c.parameters.as_ref());
    let of = secrets::Of::content(content);
    let secrets = secrets::read(&cx.client, secrets::named(parameters, Purpose::Snapshot, &of)).await?;
    let mut told = secrets::without(parameters);
    if cx.config.tell_claims {
        let reference = &content.spec.volume_snapshot_ref;
        let mut tell = |key: &str, value: &Option<String>| {
            told.insert(format!("csi.storage.k8s.io/{key}"), value.clone().unwrap_or_default());
        };
        tell("volumesnapshot/name", &reference.name);
        tell("volumesnapshot/namespace", &reference.namespace);
        tell("volumesnapshotcontent/name", &content.metadata.name);
    }
    let request = csi::CreateSnapshotRequest {
        source_volume_id: content.spec.source.volume_handle.clone().unwrap_or_default(),
        name: driver_name(content),
        secrets,
        parameters: told.into_iter().collect(),
    };
    cx.driver.take_snapshot(request).await
}

async fn take(cx: &Cx, content: &VolumeSnapshotContent, class: Option<&VolumeSnapshotClass>) -> Done {
    intend(cx, content, true).await?;
    let name = content.name_any();
    let step = info_span!(target: "trine::step", "snapshot", plane = "csi", detail = %name, error = Empty);
    match ask(cx, content, class).instrument(step.clone()).await {
        Ok(snapshot) => {
            let ready = snapshot.ready_to_use;
            say(cx, &name, status::taken(&snapshot)).await?;
            done_creating(cx, &name).await?;
            // One that is not ready is asked for again, until it is.
            Ok(if ready { Outcome::Done } else { Outcome::Retry })
        }
        Err(error) => {
            step.record("error", error.to_string());
            let text = format!(
                "Failed to check and update snapshot content: failed to take snapshot of the volume {}: \"{error}\"",
                content.spec.source.volume_handle.as_deref().unwrap_or_default()
            );
            say(cx, &name, status::failed(&text, Timestamp::now())).await?;
            cx.recorder.post(content, Level::Warning, "SnapshotCreationFailed", &text).await;
            if error.is_final() {
                done_creating(cx, &name).await?;
            }
            Ok(Outcome::Retry)
        }
    }
}

async fn look(cx: &Cx, content: &VolumeSnapshotContent) -> Done {
    let handle = content.spec.source.snapshot_handle.clone().unwrap_or_default();
    let name = content.name_any();
    let found = match (cx.offers.list_snapshots, cx.driver.find_snapshot(&handle)) {
        // Nobody to ask: what the user says is so.
        (false, _) => {
            Ok(Some(csi::Snapshot { snapshot_id: handle.clone(), ready_to_use: true, ..Default::default() }))
        }
        (true, asked) => asked.await,
    };
    match found {
        Ok(Some(snapshot)) => {
            intend(cx, content, false).await?;
            if let Some(node) = &cx.config.node_name {
                let patch = json!({"metadata": {"labels": {NODE: node}}});
                contents(cx).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            say(cx, &name, status::taken(&snapshot)).await?;
            Ok(if snapshot.ready_to_use { Outcome::Done } else { Outcome::Retry })
        }
        // It may be another node's.
        Ok(None) if cx.config.node_name.is_some() => Ok(Outcome::Retry),
        Ok(None) => fail(cx, content, &format!("the driver has no snapshot {handle}")).await,
        Err(error) => fail(cx, content, &error.to_string()).await,
    }
}

async fn fail(cx: &Cx, content: &VolumeSnapshotContent, why: &str) -> Done {
    let text = format!("Failed to check and update snapshot content: {why}");
    say(cx, &content.name_any(), status::failed(&text, Timestamp::now())).await?;
    cx.recorder.post(content, Level::Warning, "SnapshotContentCheckandUpdateFailed", &text).await;
    Ok(Outcome::Retry)
}

async fn delete(cx: &Cx, content: &VolumeSnapshotContent, class: Option<&VolumeSnapshotClass>) -> Done {
    let known = content.status.as_ref().and_then(|s| s.snapshot_handle.clone());
    let known = known.or_else(|| content.spec.source.snapshot_handle.clone());
    let handle = match known {
        Some(handle) => Some(handle),
        // Asked for again, it is known: the name decides.
        None if content.annotations().contains_key(BEING_CREATED) => match ask(cx, content, class).await {
            Ok(snapshot) => Some(snapshot.snapshot_id),
            Err(error) if error.is_final() => None,
            Err(error) => {
                tracing::warn!(content = content.name_any(), %error, "cannot tell if a snapshot that goes was taken");
                return Ok(Outcome::Retry);
            }
        },
        None => None,
    };
    if let Some(handle) = handle {
        let of = |part: &str| {
            content.annotations().get(&format!("snapshot.storage.kubernetes.io/deletion-secret-{part}"))
        };
        let secret = of("name").cloned().zip(of("namespace").cloned());
        let deleted = async {
            let secrets = secrets::read(&cx.client, secret).await?;
            cx.driver.delete_snapshot(&handle, secrets).await
        };
        if let Err(error) = deleted.await {
            let text = format!("Failed to delete snapshot: {error}");
            cx.recorder.post(content, Level::Warning, "SnapshotDeleteError", &text).await;
            return Ok(Outcome::Retry);
        }
    }
    forget(cx, content).await
}

async fn forget(cx: &Cx, content: &VolumeSnapshotContent) -> Done {
    finalizers::remove(&contents(cx), &content.name_any(), CONTENT).await.map(|()| Outcome::Done)
}

async fn say(cx: &Cx, name: &str, status: Value) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({"status": status}));
    contents(cx).patch_status(name, &PatchParams::default(), &patch).await.map(drop)
}
