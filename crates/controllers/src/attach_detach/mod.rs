//! Asks for volumes where Pods need them, and gives them up when the kubelet has let go.

pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use tracing::Instrument;
use trine_typed::event::{Level, Recorder};
use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use trine_typed::k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;
use trine_typed::pods::has_claims;

use crate::frame::{ControllerError, Cx, log};
use plan::{Action, World, plan};

const PERIOD: Duration = Duration::from_secs(60);

struct Mirrors {
    pods: Mirror<Pod>,
    nodes: Mirror<Node>,
    claims: Mirror<PersistentVolumeClaim>,
    volumes: Mirror<PersistentVolume>,
    drivers: Mirror<CSIDriver>,
    attachments: Mirror<VolumeAttachment>,
}

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let mirrors = Mirrors {
        pods: cx.shared(),
        nodes: cx.mirror(&changed),
        claims: cx.mirror(&changed),
        volumes: cx.mirror(&changed),
        drivers: cx.mirror(&changed),
        attachments: cx.mirror(&changed),
    };
    tokio::join!(
        mirrors.pods.ready(),
        mirrors.nodes.ready(),
        mirrors.claims.ready(),
        mirrors.volumes.ready(),
        mirrors.drivers.ready(),
        mirrors.attachments.ready(),
    );
    // Most Pods have no claim, and a large cluster has changes of them all the time.
    let woken = Arc::clone(&changed);
    let _woken = mirrors.pods.subscribe(move |old, new| {
        if [old, new].into_iter().flatten().any(|pod| has_claims(pod)) {
            woken.notify_one();
        }
    });
    let recorder = Recorder::new(cx.client.clone(), "attachdetach-controller", None);
    loop {
        for action in plan(&world(&mirrors)) {
            if let Err(error) = act(&cx, &recorder, action).await {
                log("attach-detach", &error);
            }
        }
        if !cx.turn(&changed, PERIOD).await {
            return;
        }
    }
}

fn world(mirrors: &Mirrors) -> World {
    World {
        pods: mirrors.pods.all().into_iter().filter(|pod| has_claims(pod)).collect(),
        nodes: mirrors.nodes.all().into_iter().map(|n| (n.name_any(), n)).collect(),
        claims: (mirrors.claims.all().into_iter())
            .map(|c| ((c.namespace().unwrap_or_default(), c.name_any()), c))
            .collect(),
        volumes: mirrors.volumes.all().into_iter().map(|v| (v.name_any(), v)).collect(),
        drivers: mirrors.drivers.all().into_iter().map(|d| (d.name_any(), d)).collect(),
        attachments: mirrors.attachments.all(),
    }
}

async fn act(cx: &Cx, recorder: &Recorder, action: Action) -> Result<(), ControllerError> {
    let attachments: Api<VolumeAttachment> = Api::all(cx.client.clone());
    match action {
        Action::Attach { name, driver, volume, node } => {
            let span = tracing::info_span!(
                target: "trine::step", "ask to attach", plane = "controllers", volume = %volume, detail = %node
            );
            let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
                "metadata": {"name": name},
                "spec": {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}}});
            let object: VolumeAttachment = serde_json::from_value(object).unwrap_or_default();
            let done = attachments.create(&PostParams::default(), &object).instrument(span).await;
            done.map(drop).map_err(ControllerError::of("create VolumeAttachment", name))
        }
        Action::Detach { name } => {
            let done = attachments.delete(&name, &DeleteParams::default()).await;
            done.map(drop).map_err(ControllerError::of("delete VolumeAttachment", name))
        }
        Action::MultiAttach { pod, volume } => {
            let message = format!(
                "Multi-Attach error for volume {volume:?} Volume is already exclusively attached to one node and \
                 can't be attached to another"
            );
            recorder.post(&*pod, Level::Warning, "FailedAttachVolume", &message).await;
            Ok(())
        }
        Action::ReportAttached { node, volumes } => {
            let list: Vec<_> = volumes.iter().map(|v| json!({"name": v, "devicePath": ""})).collect();
            let patch = json!({"status": {"volumesAttached": list}});
            let api: Api<Node> = Api::all(cx.client.clone());
            let done = api.patch_status(&node, &PatchParams::default(), &Patch::Merge(&patch)).await;
            done.map(drop).map_err(ControllerError::of("report attached volumes of node", node))
        }
    }
}
