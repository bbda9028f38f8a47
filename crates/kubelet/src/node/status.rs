//! The status loop. It sends what changed at once, everything each five minutes, and the volumes in use before
//! anything of them is mounted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use trine_typed::k8s_openapi::api::core::v1::{ContainerImage, Node, NodeStatus};
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{Api, Client};
use trine_typed::nodes::pod_ranges;

use super::machine::Machine;
use super::object::{self, Facts, RuntimeHealth};
use super::register;
use crate::config::{Config, NODE_STATUS_CHECK, NODE_STATUS_REPORT};
use crate::error::{KubeletError, api};
use crate::eviction::Pressures;
use crate::runtime::Runtime;

/// How long the runtime is waited for before the node is registered as not ready (upstream: 30 s).
const RUNTIME_WAIT: Duration = Duration::from_secs(30);
/// While the node is not ready, how often it is looked at again.
const NOT_READY_CHECK: Duration = Duration::from_millis(100);

struct Reported {
    status: Option<NodeStatus>,
    node: Option<Node>,
    at: Option<Instant>,
    in_use: BTreeSet<String>,
}

/// Keeps the Node's status true.
pub struct NodeStatusManager {
    config: Arc<Config>,
    pressures: Arc<Pressures>,
    machine: Machine,
    runtime: Runtime,
    nodes: Api<Node>,
    port: u16,
    reported: Mutex<Reported>,
    in_use: watch::Sender<BTreeSet<String>>,
    network_ready: watch::Sender<bool>,
    wake: Notify,
}

impl NodeStatusManager {
    /// A manager for the node of `config`, whose HTTPS server is on `port`.
    #[must_use]
    pub fn new(
        config: Arc<Config>,
        pressures: Arc<Pressures>,
        runtime: Runtime,
        client: Client,
        port: u16,
    ) -> Self {
        Self {
            machine: Machine::read(&config.root),
            config,
            pressures,
            runtime,
            nodes: Api::all(client),
            port,
            reported: Mutex::new(Reported { status: None, node: None, at: None, in_use: BTreeSet::new() }),
            in_use: watch::Sender::new(BTreeSet::new()),
            network_ready: watch::Sender::new(false),
            wake: Notify::new(),
        }
    }

    /// The machine's facts.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether Pods with a network of their own may start.
    #[must_use]
    pub fn network_ready(&self) -> watch::Receiver<bool> {
        self.network_ready.subscribe()
    }

    /// The Node as it was when its status was sent last, or as it is now if `fresh`.
    ///
    /// # Errors
    /// [`KubeletError::Api`].
    pub async fn node(&self, fresh: bool) -> Result<Node, KubeletError> {
        let known = if fresh { None } else { self.reported.lock().await.node.clone() };
        match known {
            Some(node) => Ok(node),
            None => api("get Node", &self.config.node_name, self.nodes.get(&self.config.node_name)).await,
        }
    }

    /// Registers the Node: ready if the runtime is, after at most [`RUNTIME_WAIT`] of waiting for its socket.
    /// Returns the Node's UID.
    ///
    /// # Errors
    /// [`KubeletError::Api`] if the API server refuses; the caller tries again.
    pub async fn register(&self) -> Result<String, KubeletError> {
        let started = Instant::now();
        let mut health = self.health().await;
        while health.version.is_empty() && started.elapsed() < RUNTIME_WAIT {
            tokio::time::sleep(Duration::from_millis(10)).await;
            health = self.health().await;
        }
        let span = tracing::info_span!(target: "trine::step", "register Node", plane = "kubelet",
            detail = %self.config.node_name, error = tracing::field::Empty);
        let node = async {
            let fresh = object::node(&self.facts(&health, Vec::new()), Timestamp::now());
            register::register(&self.nodes, &self.config, &fresh).await
        }
        .instrument(span.clone())
        .await
        .inspect_err(|error| {
            span.record("error", error.chain());
        })?;
        let uid = node.metadata.uid.clone().unwrap_or_default();
        self.network_ready.send_replace(health.network_ready);
        {
            let mut reported = self.reported.lock().await;
            reported.node = Some(node);
        }
        self.report(&health, Vec::new()).await?;
        Ok(uid)
    }

