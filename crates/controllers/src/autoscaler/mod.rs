//! HorizontalPodAutoscalers: as many Pods as what is measured asks for.

mod judge;
mod limits;
mod metrics;
mod replicas;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trine_objects::selector::label::LabelSelector;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::autoscaling::v1::Scale;
use trine_typed::k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus,
};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{DynamicObject, PostParams};
use trine_typed::kube::core::GroupVersionKind;
use trine_typed::kube::{self, Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror};
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx, log};
use crate::workload::pods::said;
use crate::workload::selecting::selects;
use crate::workload::wake;
use judge::{Judge, Judged};
use limits::{History, limit};
use metrics::Metrics;

/// Upstream's name of the controller.
const CONTROLLER: &str = "horizontal-pod-autoscaler";
/// How often each is looked at. Upstream: 15 s.
const PERIOD: Duration = Duration::from_secs(15);
/// How many are looked at at a time. Upstream: 5.
const WORKERS: usize = 5;

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let controller = Arc::new(Controller {
        client: cx.client.clone(),
        events: Events::start(cx.client.clone(), CONTROLLER, cx.stop.clone()),
        autoscalers: cx.shared(),
        pods: cx.shared(),
        metrics: Metrics { client: cx.client.clone() },
        histories: Mutex::default(),
    });
    tokio::join!(controller.autoscalers.ready(), controller.pods.ready());
    let queue = Arc::new(WorkQueue::default());
    let _woken = wake::by_new_generations(&controller.autoscalers, &queue);
    let reconcile = |key: Key| {
        let controller = Arc::clone(&controller);
        async move {
            controller.reconcile(&key).await.unwrap_or_else(|error| {
                log("autoscaler", &error);
                Next::After(PERIOD)
            })
        }
    };
    queue.work(WORKERS, &cx.stop, reconcile).await;
}

struct Controller {
    client: Client,
    events: Events,
    autoscalers: Mirror<HorizontalPodAutoscaler>,
    pods: Mirror<Pod>,
    metrics: Metrics,
    /// What each (by UID) has recommended and done. It begins anew with the process, as upstream's does.
    histories: Mutex<HashMap<String, History>>,
}

/// What an autoscaler is found to be, while it is looked at.
struct Look {
    status: HorizontalPodAutoscalerStatus,
    now: Timestamp,
}

