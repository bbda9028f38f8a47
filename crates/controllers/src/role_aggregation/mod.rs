//! ClusterRoles that are the sum of others hold the rules of those.

pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::rbac::v1::ClusterRole;
use trine_typed::kube::Api;
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::mirror::Mirror;

use crate::frame::{ControllerError, Cx, log};

const PERIOD: Duration = Duration::from_secs(300);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let roles: Mirror<ClusterRole> = cx.mirror(&changed);
    roles.ready().await;
    let api: Api<ClusterRole> = Api::all(cx.client.clone());
    loop {
        let all: Vec<ClusterRole> = roles.all().iter().map(|r| (**r).clone()).collect();
        for (name, rules) in plan::plan(&all) {
            let patch = json!({"rules": rules});
            let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            if let Err(error) = done.map_err(ControllerError::of("sum up ClusterRole", name)) {
                log("role-aggregation", &error);
            }
        }
        if !cx.turn(&changed, PERIOD).await {
            return;
        }
    }
}
