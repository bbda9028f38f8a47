//! Every node gets a Pod range of its own, once.

pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use crate::frame::{ControllerError, Cx, log};

const PERIOD: Duration = Duration::from_secs(300);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let nodes: Mirror<Node> = cx.mirror(&changed);
    nodes.ready().await;
    loop {
        let all = nodes.all();
        let range = |n: &Node| n.spec.as_ref().and_then(|s| s.pod_cidr.clone());
        let taken = all.iter().filter_map(|n| range(n)).collect();
        let mut without: Vec<String> =
            all.iter().filter(|n| range(n).is_none()).map(|n| n.name_any()).collect();
        without.sort();
        let api: Api<Node> = Api::all(cx.client.clone());
        for (node, range) in plan::assign(&cx.config.pod_cidr, cx.config.node_prefix, &taken, &without) {
            let patch = json!({"spec": {"podCIDR": range, "podCIDRs": [range]}});
            let done = api.patch(&node, &PatchParams::default(), &Patch::Merge(&patch)).await;
            if let Err(error) = done.map_err(ControllerError::of("give a Pod range to node", node)) {
                log("node-ipam", &error);
            }
        }
        if !cx.turn(&changed, PERIOD).await {
            return;
        }
    }
}
