//! Creating the Node object, or taking over the one that is there.

use serde_json::json;
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::kube::Api;
use trine_typed::kube::api::{Patch, PatchParams, PostParams};

use super::object::{CONTROLLER_ATTACH, labels};
use crate::config::Config;
use crate::error::{KubeletError, api};

/// Creates `node`; if it exists, sets our labels and annotation on it. Returns the object as the server has it.
///
/// # Errors
/// [`KubeletError::Api`].
pub async fn register(nodes: &Api<Node>, config: &Config, node: &Node) -> Result<Node, KubeletError> {
    let name = &config.node_name;
    match api("create Node", name, nodes.create(&PostParams::default(), node)).await {
        Err(error) if error.api_code() == Some(409) => {}
        other => return other,
    }
    let patch = json!({"metadata": {
        "labels": labels(config),
        "annotations": {CONTROLLER_ATTACH: "true"},
    }});
    api("patch Node", name, nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await
}
