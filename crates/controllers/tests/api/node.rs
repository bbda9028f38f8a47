//! A node that is played: Pods are bound to it, run at once and become ready, unless their image says otherwise, and go when
//! they are deleted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{Api, Client, ResourceExt};
use trine_typed::mirror::Mirror;

use crate::cluster::Cluster;

/// An image that never becomes ready.
pub const BROKEN: &str = "broken";
/// An image whose Pods stay when they are deleted, until [`Node::release`].
pub const SLOW: &str = "slow";

/// What was seen on the node.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// The most active Pods at a time.
    pub most: usize,
    /// The fewest ready Pods at a time, once there were `floor_from` of them.
    pub fewest_ready: Option<usize>,
    floor_from: usize,
    /// Which images ran together.
    pub together: Vec<Vec<String>>,
}

/// The node.
#[derive(Clone)]
pub struct Node {
    seen: Arc<Mutex<Seen>>,
    held: Arc<Mutex<bool>>,
    changed: Arc<Notify>,
}

impl Node {
    /// Joins the cluster.
    pub async fn join(cluster: &Cluster, name: &str) -> Self {
        let nodes: Api<NodeObject> = Api::all(cluster.client.clone());
        let labels = json!({"kubernetes.io/hostname": name});
        let object = json!({"metadata": {"name": name, "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        nodes.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let node =
            Self { seen: Arc::default(), held: Arc::new(Mutex::new(true)), changed: Arc::new(Notify::new()) };
        let pods = Mirror::start(
            Api::<Pod>::all(cluster.client.clone()),
            watcher::Config::default(),
            Arc::clone(&node.changed),
            cluster.stop.clone(),
        );
        let (playing, name) = (node.clone(), name.to_owned());
        let (client, stop) = (cluster.client.clone(), cluster.stop.clone());
        tokio::spawn(async move {
            pods.ready().await;
            loop {
                playing.look(&pods.all());
                for pod in pods.all() {
                    playing.play(&client, &name, &pod).await;
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = playing.changed.notified() => {}
                }
            }
        });
        node
    }

    /// Forgets what was seen so far. The node sees a little later than the test that `ready` Pods are; from then on fewer are seen,
    /// too.
    pub fn watch(&self, ready: usize) {
        *self.seen.lock().unwrap() = Seen { floor_from: ready, ..Seen::default() };
        self.changed.notify_one();
    }

    /// What was seen since.
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Lets deleted Pods of the image [`SLOW`] go.
    pub fn release(&self) {
        *self.held.lock().unwrap() = false;
        self.changed.notify_one();
    }

    fn look(&self, pods: &[Arc<Pod>]) {
        let active = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_none();
        let mut seen = self.seen.lock().unwrap();
        seen.most = seen.most.max(pods.iter().filter(active).count());
        let ready = pods.iter().filter(active).filter(|pod| is_ready(pod)).count();
        if seen.fewest_ready.is_some() || ready >= seen.floor_from {
            seen.fewest_ready = Some(seen.fewest_ready.unwrap_or(ready).min(ready));
        }
        let images: BTreeMap<String, ()> = pods.iter().map(|pod| (image(pod), ())).collect();
        let images: Vec<String> = images.into_keys().collect();
        if !seen.together.contains(&images) {
            seen.together.push(images);
        }
    }

    async fn play(&self, client: &Client, node: &str, pod: &Pod) {
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
        let name = pod.name_any();
        let spec = json!(pod.spec);
        let terms = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let meant = terms[0]["matchFields"][0]["values"][0].as_str().unwrap_or(node);
        let bound = spec["nodeName"].as_str();
        if bound.unwrap_or(meant) != node {
            return;
        }
        let phase = pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() {
            if image(pod) != SLOW || !*self.held.lock().unwrap() {
                let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                let _ = api.delete(&name, &now).await;
            }
        } else if bound.is_none() {
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"kind": "Node", "name": node}});
            let new = PostParams::default();
            let _ = api.create_subresource::<_, serde_json::Value>("binding", &name, &new, &binding).await;
        } else if phase == "Pending" {
            let ready = if image(pod) == BROKEN { "False" } else { "True" };
            // What a test said meanwhile is not said over.
            let version = json!({"resourceVersion": pod.resource_version()});
            let now = Timestamp::now().strftime("%FT%TZ").to_string();
            let status = json!({"metadata": version, "status": {"phase": "Running", "startTime": now, "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": Timestamp::now().strftime("%FT%TZ").to_string()}]}});
            let _ = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
        }
    }
}

/// Whether a Pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// The image of a Pod's first container.
pub fn image(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|s| s.containers.first()?.image.clone()).unwrap_or_default()
}
