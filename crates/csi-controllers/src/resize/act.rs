//! The calls and the writes of one act.

use serde_json::{Value, json};
use tracing::field::Empty;
use tracing::{Instrument, info_span};
use trine_contracts::csi;
use trine_objects::quantity::Quantity;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, SecretReference};
use trine_typed::k8s_openapi::api::storage::v1::VolumeAttributesClass;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{self, Api, ResourceExt};

use super::plan::{Action, Failure, IN_PROGRESS, INFEASIBLE, NODE_PENDING, bytes, failure};
use crate::grpc::CallError;
use crate::provision::request::capability;
use crate::run::Cx;
use crate::secrets;
use crate::work::{Outcome, settled};

type Done = Result<Outcome, kube::Error>;

const RESIZING: &str = "Resizing";
const ON_NODE: &str = "FileSystemResizePending";
const FAILED: &str = "ControllerResizeError";
const MODIFYING: &str = "ModifyingVolume";
const MODIFY_FAILED: &str = "ModifyVolumeError";

/// Does `action`; what failed is in events, in the claim's status and in the log.
pub(super) async fn act(cx: Cx, action: Action) -> Outcome {
    let done = match &action {
        Action::Expand(claim, volume, size) => expand(&cx, claim, volume, *size).await,
        Action::Settle(claim) => settle(&cx, claim).await,
        Action::Modify(claim, volume, class) => modify(&cx, claim, volume, class).await,
        Action::Await(claim, class) => wait(&cx, claim, class).await,
    };
    settled(done, "a claim's size")
}

fn text(size: i64) -> String {
    Quantity::from_bytes(size.unsigned_abs()).to_string()
}

/// The claim's conditions with `fresh` in place of those that growth had.
fn conditions(claim: &PersistentVolumeClaim, ours: &[&str], fresh: Option<(&str, &str)>) -> Value {
    let all = claim.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let others = all.filter(|c| !ours.contains(&c.type_.as_str())).map(|c| json!(c));
    let now = Time(Timestamp::now());
    let fresh = fresh.map(|(kind, message)| {
        json!({"type": kind, "status": "True", "lastTransitionTime": now, "message": message})
    });
    Value::Array(others.chain(fresh).collect())
}

const OF_GROWTH: [&str; 3] = [RESIZING, ON_NODE, FAILED];

