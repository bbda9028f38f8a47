//! Deployments: from one template to the next by ReplicaSets, step by step or all at once.
//!
//! What `deprecated.deployment.rollback.to` asked for in extensions/v1beta1 is not done: kubectl rolls back by writing the template.

mod annotations;
mod limits;
pub mod plan;
#[cfg(test)]
mod plan_tests;
mod proportion;
mod rollout;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use trine_objects::selector::label::LabelSelector;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use trine_typed::kube::{self, Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror, Subscription, controller_of};
use trine_typed::pods::is_finished;
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx, log};
use crate::workload::claim::Claimer;
use crate::workload::pods::{after_failure, in_ending_namespace, said};
use crate::workload::selecting::selector;
use crate::workload::{doubt, template, wake};
use plan::{Change, plan};

/// Upstream's name of the controller.
const CONTROLLER: &str = "deployment-controller";
/// Deployments that are worked on at a time. Upstream: 5.
const WORKERS: usize = 8;

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let controller = Controller {
        client: cx.client.clone(),
        events: Events::start(cx.client.clone(), CONTROLLER, cx.stop.clone()),
        deployments: cx.shared(),
        sets: cx.shared(),
        pods: cx.shared(),
    };
    tokio::join!(controller.deployments.ready(), controller.sets.ready(), controller.pods.ready());
    let controller = Arc::new(controller);
    let queue = Arc::new(WorkQueue::default());
    let _woken = [
        wake::by_themselves(&controller.deployments, &queue),
        wake::by_what_they_own(&controller.sets, &controller.deployments, &queue, selected),
        controller.wake_by_ended_pods(&queue),
    ];
    let reconcile = |key: Key| {
        let controller = Arc::clone(&controller);
        async move { controller.reconcile(&key).await.unwrap_or_else(|error| after_failure("deployment", &error)) }
    };
    queue.work(WORKERS, &cx.stop, reconcile).await;
}

fn selected(deployment: &Deployment) -> Option<LabelSelector> {
    selector(&deployment.spec.selector)
}

struct Controller {
    client: Client,
    events: Events,
    deployments: Mirror<Deployment>,
    sets: Mirror<ReplicaSet>,
    pods: Mirror<Pod>,
}

impl Controller {
    /// What replaces all Pods at once goes on when the last old one has ended.
    fn wake_by_ended_pods(&self, queue: &Arc<WorkQueue<Key>>) -> Subscription {
        let (sets, deployments, queue) = (self.sets.clone(), self.deployments.clone(), Arc::clone(queue));
        self.pods.subscribe(move |old, new| {
            let Some(old) = old.filter(|_| new.is_none_or(|pod| is_finished(pod))) else { return };
            let set = controller_of(&old.metadata).and_then(|o| wake::resolve(&sets, &old.metadata, o));
            let deployment = set.and_then(|set| {
                let owner = controller_of(&set.metadata)?;
                wake::resolve(&deployments, &set.metadata, owner)
            });
            if let Some(deployment) = deployment.filter(|d| !limits::is_rolling(d)) {
                queue.add(Key::of(&deployment.metadata));
            }
        })
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(deployment) = self.deployments.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let Some(selector) = selected(&deployment) else { return Ok(Next::Wait) };
        let claimer =
            Claimer { client: &self.client, owner: &*deployment, selector: &selector, finalizers: &[] };
        let sets = claimer.claim(&self.sets, claimer.candidates(&self.sets).await?).await?;
        let running = if limits::is_rolling(&deployment) { BTreeMap::new() } else { self.running(&sets) };
        let sets = sets.into_iter().map(Arc::unwrap_or_clone).collect();
        let plan = plan(&deployment, sets, &running, trine_clock::now());
        if let Some(set) = &plan.create
            && !self.create(&deployment, set).await?
        {
            return Ok(Next::Retry);
        }
        for change in &plan.change {
            self.change(&deployment, change).await?;
        }
        for name in &plan.delete {
            self.delete(&key.namespace, name).await?;
        }
        if let Some(deployment) = &plan.tell {
            self.tell(deployment).await?;
        }
        Ok(plan.again.map_or(Next::Wait, Next::After))
    }

    /// How many Pods of each ReplicaSet have not ended.
    fn running(&self, sets: &[Arc<ReplicaSet>]) -> BTreeMap<String, usize> {
        let count = |set: &Arc<ReplicaSet>| {
            let uid = set.uid().unwrap_or_default();
            let pods = self.pods.controlled_by(&uid);
            (uid, pods.iter().filter(|pod| !is_finished(pod)).count())
        };
        sets.iter().map(count).collect()
    }

    /// What is known of the ReplicaSets may not be true any more.
    fn doubt(&self, deployment: &Deployment, error: &kube::Error) {
        doubt::note(&self.sets, &deployment.uid().unwrap_or_default(), error);
    }

    fn sets_of(&self, deployment: &Deployment) -> Api<ReplicaSet> {
        Api::namespaced(self.client.clone(), &deployment.namespace().unwrap_or_default())
    }

