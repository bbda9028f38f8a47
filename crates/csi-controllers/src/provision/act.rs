//! The calls and the writes of one act.

use std::sync::Arc;

use serde_json::json;
use tonic::Code;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};
use trine_contracts::csi;
use trine_kernel::testing::failpoint;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use trine_typed::k8s_openapi::api::storage::v1::{StorageClass, VolumeAttributesClass};
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use trine_typed::kube::{self, Api, ResourceExt};
use trine_typed::volumes::SELECTED_NODE;

use super::plan::{Action, CLAIM_FINALIZER, Failure, VOLUME_FINALIZER, World, failure, volume_name};
use super::request::DELETION_SECRET;
use super::source::{CLONING, Named, Refusal};
use super::{request, source, topology};
use crate::finalizers;
use crate::grpc::CallError;
use crate::run::Cx;
use crate::secrets::{self, Of, Purpose};
use crate::snapshot::kinds::{VolumeSnapshot, VolumeSnapshotContent};
use crate::work::Outcome;

/// Does `action`; what failed is in events and in the log.
pub(super) async fn act(cx: Cx, world: Arc<World>, action: Action) -> Outcome {
    let done = match action {
        Action::Provision(claim, class) => return provision(&cx, &world, &claim, &class).await,
        Action::Abandon(claim, class) => abandon(&cx, &world, &claim, class.as_deref()).await,
        Action::Release(claim) => release(&cx, &claim).await,
        Action::Refuse(claim, text) => {
            cx.recorder.post(claim.as_ref(), Level::Warning, "ProvisioningFailed", &text).await;
            return Outcome::Slow;
        }
        Action::Unprotect(claim) => {
            finalizers::remove(&claims(&cx, &claim), &claim.name_any(), CLONING).await.map(|()| Outcome::Done)
        }
        Action::Reclaim(volume) => return reclaim(&cx, &volume).await,
        Action::Forget(volume) => {
            let api = Api::<PersistentVolume>::all(cx.client.clone());
            finalizers::remove(&api, &volume.name_any(), VOLUME_FINALIZER).await.map(|()| Outcome::Done)
        }
    };
    done.unwrap_or_else(|error| refused(&error))
}

/// A write that the API server refused: a race is seen at the next look.
fn refused(error: &kube::Error) -> Outcome {
    match error {
        kube::Error::Api(status) if status.code == 409 => Outcome::Done,
        error => {
            tracing::warn!(%error, "csi-controllers: a write was refused");
            Outcome::Retry
        }
    }
}

fn claims(cx: &Cx, claim: &PersistentVolumeClaim) -> Api<PersistentVolumeClaim> {
    Api::namespaced(cx.client.clone(), &claim.namespace().unwrap_or_default())
}

fn build(
    cx: &Cx,
    world: &World,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
) -> Result<csi::CreateVolumeRequest, String> {
    let chosen = claim.annotations().get(SELECTED_NODE).or(cx.config.node_name.as_ref());
    let topology = if cx.offers.topology {
        let allowed = class.allowed_topologies.as_deref().unwrap_or_default();
        topology::requirement(world, &cx.offers.name, chosen.map(String::as_str), allowed, &claim.name_any())?
    } else {
        None
    };
    request::create(claim, class, &cx.offers, topology, cx.config.tell_claims)
}

/// The request with what has to be looked up for it: what the volume is copied from, secrets, attributes.
async fn complete(
    cx: &Cx,
    world: &World,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
) -> Result<csi::CreateVolumeRequest, Refusal> {
    let mut request = build(cx, world, claim, class).map_err(Refusal::Text)?;
    request.volume_content_source = content(cx, world, claim).await?;
    let of = Of::claim(claim, &volume_name(claim));
    let secret = secrets::named(class.parameters.as_ref(), Purpose::Provision, &of);
    let wrong = |error: CallError| Refusal::Text(error.message);
    request.secrets = secrets::read(&cx.client, secret).await.map_err(wrong)?;
    let attributes = claim.spec.as_ref().and_then(|s| s.volume_attributes_class_name.clone());
    if let Some(name) = attributes.filter(|name| !name.is_empty()) {
        if !cx.offers.modify {
            return Err(Refusal::Text(format!("driver {} knows no VolumeAttributesClass", cx.offers.name)));
        }
        let api = Api::<VolumeAttributesClass>::all(cx.client.clone());
        let found =
            api.get(&name).await.map_err(|e| Refusal::Text(format!("VolumeAttributesClass {name}: {e}")))?;
        request.mutable_parameters = found.parameters.unwrap_or_default().into_iter().collect();
    }
    Ok(request)
}