async fn say(
    cx: &Cx,
    claim: &PersistentVolumeClaim,
    status: Value,
) -> Result<PersistentVolumeClaim, kube::Error> {
    let api: Api<PersistentVolumeClaim> =
        Api::namespaced(cx.client.clone(), &claim.namespace().unwrap_or_default());
    let patch = json!({"metadata": {"resourceVersion": claim.resource_version()}, "status": status});
    api.patch_status(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await
}

async fn expand(cx: &Cx, claim: &PersistentVolumeClaim, volume: &PersistentVolume, size: i64) -> Done {
    let name = volume.name_any();
    let status = json!({"allocatedResources": {"storage": text(size)},
        "allocatedResourceStatuses": {"storage": IN_PROGRESS},
        "conditions": conditions(claim, &OF_GROWTH, Some((RESIZING, "")))});
    let begun = claim.status.as_ref().and_then(|s| s.allocated_resource_statuses.as_ref());
    let begun = begun.and_then(|all| all.get("storage")).is_some_and(|state| state == IN_PROGRESS)
        && bytes(claim.status.as_ref().and_then(|s| s.allocated_resources.as_ref())) == Some(size);
    let claim = if begun {
        claim.clone()
    } else {
        let text = format!("External resizer is resizing volume {name}");
        cx.recorder.post(claim, Level::Normal, RESIZING, &text).await;
        say(cx, claim, status).await?
    };
    let step = info_span!(target: "trine::step", "grow", plane = "csi", volume = %name, error = Empty);
    match ask(cx, volume, size).instrument(step.clone()).await {
        Ok((size, on_node)) => {
            grown(cx, volume, &claim, size).await?;
            finish(cx, &claim, &name, size, on_node).await
        }
        Err(error) => {
            step.record("error", error.to_string());
            failed(cx, &claim, &name, &error).await
        }
    }
}

/// The driver's answer: the size that there is, and whether the node has to do its part.
async fn ask(cx: &Cx, volume: &PersistentVolume, size: i64) -> Result<(i64, bool), CallError> {
    let spec = volume.spec.clone().unwrap_or_default();
    let csi = spec.csi.clone().unwrap_or_default();
    let block = spec.volume_mode.as_deref() == Some("Block");
    let mode = spec.access_modes.iter().flatten().next().cloned().unwrap_or_default();
    let flags = spec.mount_options.clone().unwrap_or_default();
    let fs_type = csi.fs_type.clone().unwrap_or_default();
    let secret = csi.controller_expand_secret_ref.as_ref().and_then(named);
    let request = csi::ControllerExpandVolumeRequest {
        volume_id: csi.volume_handle,
        capacity_range: Some(csi::CapacityRange { required_bytes: size, limit_bytes: 0 }),
        secrets: secrets::read(&cx.client, secret).await?,
        volume_capability: Some(capability(&mode, block, &fs_type, &flags, &cx.offers)),
    };
    let answer = cx.driver.expand(request).await?;
    let has = if answer.capacity_bytes == 0 { size } else { answer.capacity_bytes };
    Ok((has, answer.node_expansion_required))
}

fn named(secret: &SecretReference) -> Option<(String, String)> {
    Some((secret.name.clone()?, secret.namespace.clone()?))
}

/// The volume says its new size, and, until the claim does, too, which one it had.
async fn grown(
    cx: &Cx,
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    size: i64,
) -> Result<(), kube::Error> {
    let has = bytes(volume.spec.as_ref().and_then(|s| s.capacity.as_ref())).unwrap_or_default();
    if has >= size {
        return Ok(());
    }
    let before = claim.status.as_ref().and_then(|s| s.capacity.as_ref()).and_then(|c| c.get("storage"));
    let patch = json!({"metadata": {"annotations": {"volume.alpha.kubernetes.io/pre-resize-capacity": before}},
        "spec": {"capacity": {"storage": text(size)}}});
    let api: Api<PersistentVolume> = Api::all(cx.client.clone());
    api.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

async fn finish(cx: &Cx, claim: &PersistentVolumeClaim, volume: &str, size: i64, on_node: bool) -> Done {
    if on_node {
        const WAITS: &str =
            "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";
        let status = json!({"allocatedResourceStatuses": {"storage": NODE_PENDING},
            "conditions": conditions(claim, &OF_GROWTH, Some((ON_NODE, WAITS)))});
        say(cx, claim, status).await?;
        let text = "Require file system resize of volume on node";
        cx.recorder.post(claim, Level::Normal, "FileSystemResizeRequired", text).await;
        return Ok(Outcome::Done);
    }
    let status = json!({"capacity": {"storage": text(size)}, "allocatedResourceStatuses": {"storage": null},
        "conditions": conditions(claim, &OF_GROWTH, None)});
    say(cx, claim, status).await?;
    let text = format!("Resize volume {volume} succeeded");
    cx.recorder.post(claim, Level::Normal, "VolumeResizeSuccessful", &text).await;
    Ok(Outcome::Done)
}

async fn failed(cx: &Cx, claim: &PersistentVolumeClaim, volume: &str, error: &CallError) -> Done {
    let text = format!("resize volume {volume:?} by resizer {:?} failed: {error}", cx.offers.name);
    let fate = failure(error);
    let mut status = json!({"conditions": conditions(claim, &[FAILED, ON_NODE], Some((FAILED, &text)))});
    if fate == Failure::Infeasible {
        status["allocatedResourceStatuses"] = json!({"storage": INFEASIBLE});
    }
    say(cx, claim, status).await?;
    cx.recorder.post(claim, Level::Warning, "VolumeResizeFailed", &text).await;
    Ok(if fate == Failure::Infeasible { Outcome::Slow } else { Outcome::Retry })
}

async fn settle(cx: &Cx, claim: &PersistentVolumeClaim) -> Done {
    let has = claim.status.as_ref().and_then(|s| s.capacity.as_ref()).and_then(|c| c.get("storage"));
    let status = json!({"allocatedResources": {"storage": has}, "allocatedResourceStatuses": {"storage": null},
        "conditions": conditions(claim, &[RESIZING, ON_NODE, FAILED, "NodeResizeError"], None)});
    say(cx, claim, status).await?;
    Ok(Outcome::Done)
}

const OF_CHANGE: [&str; 2] = [MODIFYING, MODIFY_FAILED];

async fn wait(cx: &Cx, claim: &PersistentVolumeClaim, class: &str) -> Done {
    let said = claim.status.as_ref().and_then(|s| s.modify_volume_status.as_ref());
    let said = said.is_some_and(|s| {
        s.status == "Pending" && s.target_volume_attributes_class_name.as_deref() == Some(class)
    });
    if !said {
        let status =
            json!({"modifyVolumeStatus": {"targetVolumeAttributesClassName": class, "status": "Pending"}});
        say(cx, claim, status).await?;
        let text = format!("VAC {class:?} does not exist");
        cx.recorder.post(claim, Level::Warning, "VolumeModifyFailed", &text).await;
    }
    Ok(Outcome::Retry)
}

async fn modify(
    cx: &Cx,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    class: &VolumeAttributesClass,
) -> Done {
    let (name, wanted) = (volume.name_any(), class.name_any());
    if class.driver_name != cx.offers.name {
        let text =
            format!("VAC {wanted:?} is of driver {}, the volume of {}", class.driver_name, cx.offers.name);
        cx.recorder.post(claim, Level::Warning, "VolumeModifyFailed", &text).await;
        return Ok(Outcome::Slow);
    }
    let target = json!({"targetVolumeAttributesClassName": wanted, "status": "InProgress"});
    let begun = claim.status.as_ref().and_then(|s| s.modify_volume_status.as_ref()).map(|s| json!(s));
    let claim = if begun.as_ref() == Some(&target) {
        claim.clone()
    } else {
        let text = format!("external resizer is modifying volume {name} with vac {wanted}");
        cx.recorder.post(claim, Level::Normal, "VolumeModify", &text).await;
        let conditions = conditions(claim, &OF_CHANGE, Some((MODIFYING, "")));
        say(cx, claim, json!({"modifyVolumeStatus": target, "conditions": conditions})).await?
    };
    let csi = volume.spec.as_ref().and_then(|s| s.csi.as_ref());
    let request = csi::ControllerModifyVolumeRequest {
        volume_id: csi.map(|c| c.volume_handle.clone()).unwrap_or_default(),
        secrets: std::collections::HashMap::new(),
        mutable_parameters: class.parameters.clone().unwrap_or_default().into_iter().collect(),
    };
    if let Err(error) = cx.driver.modify(request).await {
        let text = format!("modify volume {name:?} by modifier {:?} failed: {error}", cx.offers.name);
        let infeasible = failure(&error) == Failure::Infeasible;
        let mut status =
            json!({"conditions": conditions(&claim, &[MODIFY_FAILED], Some((MODIFY_FAILED, &text)))});
        if infeasible {
            status["modifyVolumeStatus"] =
                json!({"targetVolumeAttributesClassName": wanted, "status": "Infeasible"});
        }
        say(cx, &claim, status).await?;
        cx.recorder.post(&claim, Level::Warning, "VolumeModifyFailed", &text).await;
        return Ok(if infeasible { Outcome::Slow } else { Outcome::Retry });
    }
    let api: Api<PersistentVolume> = Api::all(cx.client.clone());
    let patch = Patch::Merge(json!({"spec": {"volumeAttributesClassName": wanted}}));
    api.patch(&name, &PatchParams::default(), &patch).await?;
    let conditions = conditions(&claim, &OF_CHANGE, None);
    let status = json!({"currentVolumeAttributesClassName": wanted, "modifyVolumeStatus": null, "conditions": conditions});
    say(cx, &claim, status).await?;
    let text = format!("external resizer modified volume {name} with vac {wanted} successfully");
    cx.recorder.post(&claim, Level::Normal, "VolumeModifySuccessful", &text).await;
    Ok(Outcome::Done)
}
