//! Watches, decides for one Pod after another, and binds each in a task of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use trine_typed::event::{Level, Recorder};
use trine_typed::k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
};
use trine_typed::k8s_openapi::api::policy::v1::PodDisruptionBudget;
use trine_typed::k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{Patch, PatchParams, PostParams};
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{self, Api, Client, ResourceExt};
use trine_typed::mirror::Mirror;

use crate::framework::{Decision, decide};
use crate::plugins::volume_binding::{Bindings, is_bound};
use crate::preemption::{nominated_node, priority};
use crate::queue::Backoff;
use crate::snapshot::{NodeInfo, Snapshot};
use trine_typed::pods::claim_names;
use trine_typed::volumes::SELECTED_NODE;

/// How long a Pod's volumes may take to be bound. Upstream: `bindTimeoutSeconds`.
const BIND_TIMEOUT: Duration = Duration::from_secs(600);
/// How often Pods that fitted nowhere are tried again without any change. Upstream: 30 s flush.
const FLUSH: Duration = Duration::from_secs(30);

/// Settings of the scheduler.
#[derive(Debug, Clone)]
pub struct Config {
    /// Only Pods with this `schedulerName` are looked at. Default `default-scheduler`.
    pub name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { name: "default-scheduler".to_owned() }
    }
}

/// Why a Pod that was decided for could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// The API server refused a write.
    #[error("scheduling: {call} of {object} failed")]
    Api {
        /// What was written.
        call: &'static str,
        /// On what.
        object: String,
        /// What the API server said.
        source: Box<trine_typed::kube::Error>,
    },
    /// A claim was not bound in time.
    #[error("scheduling: claim {claim} was not bound within {waited:?}")]
    Volumes {
        /// The claim.
        claim: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The provisioner gave the claim back: another node has to be chosen.
    #[error("scheduling: claim {claim} cannot be provisioned for node {node}")]
    NotHere {
        /// The claim.
        claim: String,
        /// The node that was chosen.
        node: String,
    },
}

pub(crate) struct Scheduler {
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) recorder: Recorder,
    pods: Mirror<Pod>,
    nodes: Mirror<Node>,
    claims: Mirror<PersistentVolumeClaim>,
    volumes: Mirror<PersistentVolume>,
    classes: Mirror<StorageClass>,
    csi_nodes: Mirror<CSINode>,
    budgets: Mirror<PodDisruptionBudget>,
    namespaces: Mirror<Namespace>,
    changed: Arc<Notify>,
    /// Woken with every change too, for tasks that wait for claims.
    claims_changed: Arc<Notify>,
    /// Decided Pods by uid, until they are seen bound.
    assumed: Mutex<BTreeMap<String, Arc<Pod>>>,
}

/// Runs until `stop`.
///
/// # Errors
/// None at present: what fails is retried, and said in the Pod's condition and events.
pub async fn run(client: Client, config: Config, stop: CancellationToken) -> Result<(), SchedulerError> {
    let changed = Arc::new(Notify::new());
    let claims_changed = Arc::new(Notify::new());
    let scheduler = Arc::new(Scheduler {
        recorder: Recorder::new(client.clone(), &config.name, None),
        pods: start(&client, &changed, &stop),
        nodes: start(&client, &changed, &stop),
        claims: start(&client, &changed, &stop),
        volumes: start(&client, &changed, &stop),
        classes: start(&client, &changed, &stop),
        csi_nodes: start(&client, &changed, &stop),
        budgets: start(&client, &changed, &stop),
        namespaces: start(&client, &changed, &stop),
        client,
        config,
        changed,
        claims_changed,
        assumed: Mutex::default(),
    });
    scheduler.pods.ready().await;
    scheduler.nodes.ready().await;
    scheduler.claims.ready().await;
    scheduler.volumes.ready().await;
    scheduler.classes.ready().await;
    let begin = Instant::now();
    let mut backoff = Backoff::default();
    let mut turn = 0;
    loop {
        scheduler.pass(&mut backoff, begin, &mut turn).await;
        let wait = backoff.next().map_or(FLUSH, |next| next.saturating_sub(begin.elapsed()).min(FLUSH));
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = scheduler.changed.notified() => {}
            () = tokio::time::sleep(wait.max(Duration::from_millis(10))) => {}
        }
        scheduler.claims_changed.notify_waiters();
    }
}

fn start<K>(client: &Client, changed: &Arc<Notify>, stop: &CancellationToken) -> Mirror<K>
where
    K: trine_typed::kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    Mirror::start(Api::all(client.clone()), watcher::Config::default(), Arc::clone(changed), stop.clone())
}

