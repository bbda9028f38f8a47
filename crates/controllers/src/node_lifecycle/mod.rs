//! Is the node there? A node that is silent becomes Unknown; its conditions become taints that keep Pods away and, zone by zone
//! and one node after the other, drive them off (`taint_eviction` does that). Its Pods do not pass for ready any more.

pub mod plan;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::coordination::v1::Lease;
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use crate::events::Events;
use crate::frame::{ControllerError, Cx, log};
use crate::workload::readiness::is_ready;
use plan::{Drive, Zone};

/// How often it looks (upstream: `node-monitor-period`).
const PERIOD: Duration = Duration::from_secs(5);
/// Where kubelets keep their leases.
const LEASES: &str = "kube-node-lease";

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let mut lifecycle = Lifecycle {
        nodes: cx.mirror(&changed),
        // Leases change all the time, and only their silence means anything.
        leases: cx.shared(),
        pods: cx.shared(),
        events: Events::start(cx.client.clone(), "node-controller", cx.stop.clone()),
        heard: BTreeMap::new(),
        driven: BTreeMap::new(),
        cx: cx.clone(),
    };
    tokio::join!(lifecycle.nodes.ready(), lifecycle.leases.ready(), lifecycle.pods.ready());
    loop {
        lifecycle.look().await;
        if !cx.turn(&changed, PERIOD).await {
            return;
        }
    }
}

/// When a node was heard last, and what it said. By this process's own clock: nobody's stamps are believed.
struct Heard {
    said: String,
    at: Instant,
}

struct Lifecycle {
    cx: Cx,
    nodes: Mirror<Node>,
    leases: Mirror<Lease>,
    pods: Mirror<Pod>,
    events: Events,
    heard: BTreeMap<String, Heard>,
    /// When Pods of a zone were driven off last.
    driven: BTreeMap<String, Instant>,
}

impl Lifecycle {
    async fn look(&mut self) {
        let nodes = self.nodes.all();
        let known: HashSet<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
        self.heard.retain(|name, _| known.contains(name.as_str()));
        let mut zones: BTreeMap<String, Zone> = BTreeMap::new();
        for node in &nodes {
            let zone = zones.entry(plan::zone(node)).or_default();
            *if plan::driving(node).is_some() { &mut zone.lost } else { &mut zone.ready } += 1;
        }
        // If all is lost, it is this server that is.
        let all_lost = !zones.is_empty() && zones.values().all(|zone| zone.is_lost());
        for node in &nodes {
            let silent = self.silent(node);
            if let Err(error) = self.judge(node, silent).await {
                log("node-lifecycle", &error);
                continue;
            }
            let zone = plan::zone(node);
            let drive = if all_lost { Drive::Nobody } else { self.turn(node, &zone, zones[&zone]) };
            match self.taint(node, drive).await {
                Ok(true) if drive == Drive::Now => drop(self.driven.insert(zone, Instant::now())),
                Ok(_) => {}
                Err(error) => log("node-lifecycle", &error),
            }
        }
    }

    /// For how long the node has said nothing.
    fn silent(&mut self, node: &Node) -> Duration {
        let name = node.name_any();
        let lease = self.leases.get(LEASES, &name);
        let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.clone());
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let beats = conditions.into_iter().flatten().filter_map(|c| c.last_heartbeat_time.as_ref());
        let said = format!("{renewed:?} {:?}", beats.map(|time| time.0).max());
        let now = Instant::now();
        let heard = self.heard.entry(name).or_insert_with(|| Heard { said: said.clone(), at: now });
        if heard.said != said {
            *heard = Heard { said, at: now };
        }
        heard.at.elapsed()
    }

    /// Whether it is this node's turn to lose its Pods.
    fn turn(&self, node: &Node, name: &str, zone: Zone) -> Drive {
        let (Some(_), Some(pace)) = (plan::driving(node), zone.pace()) else { return Drive::NotYet };
        match self.driven.get(name) {
            Some(last) if last.elapsed() < pace => Drive::NotYet,
            _ => Drive::Now,
        }
    }

    /// Notes that a silent node is Unknown, and that Pods of a node that is not ready are not either.
    async fn judge(&self, node: &Node, silent: Duration) -> Result<(), ControllerError> {
        let name = node.name_any();
        let mut ready = plan::driving(node).is_none();
        if plan::is_lost(node, silent) {
            let unknown = plan::unknown(node, &Time(trine_clock::now()));
            if !unknown.is_empty() {
                let patch = json!({"status": {"conditions": unknown}});
                let api: Api<Node> = Api::all(self.cx.client.clone());
                let done = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await;
                done.map_err(ControllerError::of("patch status of silent node", &name))?;
                let note = format!("Node {name} status is now: NodeNotReady");
                self.events.post(node, Level::Normal, "NodeNotReady", "NodeNotReady", note);
            }
            ready = false;
        }
        if ready {
            return Ok(());
        }
        for pod in self.pods_of(&name).filter(|pod| is_ready(pod)) {
            let condition =
                json!({"type": "Ready", "status": "False", "lastTransitionTime": trine_clock::now()});
            let patch = json!({"status": {"conditions": [condition]}});
            let api: Api<Pod> = Api::namespaced(self.cx.client.clone(), &pod.namespace().unwrap_or_default());
            let done =
                api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&patch)).await;
            done.map_err(ControllerError::of("patch status of Pod on silent node", pod.name_any()))?;
            self.events.post(&*pod, Level::Warning, "NodeNotReady", "NodeNotReady", "Node is not ready");
        }
        Ok(())
    }

    fn pods_of(&self, node: &str) -> impl Iterator<Item = Arc<Pod>> {
        let on = move |pod: &Arc<Pod>| pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(node);
        self.pods.all().into_iter().filter(on)
    }

    /// Gives the node the taints that it is to have; true if they have changed.
    async fn taint(&self, node: &Node, drive: Drive) -> Result<bool, ControllerError> {
        let Some(taints) = plan::taints(node, drive, &Time(trine_clock::now())) else { return Ok(false) };
        // No list rather than an empty one, as upstream's clients write it.
        let taints = Some(taints).filter(|taints| !taints.is_empty());
        // Others taint, too: what was read must be what is changed.
        let patch =
            json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {"taints": taints}});
        let (api, name): (Api<Node>, _) = (Api::all(self.cx.client.clone()), node.name_any());
        let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        done.map(|_| true).map_err(ControllerError::of("taint node", name))
    }
}
