//! DaemonSets: a Pod on every node that is to have one.
//!
//! The label `pod-template-generation` of extensions/v1beta1 is not written.

pub mod plan;
#[cfg(test)]
mod plan_tests;
mod pod;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use trine_objects::selector::label::LabelSelector;
use trine_typed::k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus};
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod};
use trine_typed::kube::api::PostParams;
use trine_typed::kube::{Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror, Subscription};
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx};
use crate::workload::batch::slow_start;
use crate::workload::claim::Claimer;
use crate::workload::pods::{Pods, after_failure};
use crate::workload::revisions::{Made, Revisions, beyond_history, history, revision};
use crate::workload::selecting::{selector, selects};
use crate::workload::wake;
use plan::{Plan, Turn, plan, status};
use pod::HASH;

/// Upstream's name of the controller.
const CONTROLLER: &str = "daemonset-controller";
/// DaemonSets that are worked on at a time. Upstream: 2.
const WORKERS: usize = 4;
/// Pods made or removed in one turn. Upstream: 250.
const BURST: usize = 250;
/// How long a failed Pod stays at first; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// And at most.
const LAST_WAIT: Duration = Duration::from_secs(900);
/// Changes of nodes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(20);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let client = cx.client.clone();
    let events = Events::start(client.clone(), CONTROLLER, cx.stop.clone());
    let controller = Controller {
        client: client.clone(),
        events: events.clone(),
        sets: cx.shared(),
        nodes: cx.shared(),
        pods: Pods { client: client.clone(), events, mirror: cx.shared() },
        revisions: Revisions { client, mirror: cx.shared() },
        failures: Mutex::default(),
    };
    tokio::join!(
        controller.sets.ready(),
        controller.nodes.ready(),
        controller.pods.mirror.ready(),
        controller.revisions.mirror.ready()
    );
    let controller = Arc::new(controller);
    let queue = Arc::new(WorkQueue::default());
    let _woken = [
        wake::by_themselves(&controller.sets, &queue),
        wake::by_what_they_own(&controller.pods.mirror, &controller.sets, &queue, selected),
        wake::by_what_they_own(&controller.revisions.mirror, &controller.sets, &queue, selected),
        controller.wake_by_nodes(&queue),
    ];
    let reconcile = |key: Key| {
        let controller = Arc::clone(&controller);
        async move { controller.reconcile(&key).await.unwrap_or_else(|error| after_failure("daemon-set", &error)) }
    };
    queue.work(WORKERS, &cx.stop, reconcile).await;
}

fn selected(set: &DaemonSet) -> Option<LabelSelector> {
    selector(&set.spec.selector)
}

struct Controller {
    client: Client,
    events: Events,
    sets: Mirror<DaemonSet>,
    nodes: Mirror<Node>,
    pods: Pods,
    revisions: Revisions,
    /// How often a Pod of a DaemonSet (UID) has failed on a node, and until when the next one stays.
    failures: Mutex<HashMap<(String, String), (u32, Instant)>>,
}

