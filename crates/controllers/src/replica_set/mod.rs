//! ReplicaSets and ReplicationControllers: a number of Pods of one template.

mod kinds;
pub mod plan;

use std::sync::Arc;

use trine_objects::selector::label::LabelSelector;
use trine_typed::k8s_openapi::api::apps::v1::ReplicaSetStatus;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::kube::api::PostParams;
use trine_typed::kube::{self, Api, ResourceExt};
use trine_typed::mirror::{Key, Mirror, controller_of};
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx, retried};
use crate::workload::batch::slow_start;
use crate::workload::claim::Claimer;
use crate::workload::pods::{Pods, from_template, in_ending_namespace, said};
use crate::workload::readiness::{available_in, is_active, is_terminating};
use crate::workload::selecting::selects;
use crate::workload::{ranking, wake};
pub use kinds::Replicated;
use plan::{Failure, Step};

/// Sets that are worked on at a time. Upstream: 5.
const WORKERS: usize = 8;

/// Runs for one of the two kinds until the context ends.
pub async fn run<K: Replicated>(cx: Cx) {
    let (sets, mirror): (Mirror<K>, Mirror<Pod>) = (cx.shared(), cx.shared());
    tokio::join!(sets.ready(), mirror.ready());
    let queue = Arc::new(WorkQueue::default());
    let _woken =
        [wake::by_themselves(&sets, &queue), wake::by_what_they_own(&mirror, &sets, &queue, K::selector)];
    let events = Events::start(cx.client.clone(), K::CONTROLLER, cx.stop.clone());
    let pods = Pods { client: cx.client.clone(), events, mirror };
    let controller = Arc::new(Controller { sets, pods });
    let reconcile = |key: Key| {
        let controller = Arc::clone(&controller);
        async move { controller.reconcile(&key).await.unwrap_or_else(|error| retried(K::CONTROLLER, &error)) }
    };
    queue.work(WORKERS, &cx.stop, reconcile).await;
}

struct Controller<K: Replicated> {
    sets: Mirror<K>,
    pods: Pods,
}

impl<K: Replicated> Controller<K> {
    async fn reconcile(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(set) = self.sets.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let Some(selector) = set.selector() else { return Ok(Next::Wait) };
        let active = self.claim(&set, &selector).await?;
        let failure = match set.meta().deletion_timestamp {
            None => self.manage(&set, active).await.err(),
            Some(_) => None,
        };
        // What was made and removed just now is known already.
        let (active, terminating) = self.owned(&set, &selector);
        let now = trine_clock::now();
        let text = failure.as_ref().map(|(_, error)| said(&error.source));
        let told = failure.as_ref().zip(text.as_deref());
        let told = told.map(|((reason, _), message)| Failure { reason, message });
        self.tell(&set, plan::status(&*set, &active, terminating, told, now)).await?;
        if let Some((_, error)) = failure {
            return Err(error);
        }
        let least = set.min_ready_seconds();
        let waits = active.iter().filter_map(|pod| available_in(pod, least, now));
        Ok(waits.filter(|wait| !wait.is_zero()).min().map_or(Next::Wait, Next::After))
    }

    /// Active Pods that are the set's, after taking over and letting go.
    async fn claim(&self, set: &K, selector: &LabelSelector) -> Result<Vec<Arc<Pod>>, ControllerError> {
        let claimer = Claimer { client: &self.pods.client, owner: set, selector, finalizers: &[] };
        let mut pods = claimer.candidates(&self.pods.mirror).await?;
        pods.retain(|pod| is_active(pod));
        claimer.claim(&self.pods.mirror, pods).await
    }

    /// The active Pods of the set, and the number of those that are on their way out.
    fn owned(&self, set: &K, selector: &LabelSelector) -> (Vec<Arc<Pod>>, usize) {
        let mut pods = self.pods.mirror.controlled_by(&set.uid().unwrap_or_default());
        pods.retain(|pod| selects(selector, &pod.metadata));
        let terminating = pods.iter().filter(|pod| is_terminating(pod)).count();
        pods.retain(|pod| is_active(pod));
        (pods, terminating)
    }

    /// Makes or removes Pods; says why not, if not.
    async fn manage(&self, set: &K, active: Vec<Arc<Pod>>) -> Result<(), (&'static str, ControllerError)> {
        match plan::step(&active, set.wanted(), &self.per_node(set), trine_clock::now()) {
            Step::Stay => Ok(()),
            Step::Create(count) => {
                let Some(template) = set.template() else { return Ok(()) };
                let pod = from_template(set, template);
                let made = slow_start(count, |_| async { self.pods.create(set, &pod).await.map(drop) }).await;
                match made.failure {
                    Some(error) if !in_ending_namespace(&error.source) => Err(("FailedCreate", error)),
                    _ => Ok(()),
                }
            }
            Step::Delete(pods) => {
                let deleted = pods.iter().map(|pod| self.pods.delete(set, pod));
                let mut failures =
                    futures::future::join_all(deleted).await.into_iter().filter_map(Result::err);
                failures.next().map_or(Ok(()), |error| Err(("FailedDelete", error)))
            }
        }
    }

    /// How many Pods of all sets of the same owner each node has.
    fn per_node(&self, set: &K) -> std::collections::BTreeMap<String, usize> {
        let Some(owner) = controller_of(set.meta()) else { return ranking::per_node([]) };
        let sets = self.sets.controlled_by(&owner.uid);
        let pods: Vec<Arc<Pod>> =
            sets.iter().flat_map(|s| self.pods.mirror.controlled_by(&s.uid().unwrap_or_default())).collect();
        ranking::per_node(&pods)
    }

    /// Writes a status that is news.
    async fn tell(&self, set: &K, status: ReplicaSetStatus) -> Result<(), ControllerError> {
        if set.status() == set.with_status(status.clone()).status() {
            return Ok(());
        }
        let (name, namespace) = (set.name_any(), set.namespace().unwrap_or_default());
        let api: Api<K> = Api::namespaced(self.pods.client.clone(), &namespace);
        let mut written =
            api.replace_status(&name, &PostParams::default(), &set.with_status(status.clone())).await;
        if matches!(&written, Err(kube::Error::Api(refused)) if refused.code == 409) {
            // Somebody wrote meanwhile, mostly the spec: what was counted is true nevertheless.
            let live = api.get(&name).await.map_err(ControllerError::of("get", name.clone()))?;
            if live.uid() != set.uid() {
                return Ok(());
            }
            written = api.replace_status(&name, &PostParams::default(), &live.with_status(status)).await;
        }
        let written = written.map_err(ControllerError::of("write the status of", name))?;
        self.sets.learn(&written);
        Ok(())
    }
}