impl Scheduler {
    async fn pass(self: &Arc<Self>, backoff: &mut Backoff, begin: Instant, turn: &mut usize) {
        let all = self.pods.all();
        self.confirm(&all);
        let pending = self.pending(&all);
        backoff.retain(|uid| pending.iter().any(|p| p.uid().as_deref() == Some(uid)));
        let due: Vec<_> = pending
            .into_iter()
            .filter(|p| backoff.is_due(&p.uid().unwrap_or_default(), begin.elapsed()))
            .collect();
        if due.is_empty() {
            return;
        }
        let mut snapshot = self.snapshot(&all);
        for pod in due {
            *turn = turn.wrapping_add(1);
            match decide(&pod, &snapshot, *turn) {
                Decision::Place { node, bindings } => {
                    let assumed = Arc::new(on_node(&pod, &node));
                    snapshot.place([Arc::clone(&assumed)]);
                    self.assume(&assumed);
                    self.bind_in_background(pod, node, bindings);
                }
                Decision::Nowhere(message) => {
                    backoff.failed(&pod.uid().unwrap_or_default(), begin.elapsed());
                    self.report(&pod, &message, Nomination::None).await;
                }
                Decision::Wait(message) => {
                    backoff.failed(&pod.uid().unwrap_or_default(), begin.elapsed());
                    self.report(&pod, &message, Nomination::AsItIs).await;
                }
                Decision::Preempt(room, message) => {
                    backoff.failed(&pod.uid().unwrap_or_default(), begin.elapsed());
                    snapshot.nominated.entry(room.node.clone()).or_default().push(Arc::clone(&pod));
                    self.report(&pod, &message, Nomination::To(&room.node)).await;
                    self.make_room(&pod, &room, &snapshot).await;
                }
            }
        }
    }

    /// Drops the assumptions that came true or whose Pod is gone.
    fn confirm(&self, all: &[Arc<Pod>]) {
        let waiting: Vec<String> =
            all.iter().filter(|p| !has_node(p)).filter_map(|p| p.metadata.uid.clone()).collect();
        self.lock().retain(|uid, _| waiting.contains(uid));
    }

    fn pending(&self, all: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let assumed = self.lock();
        let mut pending: Vec<Arc<Pod>> = all
            .iter()
            .filter(|pod| {
                let Some(spec) = &pod.spec else { return false };
                let gated = spec.scheduling_gates.as_ref().is_some_and(|g| !g.is_empty());
                !has_node(pod)
                    && pod.metadata.deletion_timestamp.is_none()
                    && spec.scheduler_name.as_deref().unwrap_or("default-scheduler") == self.config.name
                    && !gated
                    && !assumed.contains_key(pod.metadata.uid.as_deref().unwrap_or_default())
            })
            .cloned()
            .collect();
        pending.sort_by_key(|p| {
            (std::cmp::Reverse(priority(p)), p.creation_timestamp().map(|t| t.0), p.name_any())
        });
        pending
    }

    fn snapshot(&self, all: &[Arc<Pod>]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for node in self.nodes.all() {
            snapshot.nodes.insert(node.name_any(), NodeInfo::new(node));
        }
        for claim in self.claims.all() {
            snapshot.claims.insert((claim.namespace().unwrap_or_default(), claim.name_any()), claim);
        }
        snapshot.volumes = self.volumes.all().into_iter().map(|v| (v.name_any(), v)).collect();
        snapshot.classes = self.classes.all().into_iter().map(|c| (c.name_any(), c)).collect();
        snapshot.csi_nodes = self.csi_nodes.all().into_iter().map(|c| (c.name_any(), c)).collect();
        snapshot.budgets = self.budgets.all();
        let labels = |n: Arc<Namespace>| (n.name_any(), n.metadata.labels.clone().unwrap_or_default());
        snapshot.namespaces = self.namespaces.all().into_iter().map(labels).collect();
        for pod in all.iter().filter(|p| !has_node(p)) {
            if let Some(node) = nominated_node(pod) {
                snapshot.nominated.entry(node.to_owned()).or_default().push(Arc::clone(pod));
            }
        }
        snapshot.place(all.iter().filter(|p| has_node(p)).cloned());
        snapshot.place(self.lock().values().cloned());
        snapshot
    }

