//! The Pods, made by many requests at once, and their end.

use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::core::v1::{Namespace, Pod};
use trine_typed::kube::api::{DeleteParams, ListParams, PostParams};
use trine_typed::kube::{Api, Client};

/// Requests that are under way at once.
const CREATING: usize = 32;

/// What the Pods of a load ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Requests alone.
    Plain,
    /// Not on a node with another of their group; there are half as many in a group as there are nodes.
    Apart,
    /// Evenly over zones.
    Spread,
}

impl Kind {
    /// What is said of them.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Apart => "with anti-affinity by node",
            Self::Spread => "spread over zones",
        }
    }

    /// The `n`-th Pod, for a scheduler, when there are so many nodes.
    pub fn pod(self, n: u32, scheduler: &str, nodes: u32) -> Value {
        let group = format!("g{}", n / (nodes / 2).max(1));
        let selector = json!({"matchLabels": {"group": group}});
        // As small as upstream's, but for the memory: all loads together have to fit.
        let mut pod = json!({
            "metadata": {"name": format!("p-{n:05}"), "labels": {"app": "bench", "group": group}},
            "spec": {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c",
                "image": "hollow", "resources": {"requests": {"cpu": "50m", "memory": "100Mi"}}}]}});
        match self {
            Self::Plain => {}
            Self::Apart => {
                pod["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    [{"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}]}});
            }
            Self::Spread => {
                pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "bench"}}}]);
            }
        }
        pod
    }
}

/// Makes a namespace.
pub async fn namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

/// Makes `count` Pods as fast as they are taken, or with a pause between each if one is given.
pub async fn create(
    client: &Client,
    namespace: &str,
    count: u32,
    pause: Option<Duration>,
    pod: impl Fn(u32) -> Value,
) -> anyhow::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let ticks = pause.map(tokio::time::interval);
    let (api, pod) = (&api, &pod);
    let paced = futures::stream::unfold((0, ticks), |(n, mut ticks)| async move {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        (n < count).then_some((n, (n + 1, ticks)))
    });
    let all = paced.map(|n| async move {
        let pod: Pod = serde_json::from_value(pod(n))?;
        api.create(&PostParams::default(), &pod).await?;
        anyhow::Ok(())
    });
    all.buffer_unordered(CREATING).try_for_each(|()| async { Ok(()) }).await.context("a Pod was refused")
}

/// Asks all Pods of a namespace to go.
pub async fn delete(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}