    /// Computes and sends the status until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut images = Vec::new();
        let mut images_at: Option<Instant> = None;
        let mut told = None;
        loop {
            if self.config.tell_pod_range {
                self.tell_pod_range(&mut told).await;
            }
            let health = self.health().await;
            self.network_ready.send_if_modified(|ready| {
                std::mem::replace(ready, health.network_ready) != health.network_ready
            });
            if images_at.is_none_or(|at| at.elapsed() > NODE_STATUS_CHECK) {
                images = self.runtime.images().await.map(object::images).unwrap_or(images);
                images_at = Some(Instant::now());
            }
            if let Err(error) = self.report(&health, images.clone()).await {
                tracing::warn!(error = error.chain(), "node status not sent");
            }
            let hurry = health.not_ready.is_some() || self.config.tell_pod_range && told.is_none();
            let pause = if hurry { NOT_READY_CHECK } else { NODE_STATUS_CHECK };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Tells the runtime the range that the Node has been given, if it is another than the one that was told last.
    async fn tell_pod_range(&self, told: &mut Option<String>) {
        let name = &self.config.node_name;
        let range = match api("get Node", name, self.nodes.get(name)).await {
            Ok(node) => pod_ranges(&node).join(","),
            Err(error) => return tracing::warn!(error = error.chain(), "the Node's Pod range is not known"),
        };
        if range.is_empty() || told.as_ref() == Some(&range) {
            return;
        }
        match self.runtime.set_pod_cidr(&range).await {
            Ok(()) => *told = Some(range),
            Err(error) => tracing::warn!(error = error.chain(), "the runtime did not take the Pod range"),
        }
    }

    /// Says that exactly `volumes` are in use. The status carries it soon after.
    pub fn set_in_use(&self, volumes: BTreeSet<String>) {
        if self.in_use.send_if_modified(|old| std::mem::replace(old, volumes.clone()) != volumes) {
            self.wake.notify_one();
        }
    }

    /// Makes sure that the API server knows `volume` to be in use, and returns the Node as it was after that:
    /// only then may its `volumesAttached` be trusted, since a detach looks at the two in the other order.
    ///
    /// # Errors
    /// [`KubeletError::Api`].
    pub async fn reported_in_use(&self, volume: &str) -> Result<Node, KubeletError> {
        let mut reported = self.reported.lock().await;
        let wanted = self.in_use.borrow().clone();
        if !wanted.contains(volume) {
            return Err(KubeletError::NotYet(format!("volume {volume} is no longer wanted on this node")));
        }
        let name = &self.config.node_name;
        if reported.in_use.contains(volume) {
            return api("get Node", name, self.nodes.get(name)).await;
        }
        let patch = json!({"status": {"volumesInUse": wanted}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let patched = self.nodes.patch_status(name, &params, &patch);
        let node = api("patch Node status", name, patched).await?;
        reported.in_use = wanted;
        Ok(node)
    }

    async fn health(&self) -> RuntimeHealth {
        let both = async {
            let version = self.runtime.version().await?;
            Ok::<_, KubeletError>((version, self.runtime.status().await?))
        };
        match both.await {
            Ok((version, status)) => object::health(&version, &status),
            Err(error) => RuntimeHealth {
                version: String::new(),
                not_ready: Some((
                    "KubeletNotReady".to_owned(),
                    format!("[container runtime is down: {}]", error.chain()),
                )),
                network_ready: false,
                handlers: Vec::new(),
                features: None,
            },
        }
    }

    fn facts<'a>(&'a self, health: &'a RuntimeHealth, images: Vec<ContainerImage>) -> Facts<'a> {
        Facts {
            config: &self.config,
            machine: &self.machine,
            health,
            pressure: self.pressures.look().0,
            port: self.port,
            images,
            volumes_in_use: self.in_use.borrow().iter().cloned().collect(),
        }
    }

    /// Sends the status if it changed, or if it was not sent for long.
    async fn report(&self, health: &RuntimeHealth, images: Vec<ContainerImage>) -> Result<(), KubeletError> {
        let mut reported = self.reported.lock().await;
        let name = &self.config.node_name;
        let old = reported.node.as_ref().and_then(|n| n.status.as_ref()).and_then(|s| s.conditions.clone());
        let facts = self.facts(health, images);
        let status = object::status(&facts, &old.unwrap_or_default(), Timestamp::now());
        let due = reported.at.is_none_or(|at| at.elapsed() >= NODE_STATUS_REPORT);
        if !due && reported.status.as_ref().is_some_and(|last| !object::differs(last, &status)) {
            return Ok(());
        }
        let mut body = serde_json::to_value(&status).unwrap_or_default();
        // Conditions merge by type, so those that others set stay; addresses are ours alone.
        if let Some(addresses) = body.get_mut("addresses").and_then(|a| a.as_array_mut()) {
            addresses.insert(0, json!({"$patch": "replace"}));
        }
        let patch = json!({"status": body});
        let (params, patch) = (PatchParams::default(), Patch::Strategic(&patch));
        let patched = self.nodes.patch_status(name, &params, &patch);
        match api("patch Node status", name, patched).await {
            Ok(node) => {
                reported.in_use = status.volumes_in_use.iter().flatten().cloned().collect();
                reported.node = Some(node);
                reported.status = Some(status);
                reported.at = Some(Instant::now());
                Ok(())
            }
            Err(error) if error.api_code() == Some(404) => {
                // Somebody deleted the Node: it is registered again.
                let fresh = object::node(&facts, Timestamp::now());
                reported.node = Some(register::register(&self.nodes, &self.config, &fresh).await?);
                reported.status = None;
                self.wake.notify_one();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