    fn assume(&self, pod: &Arc<Pod>) {
        self.lock().insert(pod.uid().unwrap_or_default(), Arc::clone(pod));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Pod>>> {
        self.assumed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bind_in_background(self: &Arc<Self>, pod: Arc<Pod>, node: String, bindings: Bindings) {
        let this = Arc::clone(self);
        let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        let span = tracing::info_span!(
            target: "trine::step", "schedule", plane = "scheduler", pod = %name,
            pod_uid = pod.uid().unwrap_or_default(), detail = %node, error = tracing::field::Empty
        );
        tokio::spawn(
            async move {
                if let Err(error) = this.bind(&pod, &node, &bindings).await {
                    tracing::Span::current().record("error", trine_typed::chain::display(&error));
                    let message = trine_typed::chain::display(&error);
                    this.report(&pod, &message, Nomination::AsItIs).await;
                    this.lock().remove(pod.metadata.uid.as_deref().unwrap_or_default());
                    this.changed.notify_one();
                }
            }
            .instrument(span),
        );
    }

    async fn bind(&self, pod: &Pod, node: &str, bindings: &Bindings) -> Result<(), SchedulerError> {
        self.write_volume_choices(node, bindings).await?;
        for claim in claim_names(pod) {
            self.wait_bound(&pod.namespace().unwrap_or_default(), &claim, node).await?;
        }
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let api = self.pods_of(pod);
        let body = json!({"apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod.uid()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let _: serde_json::Value = api
            .create_subresource("binding", &name, &PostParams::default(), &body)
            .await
            .map_err(api_error("binding", &name))?;
        let message = format!("Successfully assigned {namespace}/{name} to {node}");
        self.recorder.post(pod, Level::Normal, "Scheduled", &message).await;
        Ok(())
    }

    async fn write_volume_choices(&self, node: &str, bindings: &Bindings) -> Result<(), SchedulerError> {
        for (volume, claim) in &bindings.to_bind {
            let api: Api<PersistentVolume> = Api::all(self.client.clone());
            let patch = json!({"metadata": {"resourceVersion": volume.resource_version(),
                    "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                "spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid(),
                    "resourceVersion": claim.resource_version()}}});
            api.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .map_err(api_error("claimRef", &volume.name_any()))?;
        }
        for claim in &bindings.to_provision {
            let api: Api<PersistentVolumeClaim> =
                Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
            api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .map_err(api_error("selected-node", &claim.name_any()))?;
        }
        Ok(())
    }

    async fn wait_bound(&self, namespace: &str, name: &str, node: &str) -> Result<(), SchedulerError> {
        let deadline = tokio::time::Instant::now() + BIND_TIMEOUT;
        let mut chosen_seen = false;
        loop {
            let woken = self.claims_changed.notified();
            if let Some(claim) = self.claims.get(namespace, name) {
                if is_bound(&claim) {
                    return Ok(());
                }
                let chosen = claim.annotations().get(SELECTED_NODE).map(String::as_str);
                if chosen_seen && chosen != Some(node) {
                    return Err(SchedulerError::NotHere { claim: name.to_owned(), node: node.to_owned() });
                }
                chosen_seen = chosen == Some(node);
            }
            if tokio::time::timeout_at(deadline, woken).await.is_err() {
                return Err(SchedulerError::Volumes { claim: name.to_owned(), waited: BIND_TIMEOUT });
            }
        }
    }

    /// Where the Pods of a Pod's namespace are.
    fn pods_of(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }

    /// Changes the status of this very Pod.
    pub(crate) async fn patch_status(&self, pod: &Pod, status: &Value) -> Result<(), kube::Error> {
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": status}));
        let done = self.pods_of(pod).patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
        done.map(drop)
    }

    /// The condition PodScheduled=False, the node that is promised, and a FailedScheduling event.
    async fn report(&self, pod: &Pod, message: &str, nomination: Nomination<'_>) {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
        let old = conditions.into_iter().flatten().find(|c| c.type_ == "PodScheduled");
        let known = old.is_some_and(|c| c.status == "False" && c.message.as_deref() == Some(message));
        let nominated = match nomination {
            Nomination::AsItIs => nominated_node(pod),
            Nomination::None => None,
            Nomination::To(node) => Some(node),
        };
        if !known || nominated != nominated_node(pod) {
            let status = json!({"nominatedNodeName": nominated, "conditions": [{"type": "PodScheduled",
                "status": "False", "reason": "Unschedulable", "message": message,
                "lastTransitionTime": Timestamp::now().to_string()}]});
            if let Err(error) = self.patch_status(pod, &status).await {
                tracing::debug!(%error, "PodScheduled condition not written");
            }
        }
        self.recorder.post(pod, Level::Warning, "FailedScheduling", message).await;
    }
}

/// What becomes of the node that was promised to a Pod.
#[derive(Clone, Copy)]
enum Nomination<'a> {
    AsItIs,
    None,
    To(&'a str),
}

fn has_node(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).is_some_and(|n| !n.is_empty())
}

fn on_node(pod: &Pod, node: &str) -> Pod {
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some(node.to_owned());
    }
    pod
}

fn api_error(call: &'static str, object: &str) -> impl FnOnce(trine_typed::kube::Error) -> SchedulerError {
    let object = object.to_owned();
    move |source| SchedulerError::Api { call, object, source: Box::new(source) }
}
