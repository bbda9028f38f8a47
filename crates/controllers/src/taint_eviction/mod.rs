//! Pods leave nodes whose taints drive them off, at once or when the time is over for which they tolerate it. A taint that goes
//! meanwhile lets them stay.

pub mod plan;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use trine_typed::disruption::mark;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod};
use trine_typed::kube::ResourceExt;
use trine_typed::mirror::{Key, Mirror, Subscription};
use trine_typed::pods::is_finished;
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx, retried};
use crate::workload::pods::Pods;
use crate::workload::wake;
use plan::{Stay, stay};

/// Pods that are worked on at a time (upstream: 8).
const WORKERS: usize = 8;
const REASON: &str = "TaintManagerEviction";

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let controller = Arc::new(Controller {
        pods: Pods {
            client: cx.client.clone(),
            events: Events::start(cx.client.clone(), "taint-eviction-controller", cx.stop.clone()),
            mirror: cx.shared(),
        },
        nodes: cx.shared(),
        waiting: Mutex::default(),
    });
    tokio::join!(controller.pods.mirror.ready(), controller.nodes.ready());
    let queue = Arc::new(WorkQueue::default());
    let _woken = [wake::by_themselves(&controller.pods.mirror, &queue), controller.wake_by_nodes(&queue)];
    let reconcile = |key: Key| {
        let controller = Arc::clone(&controller);
        async move { controller.reconcile(&key).await.unwrap_or_else(|error| retried("taint-eviction", &error)) }
    };
    queue.work(WORKERS, &cx.stop, reconcile).await;
}

struct Controller {
    pods: Pods,
    nodes: Mirror<Node>,
    /// Since when Pods wait for their time to be over: UID and time.
    waiting: Mutex<HashMap<Key, (String, Instant)>>,
}

impl Controller {
    /// Adds the Pods of nodes whose taints have changed.
    fn wake_by_nodes(&self, queue: &Arc<WorkQueue<Key>>) -> Subscription {
        let (queue, pods) = (Arc::clone(queue), self.pods.mirror.clone());
        self.nodes.subscribe(move |old, new| {
            let taints = |node: &Arc<Node>| node.spec.as_ref().and_then(|spec| spec.taints.clone());
            let (before, after) = (old.and_then(taints), new.and_then(taints));
            if let Some(node) = new
                && before.unwrap_or_default() != after.unwrap_or_default()
            {
                let name = node.name_any();
                for pod in pods.all().iter().filter(|pod| node_of(pod) == Some(&name)) {
                    queue.add(Key::of(&pod.metadata));
                }
            }
        })
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, ControllerError> {
        let pod = self.pods.mirror.get(&key.namespace, &key.name);
        let pod = pod.filter(|pod| pod.metadata.deletion_timestamp.is_none() && !is_finished(pod));
        let Some(pod) = pod else {
            self.waits(key, None);
            return Ok(Next::Wait);
        };
        let node = node_of(&pod).and_then(|name| self.nodes.get("", name));
        let taints = node.as_ref().and_then(|node| node.spec.as_ref()?.taints.as_deref()).unwrap_or_default();
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        match stay(tolerations, taints) {
            Stay::Always => {
                if self.waits(key, None).is_some() {
                    let note = format!("Cancelling deletion of Pod {}/{}", key.namespace, key.name);
                    self.pods.events.post(&*pod, Level::Normal, REASON, REASON, note);
                }
                Ok(Next::Wait)
            }
            Stay::For(time) => {
                let waited = self.waits(key, pod.uid()).unwrap_or_default();
                if waited < time {
                    return Ok(Next::After(time - waited));
                }
                self.evict(&pod).await?;
                self.waits(key, None);
                Ok(Next::Wait)
            }
        }
    }

    /// For how long a Pod waits already; notes since when the Pod with this UID does, or that none does.
    fn waits(&self, key: &Key, uid: Option<String>) -> Option<Duration> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(uid) = uid else { return waiting.remove(key).map(|(_, since)| since.elapsed()) };
        let since = waiting.get(key).filter(|(of, _)| *of == uid).map(|(_, since)| *since);
        let since = since.unwrap_or_else(Instant::now);
        waiting.insert(key.clone(), (uid, since));
        Some(since.elapsed())
    }

    async fn evict(&self, pod: &Pod) -> Result<(), ControllerError> {
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        self.pods.events.post(
            pod,
            Level::Normal,
            REASON,
            REASON,
            format!("Marking for deletion Pod {namespace}/{name}"),
        );
        let message = "Taint manager: deleting due to NoExecute taint";
        let done = mark(&self.pods.api(Some(namespace)), pod, "DeletionByTaintManager", message).await;
        let marked = done.map_err(ControllerError::of("patch status of Pod to be evicted", &name))?;
        self.pods.mirror.learn(&marked);
        self.pods.remove(pod).await.map_err(ControllerError::of("evict Pod", name))
    }
}

fn node_of(pod: &Pod) -> Option<&String> {
    pod.spec.as_ref()?.node_name.as_ref().filter(|name| !name.is_empty())
}
