//! StatefulSets: Pods with names and claims of their own.
//!
//! The strategy `Recreate` (off by default upstream) is not done.

mod identity;
pub mod plan;
#[cfg(test)]
mod plan_tests;
mod retention;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use trine_objects::selector::label::LabelSelector;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use trine_typed::kube::api::{Patch, PatchParams, PostParams};
use trine_typed::kube::{self, Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror, Subscription, controller_of};
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx};
use crate::workload::claim::Claimer;
use crate::workload::pods::{Pods, after_failure, in_ending_namespace, said};
use crate::workload::revisions::{Made, Revisions, beyond_history, history, revision, template_of};
use crate::workload::selecting::{selector, selects};
use crate::workload::wake;
use plan::{Act, Revision, Turn, plan, status};

/// Upstream's name of the controller.
const CONTROLLER: &str = "statefulset-controller";
/// StatefulSets that are worked on at a time. Upstream: 5.
const WORKERS: usize = 8;
/// The label of revisions with their hash.
const HASH: &str = "controller.kubernetes.io/hash";

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let client = cx.client.clone();
    let events = Events::start(client.clone(), CONTROLLER, cx.stop.clone());
    let controller = Controller {
        client: client.clone(),
        events: events.clone(),
        sets: cx.shared(),
        claims: cx.shared(),
        pods: Pods { client: client.clone(), events, mirror: cx.shared() },
        revisions: Revisions { client, mirror: cx.shared() },
    };
    tokio::join!(
        controller.sets.ready(),
        controller.claims.ready(),
        controller.pods.mirror.ready(),
        controller.revisions.mirror.ready()
    );
    let controller = Arc::new(controller);
    let queue = Arc::new(WorkQueue::default());
    let _woken = [
        wake::by_themselves(&controller.sets, &queue),
        wake::by_what_they_own(&controller.pods.mirror, &controller.sets, &queue, selected),
        wake::by_what_they_own(&controller.revisions.mirror, &controller.sets, &queue, selected),
        controller.wake_by_lost_claims(&queue),
    ];
    let reconcile = |key: Key| {
        let controller = Arc::clone(&controller);
        async move {
            controller.reconcile(&key).await.unwrap_or_else(|error| after_failure("stateful-set", &error))
        }
    };
    queue.work(WORKERS, &cx.stop, reconcile).await;
}

fn selected(set: &StatefulSet) -> Option<LabelSelector> {
    selector(&set.spec.selector)
}

struct Controller {
    client: Client,
    events: Events,
    sets: Mirror<StatefulSet>,
    claims: Mirror<PersistentVolumeClaim>,
    pods: Pods,
    revisions: Revisions,
}

impl Controller {
    /// A claim that is gone may be one that a Pod waits for, or waits to be rid of.
    fn wake_by_lost_claims(&self, queue: &Arc<WorkQueue<Key>>) -> Subscription {
        let (sets, queue) = (self.sets.clone(), Arc::clone(queue));
        self.claims.subscribe(move |old, new| {
            let Some(gone) = old.filter(|_| new.is_none()) else { return };
            for set in sets.in_namespace(&gone.namespace().unwrap_or_default()) {
                if identity::is_claim_of(&set, &gone.name_any()) {
                    queue.add(Key::of(&set.metadata));
                }
            }
        })
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(set) = self.sets.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let Some(selector) = selected(&set) else { return Ok(Next::Wait) };
        let found = self.revisions.of(&*set, &selector).await?;
        let Some((current, update, olds)) = self.history(&set, found).await? else { return Ok(Next::Retry) };
        let pods = self.claim(&set, &selector).await?;
        let claims = self.claims_of(&set);
        let now = trine_clock::now();
        let turn = Turn { set: &set, current: &current, update: &update, pods: &pods, claims: &claims, now };
        let plan = plan(&turn);
        let mut failure = None;
        for act in &plan.acts {
            // What fails holds up what comes after it, as a Pod without its claims.
            if let Err(error) = self.act(&set, act).await {
                failure = Some(error);
                break;
            }
        }
        // What was made and removed just now is known already.
        let mut pods = self.pods.mirror.controlled_by(&set.uid().unwrap_or_default());
        pods.retain(|pod| selects(&selector, &pod.metadata));
        let turn = Turn { pods: &pods, now: trine_clock::now(), ..turn };
        let collisions = set.status.as_ref().and_then(|s| s.collision_count).unwrap_or_default();
        self.tell(&set, status(&turn, collisions)).await?;
        if let Some(error) = failure {
            return error.map_or(Ok(Next::Retry), Err);
        }
        let is_live = |old: &ControllerRevision| {
            let name = old.name_any();
            name == current.name || pods.iter().any(|pod| identity::revision(pod) == Some(name.as_str()))
        };
        self.revisions.delete(&beyond_history(&olds, set.spec.revision_history_limit, is_live)).await?;
        Ok(plan.again.map_or(Next::Wait, Next::After))
    }

