//! The calls and the writes of one act.

use serde_json::{Value, json};
use tonic::Code;
use tracing::field::Empty;
use tracing::{Instrument, info_span};
use trine_contracts::csi;
use trine_kernel::testing::failpoint;
use trine_typed::k8s_openapi::api::core::v1::PersistentVolume;
use trine_typed::k8s_openapi::api::storage::v1::VolumeAttachment;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{self, Api, Client, ResourceExt};

use super::plan::{Action, NODE_ID, finalizer};
use crate::driver::Offers;
use crate::finalizers;
use crate::grpc::CallError;
use crate::provision::request::capability;
use crate::run::Cx;
use crate::secrets;
use crate::work::{Outcome, settled};

/// Does `action`; what failed is in the attachment's status and in the log.
pub(super) async fn act(cx: Cx, action: Action) -> Outcome {
    let done = match &action {
        Action::Attach(attachment, volume, node_id) => attach(&cx, attachment, volume, node_id).await,
        Action::Confirm(attachment) => say(&cx.client, attachment, attached(&Value::Null)).await,
        Action::Detach(attachment, handle, node_id) => detach(&cx, attachment, handle, node_id).await,
        Action::Drop(attachment) => let_go(&cx, attachment).await,
        Action::Refuse(attachment, text) => {
            let wrong = say(&cx.client, attachment, json!({"attachError": error_value(text, None)})).await;
            wrong.map(|_| Outcome::Retry)
        }
        Action::Release(volume) => {
            let api = Api::<PersistentVolume>::all(cx.client.clone());
            let removed = finalizers::remove(&api, &volume.name_any(), &finalizer(&cx.offers.name)).await;
            removed.map(|()| Outcome::Done)
        }
    };
    settled(done, "an attachment")
}

async fn attach(
    cx: &Cx,
    attachment: &VolumeAttachment,
    volume: &PersistentVolume,
    node_id: &str,
) -> Result<Outcome, kube::Error> {
    let step = info_span!(target: "trine::step", "attach", plane = "csi", volume = %volume.name_any(),
        detail = %attachment.spec.node_name, error = Empty);
    let work = async {
        // Both finalizers before the call: whatever it does can be undone.
        let finalizer = finalizer(&cx.offers.name);
        finalizers::add(&Api::all(cx.client.clone()), volume, &finalizer, None).await?;
        let node = Some((NODE_ID, node_id));
        finalizers::add(&Api::all(cx.client.clone()), attachment, &finalizer, node).await?;
        failpoint("attach: intended");
        let secret = volume.spec.as_ref().and_then(|s| s.csi.as_ref()?.controller_publish_secret_ref.clone());
        let secret = secret.and_then(|s| Some((s.name?, s.namespace?)));
        let answer = match secrets::read(&cx.client, secret).await {
            Ok(secrets) => {
                let request = request(volume, node_id, &cx.offers);
                cx.driver.publish(csi::ControllerPublishVolumeRequest { secrets, ..request }).await
            }
            Err(error) => Err(error),
        };
        Ok::<_, kube::Error>(answer)
    };
    match work.instrument(step.clone()).await? {
        Ok(answer) => {
            failpoint("attach: published");
            say(&cx.client, attachment, attached(&json!(answer.publish_context))).await?;
            failpoint("attach: said");
            Ok(Outcome::Done)
        }
        Err(error) => {
            step.record("error", error.to_string());
            say(&cx.client, attachment, json!({"attachError": driver_error(&error)})).await?;
            Ok(Outcome::Retry)
        }
    }
}

fn request(volume: &PersistentVolume, node_id: &str, offers: &Offers) -> csi::ControllerPublishVolumeRequest {
    let spec = volume.spec.clone().unwrap_or_default();
    let source = spec.csi.unwrap_or_default();
    let modes = spec.access_modes.unwrap_or_default();
    let has = |mode: &str| modes.iter().any(|m| m == mode);
    // The widest mode: the driver has to allow all of them.
    let widest = ["ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let mode = widest.into_iter().find(|mode| has(mode)).unwrap_or("ReadWriteOnce");
    let block = spec.volume_mode.as_deref() == Some("Block");
    let fs_type = source.fs_type.unwrap_or_default();
    let flags = spec.mount_options.unwrap_or_default();
    csi::ControllerPublishVolumeRequest {
        volume_id: source.volume_handle,
        node_id: node_id.to_owned(),
        volume_capability: Some(capability(mode, block, &fs_type, &flags, offers)),
        readonly: offers.publish_readonly && source.read_only.unwrap_or_default(),
        volume_context: source.volume_attributes.into_iter().flatten().collect(),
        ..Default::default()
    }
}

async fn detach(
    cx: &Cx,
    attachment: &VolumeAttachment,
    handle: &str,
    node_id: &str,
) -> Result<Outcome, kube::Error> {
    let volume = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
    let step = info_span!(target: "trine::step", "detach", plane = "csi", volume,
        detail = %attachment.spec.node_name, error = Empty);
    match cx.driver.unpublish(handle, node_id).instrument(step.clone()).await {
        Ok(()) => {
            failpoint("detach: unpublished");
            let_go(cx, attachment).await
        }
        Err(error) => {
            step.record("error", error.to_string());
            say(&cx.client, attachment, json!({"detachError": driver_error(&error)})).await?;
            Ok(Outcome::Retry)
        }
    }
}

async fn let_go(cx: &Cx, attachment: &VolumeAttachment) -> Result<Outcome, kube::Error> {
    let api = Api::<VolumeAttachment>::all(cx.client.clone());
    finalizers::remove(&api, &attachment.name_any(), &finalizer(&cx.offers.name)).await?;
    failpoint("detach: let go");
    Ok(Outcome::Done)
}

fn attached(metadata: &Value) -> Value {
    json!({"attached": true, "attachmentMetadata": metadata, "attachError": null, "detachError": null})
}

fn driver_error(error: &CallError) -> Value {
    error_value(&error.to_string(), Some(error.code))
}

fn error_value(message: &str, code: Option<Code>) -> Value {
    let time = Time(Timestamp::now());
    json!({"message": message, "time": time, "errorCode": code.map(|c| c as i32)})
}

/// Merges `status` into the attachment's. `attached` is a required field, so it always goes along.
async fn say(
    client: &Client,
    attachment: &VolumeAttachment,
    mut status: Value,
) -> Result<Outcome, kube::Error> {
    let known = attachment.status.as_ref().is_some_and(|s| s.attached);
    if status.get("attached").is_none() {
        status["attached"] = json!(known);
    }
    let api = Api::<VolumeAttachment>::all(client.clone());
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(&attachment.name_any(), &PatchParams::default(), &patch).await.map(|_| Outcome::Done)
}