async fn content(
    cx: &Cx,
    world: &World,
    claim: &PersistentVolumeClaim,
) -> Result<Option<csi::VolumeContentSource>, Refusal> {
    let text = |what: &str, error: kube::Error| Refusal::Text(format!("error getting {what}: {error}"));
    let here = cx.config.node_name.as_deref();
    match source::named(claim) {
        Named::Nothing | Named::Other => Ok(None),
        Named::Claim(name) => {
            if !cx.offers.clone {
                return Err(Refusal::Text(format!("driver {} does not clone volumes", cx.offers.name)));
            }
            let api = claims(cx, claim);
            let from = api.get(name).await.map_err(|e| text("the source PVC", e))?;
            let volume = from.spec.as_ref().and_then(|s| s.volume_name.as_ref());
            let volume = volume.and_then(|name| world.volumes.get(name)).map(AsRef::as_ref);
            let place = here.and_then(|name| Some((name, world.nodes.get(name)?.as_ref())));
            let content = source::of_claim(claim, &from, volume, &cx.offers.name, place)?;
            let kept = finalizers::add(&api, &from, CLONING, None).await;
            kept.map_err(|e| text("hold of the source PVC", e))?;
            Ok(Some(content))
        }
        Named::Snapshot(name) => {
            if !cx.offers.snapshot {
                return Err(Refusal::Text(format!("driver {} knows no snapshots", cx.offers.name)));
            }
            let namespace = claim.namespace().unwrap_or_default();
            let api = Api::<VolumeSnapshot>::namespaced(cx.client.clone(), &namespace);
            let snapshot = api.get(name).await.map_err(|e| text("the snapshot", e))?;
            let bound = snapshot.status.as_ref().and_then(|s| s.bound_volume_snapshot_content_name.clone());
            let content = match bound {
                Some(bound) => {
                    let api = Api::<VolumeSnapshotContent>::all(cx.client.clone());
                    Some(api.get(&bound).await.map_err(|e| text("the snapshot's content", e))?)
                }
                None => None,
            };
            source::of_snapshot(claim, &snapshot, content.as_ref(), &cx.offers.name, here).map(Some)
        }
    }
}

/// What the volume is copied from lies on another node. The scheduler is asked to choose again where it chooses; else the claim
/// is that node's.
async fn send(
    cx: &Cx,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    step: &Span,
    node: &str,
) -> Outcome {
    let delayed = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    if delayed {
        fail(cx, claim, class, step, &format!("its source lies on node {node}")).await;
    }
    let chosen = if delayed { serde_json::Value::Null } else { json!(node) };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {SELECTED_NODE: chosen}}}));
    match claims(cx, claim).patch(&claim.name_any(), &PatchParams::default(), &patch).await {
        Ok(_) => Outcome::Done,
        Err(error) => refused(&error),
    }
}

async fn provision(cx: &Cx, world: &World, claim: &PersistentVolumeClaim, class: &StorageClass) -> Outcome {
    let name = format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any());
    let step = info_span!(target: "trine::step", "provision", plane = "csi", claim = %name,
        volume = %volume_name(claim), error = Empty);
    let request = match complete(cx, world, claim, class).await {
        Ok(request) => request,
        Err(Refusal::Text(text)) => {
            fail(cx, claim, class, &step, &text).await;
            return Outcome::Retry;
        }
        Err(Refusal::Elsewhere(node)) => return send(cx, claim, class, &step, &node).await,
    };
    make(cx, claim, class, request, &name, &step).instrument(step.clone()).await
}

async fn make(
    cx: &Cx,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    request: csi::CreateVolumeRequest,
    name: &str,
    step: &Span,
) -> Outcome {
    // From here on, a deleted claim stays until it is known what became of the volume.
    if let Err(error) = finalizers::add(&claims(cx, claim), claim, CLAIM_FINALIZER, None).await {
        return refused(&error);
    }
    failpoint("provision: intended");
    let text = format!("External provisioner is provisioning volume for claim \"{name}\"");
    let (made, ()) = tokio::join!(
        cx.driver.create(request.clone()),
        cx.recorder.post(claim, Level::Normal, "Provisioning", &text),
    );
    let volume = match made {
        Ok(volume) => volume,
        Err(error) => return failed(cx, claim, class, step, &error).await,
    };
    failpoint("provision: created");
    let asked = request.capacity_range.as_ref().map_or(0, |r| r.required_bytes);
    if volume.capacity_bytes != 0 && volume.capacity_bytes < asked {
        let text =
            format!("created volume capacity {} less than requested capacity {asked}", volume.capacity_bytes);
        fail(cx, claim, class, step, &text).await;
        let _ = cx.driver.delete(&volume.volume_id, request.secrets).await;
        return Outcome::Retry;
    }
    if request.volume_content_source.is_some() && volume.content_source.is_none() {
        let text = "volume content source missing".to_owned();
        fail(cx, claim, class, step, &text).await;
        let _ = cx.driver.delete(&volume.volume_id, request.secrets).await;
        return Outcome::Retry;
    }
    let object = request::persistent_volume(claim, class, &request, &volume, &cx.offers.name);
    let api = Api::<PersistentVolume>::all(cx.client.clone());
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => {
            failpoint("provision: object");
            let text = format!("Successfully provisioned volume {}", object.name_any());
            // Should the release fail, the plan asks for it again.
            let (_, ()) = tokio::join!(
                release(cx, claim),
                cx.recorder.post(claim, Level::Normal, "ProvisioningSucceeded", &text),
            );
            Outcome::Done
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Outcome::Done,
        // The volume is there, the claim is kept by its finalizer: the next attempt finds the volume again.
        Err(error) => {
            fail(cx, claim, class, step, &format!("cannot save PersistentVolume: {error}")).await;
            Outcome::Retry
        }
    }
}