    /// The revision before the last change, the present one, and the old ones; none if another name has to be found.
    async fn history(
        &self,
        set: &StatefulSet,
        found: Vec<Arc<ControllerRevision>>,
    ) -> Result<Option<(Revision, Revision, Vec<Arc<ControllerRevision>>)>, ControllerError> {
        let found = history(found, &set.spec.template);
        let update = match found.current {
            Some(update) if update.revision == Some(found.number) => update,
            Some(update) => self.revisions.number(&update, found.number).await?,
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
        let update = Revision { name: update.name_any(), template: set.spec.template.clone() };
        let before = set.status.as_ref().and_then(|s| s.current_revision.as_deref());
        let current = found.olds.iter().find(|old| Some(old.name_any().as_str()) == before);
        let current =
            current.and_then(|old| Some(Revision { name: old.name_any(), template: template_of(old)? }));
        Ok(Some((current.unwrap_or_else(|| update.clone()), update, found.olds)))
    }

    async fn claim(
        &self,
        set: &StatefulSet,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Pod>>, ControllerError> {
        let claimer = Claimer { client: &self.client, owner: set, selector, finalizers: &[] };
        let mut pods = claimer.candidates(&self.pods.mirror).await?;
        // What is nobody's and has no number is none of its Pods.
        pods.retain(|pod| controller_of(&pod.metadata).is_some() || identity::ordinal(set, pod).is_some());
        claimer.claim(&self.pods.mirror, pods).await
    }

    /// The claims that may be the set's, by name.
    fn claims_of(&self, set: &StatefulSet) -> BTreeMap<String, Arc<PersistentVolumeClaim>> {
        if set.spec.volume_claim_templates.as_ref().is_none_or(Vec::is_empty) {
            return BTreeMap::new();
        }
        let all = self.claims.in_namespace(&set.namespace().unwrap_or_default());
        let named = all.into_iter().map(|claim| (claim.name_any(), claim));
        named.filter(|(name, _)| identity::is_claim_of(set, name)).collect()
    }

    /// Does one thing; an error without a cause is one that has been told.
    async fn act(&self, set: &StatefulSet, act: &Act) -> Result<(), Option<ControllerError>> {
        match act {
            Act::CreateClaim(claim, pod) => self.create_claim(set, claim, pod).await.map_err(Some),
            Act::Own(claim, owners) => {
                let owned = PersistentVolumeClaim {
                    metadata: trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                        owner_references: Some(owners.clone()).filter(|owners| !owners.is_empty()),
                        ..claim.metadata.clone()
                    },
                    ..(**claim).clone()
                };
                let done =
                    self.claims_api(set).replace(&claim.name_any(), &PostParams::default(), &owned).await;
                let owned = done.map_err(ControllerError::of("own claim", claim.name_any())).map_err(Some)?;
                self.claims.learn(&owned);
                Ok(())
            }
            Act::Create(pod) => {
                let done = self.pods.make(pod).await;
                self.tell_act(set, "Create", &pod.name_any(), done.as_ref().err());
                done.map(drop).map_err(ControllerError::of("create Pod", pod.name_any())).map_err(Some)
            }
            Act::Delete(pod) => {
                let done = self.pods.remove(pod).await;
                self.tell_act(set, "Delete", &pod.name_any(), done.as_ref().err());
                done.map_err(ControllerError::of("delete Pod", pod.name_any())).map_err(Some)
            }
            Act::Label(pod) => {
                let name = pod.name_any();
                let api: Api<Pod> =
                    Api::namespaced(self.client.clone(), &set.namespace().unwrap_or_default());
                let labels = json!({"metadata": {"uid": pod.uid(), "labels": {identity::NAME: name}}});
                let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&labels)).await;
                let labelled = done.map_err(ControllerError::of("label Pod", name)).map_err(Some)?;
                self.pods.mirror.learn(&labelled);
                Ok(())
            }
            Act::Fail(pod, why) => {
                let note = format!("Create Pod {pod} in StatefulSet {} failed error: {why}", set.name_any());
                self.events.post(set, Level::Warning, "FailedCreate", "CreatePod", note);
                Err(None)
            }
        }
    }

    fn claims_api(&self, set: &StatefulSet) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &set.namespace().unwrap_or_default())
    }

    async fn create_claim(
        &self,
        set: &StatefulSet,
        claim: &PersistentVolumeClaim,
        pod: &str,
    ) -> Result<(), ControllerError> {
        let name = claim.name_any();
        let what = format!("Create Claim {name}");
        match self.claims_api(set).create(&PostParams::default(), claim).await {
            Ok(made) => {
                self.claims.learn(&made);
                let note = format!("{what} Pod {pod} in StatefulSet {} success", set.name_any());
                self.events.post(set, Level::Normal, "SuccessfulCreate", "CreateClaim", note);
                Ok(())
            }
            // Somebody else made it meanwhile.
            Err(kube::Error::Api(refused)) if refused.reason == "AlreadyExists" => Ok(()),
            Err(error) => {
                let why = said(&error);
                let note =
                    format!("{what} for Pod {pod} in StatefulSet {} failed error: {why}", set.name_any());
                self.events.post(set, Level::Warning, "FailedCreate", "CreateClaim", note);
                Err(ControllerError::of("create claim", name)(error))
            }
        }
    }

    fn tell_act(&self, set: &StatefulSet, verb: &'static str, pod: &str, error: Option<&kube::Error>) {
        let what = format!("{verb} Pod {pod} in StatefulSet {}", set.name_any());
        match error {
            None => {
                let reason = format!("Successful{verb}");
                self.events.post(set, Level::Normal, &reason, "ManagePod", format!("{what} successful"));
            }
            Some(error) if !in_ending_namespace(error) => {
                let note = format!("{what} failed error: {}", said(error));
                self.events.post(set, Level::Warning, &format!("Failed{verb}"), "ManagePod", note);
            }
            Some(_) => {}
        }
    }

    /// Writes a status that is news.
    async fn tell(&self, set: &StatefulSet, status: StatefulSetStatus) -> Result<(), ControllerError> {
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let (name, namespace) = (set.name_any(), set.namespace().unwrap_or_default());
        let api: Api<StatefulSet> = Api::namespaced(self.client.clone(), &namespace);
        let told = StatefulSet { status: Some(status), ..set.clone() };
        let done = api.replace_status(&name, &PostParams::default(), &told).await;
        let written = done.map_err(ControllerError::of("write the status of StatefulSet", name))?;
        self.sets.learn(&written);
        Ok(())
    }
}
