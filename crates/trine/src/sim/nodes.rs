//! Hollow nodes: registered, then kept alive at a kubelet's rates. Each has its own instants, so that they never write all at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Semaphore;
use trine_typed::k8s_openapi::api::coordination::v1::Lease;
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::kube::api::{Patch, PatchParams, PostParams};
use trine_typed::kube::{Api, Client, Error};

use super::plan::{LEASE_SECONDS, STATUS_SECONDS, Shape};

/// Nodes that are registered at once.
const REGISTERING: usize = 32;
/// Signs of life that are under way at once.
const BEATING: usize = 64;
const LEASES: &str = "kube-node-lease";

/// All hollow nodes of this process.
#[derive(Clone)]
pub struct HollowNodes {
    nodes: Api<Node>,
    leases: Api<Lease>,
    shape: Arc<Shape>,
    count: u32,
}

impl HollowNodes {
    /// `count` nodes of a shape, not yet registered.
    #[must_use]
    pub fn new(client: Client, shape: Arc<Shape>, count: u32) -> Self {
        Self { nodes: Api::all(client.clone()), leases: Api::namespaced(client, LEASES), shape, count }
    }

    /// Registers them all; those that are there already are taken over.
    ///
    /// # Errors
    /// The first that the API server refuses.
    pub async fn register(&self) -> anyhow::Result<()> {
        let all = futures::stream::iter(0..self.count).map(|n| self.register_one(n));
        let mut done = all.buffer_unordered(REGISTERING);
        while let Some(outcome) = done.next().await {
            outcome?;
        }
        Ok(())
    }

    async fn register_one(&self, n: u32) -> anyhow::Result<()> {
        let name = self.shape.name(n);
        let fresh = self.shape.node(n, Timestamp::now());
        let made = self.nodes.create(&PostParams::default(), &typed(fresh.clone())?).await;
        let node = match made {
            Err(Error::Api(status)) if status.code == 409 => {
                let patch = Patch::Merge(serde_json::json!({"status": fresh["status"]}));
                self.nodes.patch_status(&name, &PatchParams::default(), &patch).await
            }
            other => other,
        };
        let node = node.with_context(|| format!("node {name} cannot be registered"))?;
        let uid = node.metadata.uid.unwrap_or_default();
        let lease = typed(self.shape.lease(n, &uid, Timestamp::now()))?;
        match self.leases.create(&PostParams::default(), &lease).await {
            Err(Error::Api(status)) if status.code == 409 => self.renew(n).await.map_err(anyhow::Error::from),
            other => other.map(drop).with_context(|| format!("no lease for node {name}")),
        }
    }

    async fn renew(&self, n: u32) -> Result<(), Error> {
        let patch = Patch::Merge(self.shape.renewed(n, Timestamp::now()));
        self.leases.patch(&self.shape.name(n), &PatchParams::default(), &patch).await.map(drop)
    }

    async fn report(&self, n: u32) -> Result<(), Error> {
        let patch = Patch::Strategic(self.shape.heartbeat(n, Timestamp::now()));
        self.nodes.patch_status(&self.shape.name(n), &PatchParams::default(), &patch).await.map(drop)
    }

    /// Keeps them alive for ever. One that somebody has deleted comes back, as a kubelet's would.
    pub async fn live(&self) {
        let leases = self.each_in_turn(LEASE_SECONDS / 4, |all, n| async move { all.renew(n).await });
        let statuses = self.each_in_turn(STATUS_SECONDS, |all, n| async move { all.report(n).await });
        tokio::join!(leases, statuses);
    }

    /// Does something for each node once in `seconds`, evenly spread over them.
    async fn each_in_turn<F>(&self, seconds: u32, what: impl Fn(Self, u32) -> F)
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let limit = Arc::new(Semaphore::new(BEATING));
        let mut ticks = tokio::time::interval(Duration::from_secs(seconds.into()) / self.count.max(1));
        loop {
            for n in 0..self.count {
                ticks.tick().await;
                let Ok(permit) = Arc::clone(&limit).acquire_owned().await else { return };
                let (all, work) = (self.clone(), what(self.clone(), n));
                tokio::spawn(async move {
                    match work.await {
                        Err(Error::Api(status)) if status.code == 404 => {
                            if let Err(error) = all.register_one(n).await {
                                tracing::warn!(error = format!("{error:#}"), "a node that was deleted");
                            }
                        }
                        Err(error) => tracing::warn!(%error, node = all.shape.name(n), "no sign of life"),
                        Ok(()) => {}
                    }
                    drop(permit);
                });
            }
        }
    }
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> anyhow::Result<T> {
    serde_json::from_value(value).context("what the plan made is no such object")
}
