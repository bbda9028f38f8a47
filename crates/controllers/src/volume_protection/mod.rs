//! A claim that a Pod uses, and a volume that is bound, are not removed: their protection finalizers go only when
//! nobody needs them. The API server sets the finalizers at creation.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use crate::frame::{ControllerError, Cx, log};
use trine_typed::pods::{claim_names, is_finished};

const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";
const PV_PROTECTION: &str = "kubernetes.io/pv-protection";
const PERIOD: Duration = Duration::from_secs(300);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let pods: Mirror<Pod> = cx.mirror(&changed);
    let claims: Mirror<PersistentVolumeClaim> = cx.mirror(&changed);
    let volumes: Mirror<PersistentVolume> = cx.mirror(&changed);
    tokio::join!(pods.ready(), claims.ready(), volumes.ready());
    loop {
        for claim in claims.all() {
            if waits_for(&*claim, PVC_PROTECTION) && !pods.all().iter().any(|pod| uses(pod, &claim)) {
                release_claim(&cx, &claim).await;
            }
        }
        for volume in volumes.all() {
            let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
            if waits_for(&*volume, PV_PROTECTION) && phase != Some("Bound") {
                release_volume(&cx, &volume).await;
            }
        }
        if !cx.turn(&changed, PERIOD).await {
            return;
        }
    }
}

fn waits_for<K: ResourceExt>(object: &K, finalizer: &str) -> bool {
    object.meta().deletion_timestamp.is_some() && object.finalizers().iter().any(|f| f == finalizer)
}

fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    // Who has no node yet will not be started with a claim that goes.
    let has_node = pod.spec.iter().any(|spec| spec.node_name.as_ref().is_some_and(|node| !node.is_empty()));
    has_node
        && pod.namespace() == claim.namespace()
        && !is_finished(pod)
        && claim_names(pod).contains(&claim.name_any())
}

fn without<K: ResourceExt>(object: &K, finalizer: &str) -> serde_json::Value {
    let left: Vec<&String> = object.finalizers().iter().filter(|f| *f != finalizer).collect();
    json!({"metadata": {"finalizers": left, "resourceVersion": object.resource_version()}})
}

async fn release_claim(cx: &Cx, claim: &PersistentVolumeClaim) {
    let api: Api<PersistentVolumeClaim> =
        Api::namespaced(cx.client.clone(), &claim.namespace().unwrap_or_default());
    let patch = without(claim, PVC_PROTECTION);
    let done = api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
    if let Err(error) = done.map_err(ControllerError::of("release claim", claim.name_any())) {
        log("volume-protection", &error);
    }
}

async fn release_volume(cx: &Cx, volume: &PersistentVolume) {
    let api: Api<PersistentVolume> = Api::all(cx.client.clone());
    let patch = without(volume, PV_PROTECTION);
    let done = api.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
    if let Err(error) = done.map_err(ControllerError::of("release volume", volume.name_any())) {
        log("volume-protection", &error);
    }
}
