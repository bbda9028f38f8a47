//! Pods to be placed: plain ones, of the size that upstream's scheduler benchmark gives its Pods.

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::kube::api::PostParams;
use trine_typed::kube::{Api, Client};

/// Requests that are under way at once.
const CREATING: usize = 32;

/// Creates `count` Pods in a namespace that is there.
///
/// # Errors
/// The first that the API server refuses.
pub async fn create(client: &Client, namespace: &str, count: u32) -> anyhow::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"generateName": "sim-", "labels": {"app": "sim"}},
        "spec": {"containers": [{"name": "c", "image": "hollow",
            "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}}]}}))?;
    let (api, pod) = (&api, &pod);
    let all =
        futures::stream::iter(0..count).map(|_| async move { api.create(&PostParams::default(), pod).await });
    all.buffer_unordered(CREATING).try_for_each(|_| async { Ok(()) }).await.context("a Pod was refused")
}
