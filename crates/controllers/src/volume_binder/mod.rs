//! Binds claims and volumes, and asks provisioners for what is missing.

pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use tracing::Instrument;
use trine_typed::event::{Level, Recorder};
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use trine_typed::k8s_openapi::api::storage::v1::StorageClass;
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;
use trine_typed::volumes::BIND_COMPLETED;

use crate::frame::{ControllerError, Cx, log};
use plan::{Action, BOUND_BY_CONTROLLER, PROVISIONER, Tone, World, plan};

/// How often everything is looked at again; also how often a waiting claim says so. Upstream: 15 s.
const PERIOD: Duration = Duration::from_secs(15);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let claims: Mirror<PersistentVolumeClaim> = cx.mirror(&changed);
    let volumes: Mirror<PersistentVolume> = cx.mirror(&changed);
    let classes: Mirror<StorageClass> = cx.mirror(&changed);
    tokio::join!(claims.ready(), volumes.ready(), classes.ready());
    let recorder = Recorder::new(cx.client.clone(), "persistentvolume-controller", None);
    let mut said = std::collections::BTreeMap::new();
    loop {
        let world = World {
            claims: claims.all(),
            volumes: volumes.all().into_iter().map(|v| (v.name_any(), v)).collect(),
            classes: classes.all().into_iter().map(|c| (c.name_any(), c)).collect(),
        };
        for action in plan(&world) {
            if let Action::Say(claim, tone, reason, text) = action {
                say(&recorder, &mut said, &claim, tone, reason, &text).await;
            } else if let Err(error) = act(&cx, action).await {
                log("volume-binder", &error);
            }
        }
        if !cx.turn(&changed, PERIOD).await {
            return;
        }
    }
}

type Said = std::collections::BTreeMap<Option<String>, (&'static str, tokio::time::Instant)>;

/// The same is said again only after [`PERIOD`].
async fn say(
    recorder: &Recorder,
    said: &mut Said,
    claim: &PersistentVolumeClaim,
    tone: Tone,
    reason: &'static str,
    text: &str,
) {
    let now = tokio::time::Instant::now();
    let last = said.get(&claim.uid());
    if last.is_some_and(|(what, when)| *what == reason && now - *when < PERIOD) {
        return;
    }
    said.insert(claim.uid(), (reason, now));
    let level = match tone {
        Tone::Normal => Level::Normal,
        Tone::Warning => Level::Warning,
    };
    recorder.post(claim, level, reason, text).await;
}

async fn act(cx: &Cx, action: Action) -> Result<(), ControllerError> {
    match action {
        Action::ClaimVolume(volume, claim) => {
            let patch = json!({"metadata": {"resourceVersion": volume.resource_version(),
                    "annotations": {BOUND_BY_CONTROLLER: "yes"}},
                "spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid()}}});
            patch_volume(cx, &volume, &patch, false).await
        }
        Action::BindClaim(claim, volume) => {
            let span = tracing::info_span!(
                target: "trine::step", "bind claim", plane = "controllers", volume = %volume.name_any(),
                claim = %format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any())
            );
            let patch = json!({"metadata": {"uid": claim.uid(),
                    "annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}},
                "spec": {"volumeName": volume.name_any()}});
            patch_claim(cx, &claim, &patch, false).instrument(span).await
        }
        Action::ClaimPhase(claim, phase, volume) => {
            let spec = volume.as_ref().and_then(|v| v.spec.as_ref());
            let mut status = json!({"phase": phase});
            if let Some(spec) = spec {
                status["capacity"] = json!(spec.capacity);
                status["accessModes"] = json!(spec.access_modes);
            }
            patch_claim(cx, &claim, &json!({"metadata": {"uid": claim.uid()}, "status": status}), true).await
        }
        Action::VolumePhase(volume, phase) => {
            let patch = json!({"metadata": {"uid": volume.uid()}, "status": {"phase": phase}});
            patch_volume(cx, &volume, &patch, true).await
        }
        Action::AskProvisioner(claim, provisioner) => {
            let patch = json!({"metadata": {"annotations": {PROVISIONER: provisioner,
                "volume.beta.kubernetes.io/storage-provisioner": provisioner}}});
            patch_claim(cx, &claim, &patch, false).await
        }
        Action::Say(..) => Ok(()),
    }
}

async fn patch_claim(
    cx: &Cx,
    claim: &PersistentVolumeClaim,
    patch: &serde_json::Value,
    status: bool,
) -> Result<(), ControllerError> {
    let namespace = claim.namespace().unwrap_or_default();
    let api: Api<PersistentVolumeClaim> = Api::namespaced(cx.client.clone(), &namespace);
    let (name, params, patch) = (claim.name_any(), PatchParams::default(), Patch::Merge(patch));
    let done = if status {
        api.patch_status(&name, &params, &patch).await
    } else {
        api.patch(&name, &params, &patch).await
    };
    done.map(drop).map_err(ControllerError::of("patch claim", format!("{namespace}/{name}")))
}

async fn patch_volume(
    cx: &Cx,
    volume: &PersistentVolume,
    patch: &serde_json::Value,
    status: bool,
) -> Result<(), ControllerError> {
    let api: Api<PersistentVolume> = Api::all(cx.client.clone());
    let (name, params, patch) = (volume.name_any(), PatchParams::default(), Patch::Merge(patch));
    let done = if status {
        api.patch_status(&name, &params, &patch).await
    } else {
        api.patch(&name, &params, &patch).await
    };
    done.map(drop).map_err(ControllerError::of("patch volume", name))
}