impl Look {
    /// Sets a condition; its time is that of the last change of its status.
    fn say(&mut self, kind: &str, is: bool, reason: &str, message: impl Into<String>) {
        let conditions = self.status.conditions.get_or_insert_default();
        let status = if is { "True" } else { "False" };
        let since = conditions.iter().find(|c| c.type_ == kind && c.status == status);
        let fresh = HorizontalPodAutoscalerCondition {
            last_transition_time: since.map_or(Some(Time(self.now)), |c| c.last_transition_time.clone()),
            message: Some(message.into()),
            observed_generation: None,
            reason: Some(reason.to_owned()),
            status: status.to_owned(),
            type_: kind.to_owned(),
        };
        match conditions.iter_mut().find(|c| c.type_ == kind) {
            Some(old) => *old = fresh,
            None => conditions.push(fresh),
        }
    }
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(autoscaler) = self.autoscalers.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let now = trine_clock::now();
        let mut look = Look { status: autoscaler.status.clone().unwrap_or_default(), now };
        look.status.observed_generation = autoscaler.metadata.generation;
        match self.target(&autoscaler).await {
            Ok((target, scale)) => self.follow(&autoscaler, &mut look, &target, scale).await,
            Err(why) => {
                self.events.post(&*autoscaler, Level::Warning, "FailedGetScale", "GetScale", why.clone());
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {why}");
                look.say("AbleToScale", false, "FailedGetScale", message);
            }
        }
        self.tell(&autoscaler, look.status).await?;
        Ok(Next::After(PERIOD))
    }

    /// The target, and its scale.
    async fn target(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
    ) -> Result<(Api<DynamicObject>, Scale), String> {
        let target = &autoscaler.spec.scale_target_ref;
        let version = target.api_version.as_deref().unwrap_or("v1");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, &target.kind);
        let found = kube::discovery::pinned_kind(&self.client, &kind).await;
        let (resource, _) = found.map_err(|error| said(&error))?;
        let namespace = autoscaler.namespace().unwrap_or_default();
        let api = Api::namespaced_with(self.client.clone(), &namespace, &resource);
        let scale = api.get_scale(&target.name).await.map_err(|error| said(&error))?;
        Ok((api, scale))
    }

    /// Sees what the metrics ask for, and follows it within the limits.
    async fn follow(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        look: &mut Look,
        target: &Api<DynamicObject>,
        scale: Scale,
    ) {
        let spec = &autoscaler.spec;
        let current = scale.spec.as_ref().and_then(|s| s.replicas).unwrap_or_default();
        let least = spec.min_replicas.unwrap_or(1);
        look.say(
            "AbleToScale",
            true,
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        );
        look.status.current_replicas = Some(current);
        let uid = autoscaler.uid().unwrap_or_default();
        self.history(&uid, |history| history.begin(current, look.now));
        let (desired, reason) = if current == 0 {
            look.say(
                "ScalingActive",
                false,
                "ScalingDisabled",
                "scaling is disabled since the replica count of the target is zero",
            );
            (0, String::new())
        } else if current > spec.max_replicas {
            (spec.max_replicas, "Current number of replicas above Spec.MaxReplicas".to_owned())
        } else if current < least {
            (least, "Current number of replicas below Spec.MinReplicas".to_owned())
        } else {
            match self.ask(autoscaler, look, &scale, current).await {
                Some(asked) => asked,
                None => return,
            }
        };
        look.status.desired_replicas = desired;
        if desired != current {
            self.rescale(autoscaler, look, target, scale, (current, desired), &reason).await;
        }
    }

    fn history<T>(&self, uid: &str, with: impl FnOnce(&mut History) -> T) -> T {
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of autoscalers that are gone are forgotten.
        if histories.len() > 2 * self.autoscalers.all().len() + 8 {
            let known: Vec<Option<String>> = self.autoscalers.all().iter().map(|a| a.uid()).collect();
            histories.retain(|uid, _| known.iter().any(|k| k.as_ref() == Some(uid)));
        }
        with(histories.entry(uid.to_owned()).or_default())
    }

    /// What the metrics ask for, limited, and why; none if that cannot be said.
    async fn ask(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        look: &mut Look,
        scale: &Scale,
        current: i32,
    ) -> Option<(i32, String)> {
        let selector = scale.status.as_ref().and_then(|s| s.selector.clone()).unwrap_or_default();
        let Some(parsed) = LabelSelector::parse(&selector).ok().filter(|s| !s.is_empty()) else {
            self.events.post(
                autoscaler,
                Level::Warning,
                "SelectorRequired",
                "GetMetrics",
                "selector is required",
            );
            look.say(
                "ScalingActive",
                false,
                "InvalidSelector",
                "the HPA target's scale is missing a selector",
            );
            return None;
        };
        let mut pods = self.pods.in_namespace(&autoscaler.namespace().unwrap_or_default());
        pods.retain(|pod| selects(&parsed, &pod.metadata));
        let actual = scale.status.as_ref().map_or(0, |s| s.replicas);
        let judge = Judge {
            client: &self.client,
            metrics: &self.metrics,
            autoscaler,
            selector: &selector,
            pods: &pods,
            current,
            actual,
            now: look.now,
        };
        let Judged { asked, failures, statuses } = judge.all().await;
        look.status.current_metrics = Some(statuses).filter(|s: &Vec<MetricStatus>| !s.is_empty());
        for failure in &failures {
            self.events.post(autoscaler, Level::Warning, failure.reason, "GetMetrics", failure.why.clone());
        }
        let down = asked.as_ref().is_some_and(|(replicas, _)| *replicas < current);
        if let Some(first) = failures.first()
            && (asked.is_none() || down)
        {
            // What cannot be measured must not take Pods away.
            let message = format!("the HPA was unable to compute the replica count: {}", first.why);
            look.say("ScalingActive", false, first.reason, message);
            let total = autoscaler.spec.metrics.as_ref().map_or(0, Vec::len);
            let note = format!(
                "invalid metrics ({} invalid out of {total}), first error is: {}",
                failures.len(),
                first.why
            );
            self.events.post(autoscaler, Level::Warning, "FailedComputeMetricsReplicas", "GetMetrics", note);
            return None;
        }
        let (desired, metric) = asked?;
        let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
        look.say("ScalingActive", true, "ValidMetricFound", message);
        let reason = match desired.cmp(&current) {
            std::cmp::Ordering::Greater => format!("{metric} above target"),
            _ => "All metrics below target".to_owned(),
        };
        let uid = autoscaler.uid().unwrap_or_default();
        let limited = self.history(&uid, |history| limit(autoscaler, history, current, desired, look.now));
        look.say("AbleToScale", true, limited.able.0, limited.able.1);
        look.say("ScalingLimited", limited.limited.0, limited.limited.1, limited.limited.2);
        Some((limited.replicas, reason))
    }

    async fn rescale(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        look: &mut Look,
        target: &Api<DynamicObject>,
        mut scale: Scale,
        (current, desired): (i32, i32),
        reason: &str,
    ) {
        scale.spec.get_or_insert_default().replicas = Some(desired);
        let name = &autoscaler.spec.scale_target_ref.name;
        let done = target.replace_scale(name, &PostParams::default(), &scale).await;
        match done {
            Ok(_) => {
                let message = format!("the HPA controller was able to update the target scale to {desired}");
                look.say("AbleToScale", true, "SucceededRescale", message);
                look.status.last_scale_time = Some(Time(look.now));
                let note = format!("New size: {desired}; reason: {reason}");
                self.events.post(autoscaler, Level::Normal, "SuccessfulRescale", "Rescale", note);
                let uid = autoscaler.uid().unwrap_or_default();
                self.history(&uid, |history| history.change(desired - current, look.now));
            }
            Err(error) => {
                let why = said(&error);
                let note = format!("New size: {desired}; reason: {reason}; error: {why}");
                self.events.post(autoscaler, Level::Warning, "FailedRescale", "Rescale", note);
                let message = format!("the HPA controller was unable to update the target scale: {why}");
                look.say("AbleToScale", false, "FailedUpdateScale", message);
                look.status.desired_replicas = autoscaler.status.as_ref().map_or(0, |s| s.desired_replicas);
            }
        }
    }

    /// Writes a status that is news.
    async fn tell(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        status: HorizontalPodAutoscalerStatus,
    ) -> Result<(), ControllerError> {
        if autoscaler.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let (name, namespace) = (autoscaler.name_any(), autoscaler.namespace().unwrap_or_default());
        let api: Api<HorizontalPodAutoscaler> = Api::namespaced(self.client.clone(), &namespace);
        let told = HorizontalPodAutoscaler { status: Some(status), ..autoscaler.clone() };
        let done = api.replace_status(&name, &PostParams::default(), &told).await;
        let written =
            done.map_err(ControllerError::of("write the status of HorizontalPodAutoscaler", name))?;
        self.autoscalers.learn(&written);
        Ok(())
    }
}