impl Controller {
    /// A node that comes, goes, or changes its labels or taints may be of interest to any.
    fn wake_by_nodes(&self, queue: &Arc<WorkQueue<Key>>) -> Subscription {
        let (sets, queue) = (self.sets.clone(), Arc::clone(queue));
        self.nodes.subscribe(move |old, new| {
            let facts = |node: Option<&Arc<Node>>| {
                node.map(|n| (n.metadata.labels.clone(), n.spec.as_ref().and_then(|s| s.taints.clone())))
            };
            if facts(old) != facts(new) {
                for set in sets.all() {
                    queue.add_after(Key::of(&set.metadata), GATHER);
                }
            }
        })
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(set) = self.sets.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let Some(selector) = selected(&set) else { return Ok(Next::Wait) };
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Wait);
        }
        let Some((current, olds)) = self.history(&set, &selector).await? else { return Ok(Next::Retry) };
        let hash = current.labels().get(HASH).cloned().unwrap_or_default();
        let pods = self.claim(&set, &selector).await?;
        let nodes = self.nodes.all();
        let uid = set.uid().unwrap_or_default();
        let plan = plan(&Turn::new(&set, &hash, &nodes, &pods, trine_clock::now()), &self.waits(&uid));
        let failure = self.act(&set, &hash, &plan).await.err();
        // What was made and removed just now is known already.
        let mut pods = self.pods.mirror.controlled_by(&uid);
        pods.retain(|pod| selects(&selector, &pod.metadata));
        self.tell(&set, status(&Turn::new(&set, &hash, &nodes, &pods, trine_clock::now()))).await?;
        if let Some(error) = failure {
            return Err(error);
        }
        let uses = |revision: &ControllerRevision| {
            let hash = revision.labels().get(HASH);
            hash.is_some() && pods.iter().any(|pod| pod.labels().get(HASH) == hash)
        };
        self.revisions.delete(&beyond_history(&olds, set.spec.revision_history_limit, uses)).await?;
        Ok(plan.again.map_or(Next::Wait, Next::After))
    }

    /// The present revision and the old ones; none if another name has to be found.
    async fn history(
        &self,
        set: &DaemonSet,
        selector: &LabelSelector,
    ) -> Result<Option<(Arc<ControllerRevision>, Vec<Arc<ControllerRevision>>)>, ControllerError> {
        let found = history(self.revisions.of(set, selector).await?, &set.spec.template);
        let current = match found.current {
            Some(current) if current.revision == Some(found.number) => current,
            Some(current) => self.revisions.number(&current, found.number).await?,
            None => {
                let collisions = set.status.as_ref().and_then(|s| s.collision_count);
                let fresh = revision(set, &set.spec.template, HASH, collisions, found.number);
                match self.revisions.create(&fresh).await? {
                    Made::Revision(made) => made,
                    Made::Collision => {
                        let mut status = set.status.clone().unwrap_or_default();
                        status.collision_count = Some(collisions.unwrap_or_default() + 1);
                        return self.tell(set, status).await.map(|()| None);
                    }
                }
            }
        };
        Ok(Some((current, found.olds)))
    }

    async fn claim(
        &self,
        set: &DaemonSet,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Pod>>, ControllerError> {
        let claimer = Claimer { client: &self.client, owner: set, selector, finalizers: &[] };
        let pods = claimer.candidates(&self.pods.mirror).await?;
        claimer.claim(&self.pods.mirror, pods).await
    }

    async fn act(&self, set: &DaemonSet, hash: &str, plan: &Plan) -> Result<(), ControllerError> {
        for note in &plan.notes {
            self.events.post(set, note.level, note.reason, "DeletePod", note.text.clone());
        }
        self.note_failures(&set.uid().unwrap_or_default(), &plan.failed);
        let nodes = &plan.create[..plan.create.len().min(BURST)];
        let make =
            |i: usize| async move { self.pods.create(set, &pod::pod(set, &nodes[i], hash)).await.map(drop) };
        let made = slow_start(nodes.len(), make).await;
        let delete = plan.delete.iter().take(BURST).map(|pod| self.pods.delete(set, pod));
        let deleted = join_all(delete).await;
        made.failure.map_or(Ok(()), Err)?;
        deleted.into_iter().find(Result::is_err).unwrap_or(Ok(()))
    }

    /// How long failed Pods of nodes have to stay yet.
    fn waits(&self, uid: &str) -> BTreeMap<String, Duration> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // What has not failed for long is forgotten.
        failures.retain(|_, (_, until)| now.duration_since(*until) < 2 * LAST_WAIT);
        let of_it = failures.iter().filter(|((set, _), _)| set == uid);
        of_it.map(|((_, node), (_, until))| (node.clone(), until.duration_since(now))).collect()
    }

    fn note_failures(&self, uid: &str, nodes: &[String]) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        for node in nodes {
            let (count, until) =
                failures.entry((uid.to_owned(), node.clone())).or_insert((0, Instant::now()));
            *until = Instant::now() + FIRST_WAIT.saturating_mul(1 << (*count).min(16)).min(LAST_WAIT);
            *count += 1;
        }
    }

    /// Writes a status that is news.
    async fn tell(&self, set: &DaemonSet, status: DaemonSetStatus) -> Result<(), ControllerError> {
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let (name, namespace) = (set.name_any(), set.namespace().unwrap_or_default());
        let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), &namespace);
        let told = DaemonSet { status: Some(status), ..set.clone() };
        let done = api.replace_status(&name, &PostParams::default(), &told).await;
        let written = done.map_err(ControllerError::of("write the status of DaemonSet", name))?;
        self.sets.learn(&written);
        Ok(())
    }
}
