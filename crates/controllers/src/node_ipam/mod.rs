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
use trine_typed::nodes::pod_ranges;

use crate::frame::{ControllerError, Cx, log};

const PERIOD: Duration = Duration::from_secs(300);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let nodes: Mirror<Node> = cx.mirror(&changed);
    nodes.ready().await;
    loop {
        let all = nodes.all();
        let taken = all.iter().flat_map(|n| pod_ranges(n)).collect();
        let mut without: Vec<String> =
            all.iter().filter(|n| pod_ranges(n).is_empty()).map(|n| n.name_any()).collect();
        without.sort();
        let api: Api<Node> = Api::all(cx.client.clone());
        for (node, ranges) in plan::assign(&cx.config.pod_cidr, cx.config.node_prefix, &taken, &without) {
            let patch = json!({"spec": {"podCIDR": ranges.first(), "podCIDRs": ranges}});
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
