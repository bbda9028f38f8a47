//! EndpointSlices of Services with a selector.

pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::{Pod, Service};
use trine_typed::k8s_openapi::api::discovery::v1::EndpointSlice;
use trine_typed::kube::api::{DeleteParams, PostParams};
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use crate::frame::{ControllerError, Cx, log};
use plan::{Action, CONTROLLER, MANAGED_BY, plan};

const PERIOD: Duration = Duration::from_secs(300);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let services: Mirror<Service> = cx.mirror(&changed);
    let pods: Mirror<Pod> = cx.mirror(&changed);
    let slices: Mirror<EndpointSlice> = cx.mirror(&changed);
    tokio::join!(services.ready(), pods.ready(), slices.ready());
    loop {
        let mut ours = slices.all();
        ours.retain(|s| s.labels().get(MANAGED_BY).map(String::as_str) == Some(CONTROLLER));
        for action in plan(&services.all(), &pods.all(), &ours) {
            if let Err(error) = act(&cx, action).await {
                log("endpoint-slice", &error);
            }
        }
        if !cx.turn(&changed, PERIOD).await {
            return;
        }
    }
}

async fn act(cx: &Cx, action: Action) -> Result<(), ControllerError> {
    let api = |namespace: &str| Api::<EndpointSlice>::namespaced(cx.client.clone(), namespace);
    match action {
        Action::Create(slice) => {
            let namespace = slice.namespace().unwrap_or_default();
            let done = api(&namespace).create(&PostParams::default(), &slice).await;
            done.map(drop).map_err(ControllerError::of("create EndpointSlice", slice.name_any()))
        }
        Action::Replace(slice) => {
            let namespace = slice.namespace().unwrap_or_default();
            let done = api(&namespace).replace(&slice.name_any(), &PostParams::default(), &slice).await;
            done.map(drop).map_err(ControllerError::of("replace EndpointSlice", slice.name_any()))
        }
        Action::Delete { namespace, name } => {
            let done = api(&namespace).delete(&name, &DeleteParams::default()).await;
            done.map(drop).map_err(ControllerError::of("delete EndpointSlice", name))
        }
    }
}