/// The driver's refusal: said on the claim, which is free to go if there is surely no volume.
async fn failed(
    cx: &Cx,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    step: &Span,
    error: &CallError,
) -> Outcome {
    fail(cx, claim, class, step, &error.to_string()).await;
    let chosen = cx.offers.topology && claim.annotations().contains_key(SELECTED_NODE);
    let fate = failure(error, chosen);
    let api = claims(cx, claim);
    if fate != Failure::InBackground
        && let Err(error) = finalizers::remove(&api, &claim.name_any(), CLAIM_FINALIZER).await
    {
        return refused(&error);
    }
    if fate == Failure::Reschedule {
        let patch = json!({"metadata": {"annotations": {SELECTED_NODE: null}}});
        if let Err(error) = api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await
        {
            return refused(&error);
        }
    }
    if error.code == Code::InvalidArgument { Outcome::Slow } else { Outcome::Retry }
}

async fn fail(cx: &Cx, claim: &PersistentVolumeClaim, class: &StorageClass, step: &Span, why: &str) {
    step.record("error", why);
    let text = format!("failed to provision volume with StorageClass \"{}\": {why}", class.name_any());
    cx.recorder.post(claim, Level::Warning, "ProvisioningFailed", &text).await;
}

/// The claim is being deleted and it is not known whether the driver has made the volume: asking for it again tells,
/// because the name decides.
async fn abandon(
    cx: &Cx,
    world: &World,
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
) -> Result<Outcome, kube::Error> {
    let exists =
        Api::<PersistentVolume>::all(cx.client.clone()).get_opt(&volume_name(claim)).await?.is_some();
    if !exists {
        let asked = match class {
            Some(class) => Some(complete(cx, world, claim, class).await),
            None => None,
        };
        match asked {
            Some(Ok(request)) => match cx.driver.create(request.clone()).await {
                Ok(volume) => {
                    if let Err(error) = cx.driver.delete(&volume.volume_id, request.secrets).await {
                        tracing::warn!(claim = claim.name_any(), %error, "the volume of a deleted claim is still there");
                        return Ok(Outcome::Retry);
                    }
                }
                Err(error) if error.is_final() => {}
                Err(_) => return Ok(Outcome::Retry),
            },
            // It was never asked for here.
            Some(Err(Refusal::Elsewhere(_))) => {}
            Some(Err(Refusal::Text(text))) => {
                tracing::warn!(claim = claim.name_any(), text, "cannot tell if a deleted claim has a volume");
                return Ok(Outcome::Retry);
            }
            None => tracing::warn!(claim = claim.name_any(), "its class is gone; a volume of it may be left"),
        }
    }
    release(cx, claim).await
}

async fn release(cx: &Cx, claim: &PersistentVolumeClaim) -> Result<Outcome, kube::Error> {
    finalizers::remove(&claims(cx, claim), &claim.name_any(), CLAIM_FINALIZER).await.map(|()| Outcome::Done)
}

async fn reclaim(cx: &Cx, volume: &PersistentVolume) -> Outcome {
    let name = volume.name_any();
    let step = info_span!(target: "trine::step", "reclaim", plane = "csi", volume = %name, error = Empty);
    let handle = volume.spec.as_ref().and_then(|s| s.csi.as_ref()).map(|csi| csi.volume_handle.clone());
    let of =
        |part: &str| volume.annotations().get(&format!("{DELETION_SECRET}{part}")).filter(|s| !s.is_empty());
    let secret = of("name").cloned().zip(of("namespace").cloned());
    let deleted = async {
        let secrets = secrets::read(&cx.client, secret).await?;
        cx.driver.delete(&handle.unwrap_or_default(), secrets).await
    };
    let deleted = deleted.instrument(step.clone()).await;
    if let Err(error) = deleted {
        step.record("error", error.to_string());
        cx.recorder.post(volume, Level::Warning, "VolumeFailedDelete", &error.to_string()).await;
        return Outcome::Retry;
    }
    let api = Api::<PersistentVolume>::all(cx.client.clone());
    match api.delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Outcome::Done,
        Err(error) => return refused(&error),
        Ok(_) => {}
    }
    failpoint("reclaim: deleted");
    match finalizers::remove(&api, &name, VOLUME_FINALIZER).await {
        Ok(()) => Outcome::Done,
        Err(error) => refused(&error),
    }
}
