//! PodDisruptionBudgets: how many of their Pods may be evicted just now. The API server counts down what it allows; here it is
//! counted again from the Pods.

pub mod plan;
mod scale;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use trine_objects::selector::label::LabelSelector;
use trine_objects::time;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use trine_typed::kube::api::{Patch, PatchParams, PostParams};
use trine_typed::kube::{self, Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror, Subscription};
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx, retried};
use crate::workload::selecting::{selector, selects};
use crate::workload::wake;
use plan::{Wanted, asks_controllers, failed, stale_in, tell, wanted};
use scale::Scales;

/// Upstream's name of the controller.
const CONTROLLER: &str = "controllermanager";
/// Budgets that are worked on at a time.
const WORKERS: usize = 4;
/// When numbers that are not known are asked for again.
const UNKNOWN: Duration = Duration::from_secs(30);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let controller = Arc::new(Controller {
        client: cx.client.clone(),
        events: Events::start(cx.client.clone(), CONTROLLER, cx.stop.clone()),
        budgets: cx.shared(),
        pods: cx.shared(),
        scales: Scales::new(&cx),
    });
    tokio::join!(controller.budgets.ready(), controller.pods.ready(), controller.scales.ready());
    let (queue, pods) = (Arc::new(WorkQueue::default()), Arc::new(WorkQueue::default()));
    let _woken = [
        wake::by_themselves(&controller.budgets, &queue),
        controller.wake_by_pods(&queue),
        controller.wake_stale_pods(&pods),
    ];
    let reconcile = |key: Key| {
        let controller = Arc::clone(&controller);
        async move { told(controller.reconcile(&key).await) }
    };
    let refresh = |key: Key| {
        let controller = Arc::clone(&controller);
        async move { told(controller.refresh(&key).await) }
    };
    tokio::join!(queue.work(WORKERS, &cx.stop, reconcile), pods.work(1, &cx.stop, refresh));
}

fn told(done: Result<Next, ControllerError>) -> Next {
    done.unwrap_or_else(|error| retried("disruption", &error))
}

/// What a budget selects: nothing without a selector, everything by an empty one.
fn selected(budget: &PodDisruptionBudget) -> Option<LabelSelector> {
    let spec = budget.spec.as_ref()?.selector.as_ref()?;
    let empty = spec.match_labels.as_ref().is_none_or(|l| l.is_empty())
        && spec.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if empty { Some(LabelSelector::default()) } else { selector(spec) }
}

struct Controller {
    client: Client,
    events: Events,
    budgets: Mirror<PodDisruptionBudget>,
    pods: Mirror<Pod>,
    scales: Scales,
}

impl Controller {
    /// A Pod that changes concerns the budgets that select it, or did.
    fn wake_by_pods(&self, queue: &Arc<WorkQueue<Key>>) -> Subscription {
        let (budgets, queue) = (self.budgets.clone(), Arc::clone(queue));
        self.pods.subscribe(move |old, new| {
            let Some(pod) = new.or(old) else { return };
            for budget in budgets.in_namespace(&pod.namespace().unwrap_or_default()) {
                let Some(selector) = selected(&budget) else { continue };
                if [old, new].into_iter().flatten().any(|pod| selects(&selector, &pod.metadata)) {
                    queue.add(Key::of(&budget.metadata));
                }
            }
        })
    }

    fn wake_stale_pods(&self, queue: &Arc<WorkQueue<Key>>) -> Subscription {
        let queue = Arc::clone(queue);
        self.pods.subscribe(move |_, new| {
            if let Some(pod) = new
                && let Some(wait) = stale_in(pod, trine_clock::now())
            {
                queue.add_after(Key::of(&pod.metadata), wait);
            }
        })
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(budget) = self.budgets.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let selector = selected(&budget);
        let mut pods = self.pods.in_namespace(&key.namespace);
        pods.retain(|pod| selector.as_ref().is_some_and(|selector| selects(selector, &pod.metadata)));
        if pods.is_empty() {
            self.events.post(&*budget, Level::Normal, "NoPods", "Count", "No matching pods found");
        }
        let now = trine_clock::now();
        let wanted = match self.wanted(&budget, &pods).await {
            Ok(wanted) => wanted,
            Err(why) => {
                let note = format!("Failed to calculate the number of expected pods: {why}");
                self.events.post(&*budget, Level::Warning, "CalculateExpectedPodCountFailed", "Count", note);
                self.write(&budget, failed(&budget, &why, now)).await?;
                return Ok(Next::After(UNKNOWN));
            }
        };
        let told = tell(&budget, &pods, wanted, now);
        for pod in &told.stayed {
            let note = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
            self.events.post(&**pod, Level::Warning, "NotDeleted", "Count", note);
        }
        self.write(&budget, told.status).await?;
        Ok(told.again.map_or(Next::Wait, Next::After))
    }

    async fn wanted(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<Wanted, String> {
        let Some(spec) = &budget.spec else { return Ok(Wanted { expected: 0, healthy: 0 }) };
        if !asks_controllers(spec) {
            return Ok(wanted(spec, pods.len(), 0));
        }
        let sum = self.scales.sum(pods).await?;
        if sum.unmanaged {
            let note = "Pods selected by this PodDisruptionBudget were found to be unmanaged. As a result, the status of the PDB \
                        cannot be calculated correctly, which may result in undefined behavior. To account for these pods please \
                        set \".spec.minAvailable\" field of the PDB to an integer value.";
            self.events.post(budget, Level::Warning, "UnmanagedPods", "Count", note);
        }
        Ok(wanted(spec, pods.len(), sum.wanted))
    }

    /// Writes a status that is news, if nobody has counted down meanwhile.
    async fn write(
        &self,
        budget: &PodDisruptionBudget,
        status: PodDisruptionBudgetStatus,
    ) -> Result<(), ControllerError> {
        if budget.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let (name, namespace) = (budget.name_any(), budget.namespace().unwrap_or_default());
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &namespace);
        let told = PodDisruptionBudget { status: Some(status), ..budget.clone() };
        let done = api.replace_status(&name, &PostParams::default(), &told).await;
        let written = done.map_err(ControllerError::of("write the status of PodDisruptionBudget", name))?;
        self.budgets.learn(&written);
        Ok(())
    }

    /// Takes back that a Pod is about to be disrupted, if nobody has deleted it in time.
    async fn refresh(&self, key: &Key) -> Result<Next, ControllerError> {
        let pod = self.pods.get(&key.namespace, &key.name);
        let Some(pod) = pod else { return Ok(Next::Wait) };
        match stale_in(&pod, trine_clock::now()) {
            None => return Ok(Next::Wait),
            Some(wait) if !wait.is_zero() => return Ok(Next::After(wait)),
            Some(_) => {}
        }
        let now = time::format(trine_clock::now().as_second());
        let condition = json!({"type": "DisruptionTarget", "status": "False", "reason": null, "message": null,
            "lastTransitionTime": now, "observedGeneration": pod.metadata.generation});
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}});
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(refreshed) => self.pods.learn(&refreshed),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(ControllerError::of("refresh Pod", key.to_string())(error)),
        }
        Ok(Next::Wait)
    }
}