    /// Makes a ReplicaSet; false if another name has to be found, or this one is there already.
    async fn create(&self, deployment: &Deployment, set: &ReplicaSet) -> Result<bool, ControllerError> {
        let name = set.name_any();
        match self.sets_of(deployment).create(&PostParams::default(), set).await {
            Ok(made) => {
                self.sets.learn(&made);
                self.tell_size(deployment, &name, (0, status::size(set)));
                Ok(true)
            }
            Err(kube::Error::Api(refused)) if refused.reason == "AlreadyExists" => {
                self.resolve_collision(deployment, &name).await.map(|()| false)
            }
            Err(error) => {
                self.doubt(deployment, &error);
                if !in_ending_namespace(&error) {
                    self.tell_refusal(deployment, &name, &error).await;
                }
                Err(ControllerError::of("create ReplicaSet", name)(error))
            }
        }
    }

    /// A ReplicaSet of that name is there: ours, which the copy did not have yet, or one that is called the same by chance.
    async fn resolve_collision(&self, deployment: &Deployment, name: &str) -> Result<(), ControllerError> {
        let found = self.sets_of(deployment).get_opt(name).await;
        let Some(found) = found.map_err(ControllerError::of("get ReplicaSet", name))? else { return Ok(()) };
        let ours = controller_of(&found.metadata).map(|o| o.uid.clone()) == deployment.uid();
        let same = |set: &ReplicaSet| {
            let template = set.spec.template.as_ref();
            template.is_some_and(|t| template::same(t, &deployment.spec.template))
        };
        if ours && same(&found) {
            self.sets.learn(&found);
            return Ok(());
        }
        let mut deployment = deployment.clone();
        let count = deployment.status.get_or_insert_default().collision_count.get_or_insert_default();
        *count += 1;
        self.tell(&deployment).await
    }

    async fn tell_refusal(&self, deployment: &Deployment, name: &str, error: &kube::Error) {
        let message = format!("Failed to create new replica set \"{name}\": {}", said(error));
        if status::deadline(deployment).is_some() {
            let mut told = deployment.clone();
            let now = trine_clock::now();
            let refused = "ReplicaSetCreateError";
            let fresh = status::condition(status::PROGRESSING, "False", refused, message.clone(), now);
            status::set(told.status.get_or_insert_default(), fresh);
            if told.status != deployment.status
                && let Err(error) = self.tell(&told).await
            {
                log("deployment", &error);
            }
        }
        self.events.post(deployment, Level::Warning, "ReplicaSetCreateError", "CreateReplicaSet", message);
    }

    async fn change(&self, deployment: &Deployment, change: &Change) -> Result<(), ControllerError> {
        let mut patch = json!({"metadata": {"resourceVersion": change.resource_version}});
        if !change.annotations.is_empty() {
            patch["metadata"]["annotations"] = json!(change.annotations);
        }
        if let Some((_, replicas)) = change.replicas {
            patch["spec"]["replicas"] = replicas.into();
        }
        if let Some(seconds) = change.min_ready_seconds {
            patch["spec"]["minReadySeconds"] = seconds.into();
        }
        let api = self.sets_of(deployment);
        let done = api.patch(&change.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        let set = done.inspect_err(|error| self.doubt(deployment, error));
        let set = set.map_err(ControllerError::of("change ReplicaSet", change.name.clone()))?;
        self.sets.learn(&set);
        if let Some(replicas) = change.replicas {
            self.tell_size(deployment, &change.name, replicas);
        }
        Ok(())
    }

    fn tell_size(&self, deployment: &Deployment, name: &str, (from, to): (i32, i32)) {
        if from != to {
            let way = if from < to { "up" } else { "down" };
            let note = format!("Scaled {way} replica set {name} from {from} to {to}");
            self.events.post(deployment, Level::Normal, "ScalingReplicaSet", "ScaleReplicaSet", note);
        }
    }

    async fn delete(&self, namespace: &str, name: &str) -> Result<(), ControllerError> {
        let Some(set) = self.sets.get(namespace, name) else { return Ok(()) };
        let uid = set.uid().unwrap_or_default();
        let same = Preconditions { uid: Some(uid.clone()), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..Default::default() };
        let api: Api<ReplicaSet> = Api::namespaced(self.client.clone(), namespace);
        match api.delete(name, &params).await {
            Ok(answer) => {
                match answer.left().filter(|set| set.metadata.deletion_timestamp.is_some()) {
                    Some(going) => self.sets.learn(&going),
                    None => self.sets.forget(&Key::of(&set.metadata), &uid),
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(error) => Err(ControllerError::of("delete ReplicaSet", name)(error)),
        }
    }

    /// Writes the status, and with it the revision.
    async fn tell(&self, deployment: &Deployment) -> Result<(), ControllerError> {
        let namespace = deployment.namespace().unwrap_or_default();
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &namespace);
        let name = deployment.name_any();
        let done = api.replace_status(&name, &PostParams::default(), deployment).await;
        let written = done.map_err(ControllerError::of("write the status of Deployment", name))?;
        self.deployments.learn(&written);
        Ok(())
    }
}
