//! Jobs: Pods that run to their end.
//!
//! Gang scheduling (`spec.scheduling`, off by default upstream) is not done.

mod backoff;
mod conditions;
mod counting;
mod indexes;
pub mod plan;
#[cfg(test)]
mod plan_tests;
mod policy;
mod template;
mod tracking;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use trine_objects::selector::label::LabelSelector;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::batch::v1::{Job, JobStatus};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::PostParams;
use trine_typed::kube::{Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror};
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx};
use crate::workload::batch::slow_start;
use crate::workload::claim::Claimer;
use crate::workload::pods::{Pods, after_failure};
use crate::workload::readiness::{is_active, is_ready, is_terminating};
use crate::workload::selecting::selector;
use crate::workload::wake;
use backoff::Backoff;
pub use conditions::{end, is_finished};
use plan::{Assessment, Step, assess, conclude, count, reached};
use template::TRACKED;
use tracking::Why;

/// Upstream's name of the controller.
const CONTROLLER: &str = "job-controller";
/// The name of those Jobs that are this controller's.
const OURS: &str = "kubernetes.io/job-controller";
/// Jobs that are worked on at a time. Upstream: 5.
const WORKERS: usize = 8;
/// Changes of Pods that come together are looked at together. Upstream: 1 s.
const GATHER: Duration = Duration::from_millis(50);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let (jobs, mirror): (Mirror<Job>, Mirror<Pod>) = (cx.shared(), cx.shared());
    tokio::join!(jobs.ready(), mirror.ready());
    let queue = Arc::new(WorkQueue::default());
    let _woken = [
        wake::by_themselves(&jobs, &queue),
        wake::by_what_they_own_after(GATHER, &mirror, &jobs, &queue, selected),
    ];
    let events = Events::start(cx.client.clone(), CONTROLLER, cx.stop.clone());
    let pods = Pods { client: cx.client.clone(), events: events.clone(), mirror: mirror.clone() };
    let client = cx.client.clone();
    let controller = Arc::new(Controller {
        client: client.clone(),
        events,
        jobs: jobs.clone(),
        pods,
        backoffs: Mutex::default(),
    });
    let reconcile = |key: Key| {
        let controller = Arc::clone(&controller);
        async move { controller.reconcile(&key).await.unwrap_or_else(|error| after_failure("job", &error)) }
    };
    tokio::join!(queue.work(WORKERS, &cx.stop, reconcile), tracking::run(client, jobs, mirror, &cx.stop));
}

/// Whether a Job is another controller's.
#[must_use]
pub fn is_foreign(job: &Job) -> bool {
    job.spec.as_ref().and_then(|s| s.managed_by.as_deref()).is_some_and(|name| name != OURS)
}

fn selected(job: &Job) -> Option<LabelSelector> {
    selector(job.spec.as_ref()?.selector.as_ref()?)
}

struct Controller {
    client: Client,
    events: Events,
    jobs: Mirror<Job>,
    pods: Pods,
    /// Failures in a row, by the UID of the Job. They begin anew with the process, as upstream's do.
    backoffs: Mutex<HashMap<String, Backoff>>,
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(job) = self.jobs.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let uid = job.uid().unwrap_or_default();
        if is_foreign(&job) || is_finished(&job) {
            self.backoffs.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
            return Ok(Next::Wait);
        }
        let Some(selector) = selected(&job) else { return Ok(Next::Wait) };
        let pods = self.claim(&job, &selector).await?;
        let now = trine_clock::now();
        let found = assess(&job, &pods, self.backoff(&uid), now);
        let failure = self.act(&job, &found).await.err();
        self.tell(&job, &found, &pods, failure.is_some(), now).await?;
        if let Some(error) = failure {
            return Err(error);
        }
        let wait = match &found.step {
            Step::Wait(wait) => Some(*wait),
            _ => None,
        };
        let next = wait.into_iter().chain(found.deadline.filter(|left| !left.is_zero())).min();
        Ok(next.map_or(Next::Wait, Next::After))
    }

    fn backoff(&self, uid: &str) -> Backoff {
        let backoffs = self.backoffs.lock().unwrap_or_else(PoisonError::into_inner);
        backoffs.get(uid).copied().unwrap_or_default()
    }

    async fn claim(&self, job: &Job, selector: &LabelSelector) -> Result<Vec<Arc<Pod>>, ControllerError> {
        let claimer = Claimer { client: &self.client, owner: job, selector, finalizers: &[TRACKED] };
        let pods = claimer.candidates(&self.pods.mirror).await?;
        claimer.claim(&self.pods.mirror, pods).await
    }

    /// Makes and removes Pods.
    async fn act(&self, job: &Job, found: &Assessment) -> Result<(), ControllerError> {
        match &found.step {
            Step::Stay | Step::Wait(_) => Ok(()),
            Step::Stop(pods) => first(join_all(pods.iter().map(|pod| self.pods.delete(job, pod))).await),
            Step::Remove(pods) => {
                let remove = pods.iter().map(|pod| async {
                    tracking::release(&self.client, &self.pods.mirror, pod, Why::DoesNotCount).await?;
                    self.pods.delete(job, pod).await
                });
                first(join_all(remove).await)
            }
            Step::Create(indexes) => {
                let make = |i: usize| async move {
                    let replaced = indexes[i].and_then(|index| found.kept.get(&index));
                    self.pods.create(job, &template::pod(job, indexes[i], replaced)).await.map(drop)
                };
                slow_start(indexes.len(), make).await.failure.map_or(Ok(()), Err)
            }
        }
    }

    /// Counts, and says how far the Job is.
    async fn tell(
        &self,
        job: &Job,
        found: &Assessment,
        pods: &[Arc<Pod>],
        failed: bool,
        now: Timestamp,
    ) -> Result<(), ControllerError> {
        let uid = job.uid().unwrap_or_default();
        // What was made and removed just now is known already.
        let current = self.pods.mirror.controlled_by(&uid);
        let mut status = job.status.clone().unwrap_or_default();
        let active = current.iter().filter(|pod| is_active(pod)).count();
        let mut end = found.end.clone().filter(|_| !failed);
        if status.start_time.is_none() && !plan::is_suspended(job) {
            status.start_time = Some(Time(now));
        }
        if found.end.is_none() {
            end = reached(job, found.succeeded, active, now);
            if end.is_none()
                && job.metadata.deletion_timestamp.is_none()
                && let Some(event) = conditions::set_suspended(&mut status, plan::is_suspended(job), now)
            {
                let note = format!("Job {}", event.to_lowercase());
                self.events.post(job, Level::Normal, event, "SuspendJob", note);
            }
        }
        self.set_numbers(&mut status, &current);
        // What was stopped just now may have ended by itself: the answer says so, and it is no failure then.
        let newest = newest(pods, &current);
        let counted = count(job, status, &newest, found, end, now);
        let told = self.write(job, &counted.status).await?;
        self.backoffs.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.clone(), found.backoff);
        let mirror = &self.pods.mirror;
        let released =
            counted.release.iter().map(|pod| tracking::release(&self.client, mirror, pod, Why::Noted));
        let released = first(join_all(released).await);
        let current = self.pods.mirror.controlled_by(&uid);
        let terminating = current.iter().filter(|pod| is_terminating(pod)).count();
        let mut status = counted.status.clone();
        self.set_numbers(&mut status, &current);
        let (status, ended) = conclude(&counted, status, &current, terminating);
        let job = told.as_ref().unwrap_or(job);
        self.write(job, &status).await?;
        if let Some(ended) = ended {
            self.tell_end(job, &status, &ended);
        }
        released
    }

    fn set_numbers(&self, status: &mut JobStatus, pods: &[Arc<Pod>]) {
        let count = |is: &dyn Fn(&Pod) -> bool| i32::try_from(pods.iter().filter(|pod| is(pod)).count()).ok();
        status.active = count(&is_active).filter(|n| *n > 0);
        status.ready = count(&|pod| is_active(pod) && is_ready(pod));
        status.terminating = count(&is_terminating);
    }

    fn tell_end(
        &self,
        job: &Job,
        status: &JobStatus,
        end: &trine_typed::k8s_openapi::api::batch::v1::JobCondition,
    ) {
        if end.type_ == conditions::COMPLETE {
            let wanted = job.spec.as_ref().and_then(|s| s.completions);
            if wanted.is_some_and(|wanted| status.succeeded.unwrap_or_default() > wanted) {
                let note = "Too many succeeded pods running after completion count reached";
                self.events.post(job, Level::Warning, "TooManySucceededPods", "CompleteJob", note);
            }
            self.events.post(job, Level::Normal, "Completed", "CompleteJob", "Job completed");
        } else {
            let reason = end.reason.clone().unwrap_or_default();
            let note = end.message.clone().unwrap_or_default();
            self.events.post(job, Level::Warning, &reason, "FailJob", note);
        }
    }

    /// Writes a status that is news, and returns the Job with it.
    async fn write(&self, job: &Job, status: &JobStatus) -> Result<Option<Job>, ControllerError> {
        let mut status = status.clone();
        status.conditions = status.conditions.filter(|conditions| !conditions.is_empty());
        if job.status.as_ref() == Some(&status) {
            return Ok(None);
        }
        let (name, namespace) = (job.name_any(), job.namespace().unwrap_or_default());
        let api: Api<Job> = Api::namespaced(self.client.clone(), &namespace);
        let told = Job { status: Some(status), ..job.clone() };
        let done = api.replace_status(&name, &PostParams::default(), &told).await;
        let written = done.map_err(ControllerError::of("write the status of Job", name))?;
        self.jobs.learn(&written);
        Ok(Some(written))
    }
}

/// The same Pods as they are now, as far as they are there.
fn newest(pods: &[Arc<Pod>], current: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let now: HashMap<_, _> = current.iter().map(|pod| (pod.metadata.uid.as_deref(), pod)).collect();
    pods.iter().map(|pod| Arc::clone(now.get(&pod.metadata.uid.as_deref()).copied().unwrap_or(pod))).collect()
}

/// The first failure.
fn first(results: Vec<Result<(), ControllerError>>) -> Result<(), ControllerError> {
    results.into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_counted_is_what_is_known_last() {
        let pod = |uid: &str, phase: &str| -> Arc<Pod> {
            let pod = json!({"metadata": {"uid": uid}, "status": {"phase": phase}});
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let seen = [pod("a", "Running"), pod("gone", "Running")];
        let now = [pod("a", "Succeeded"), pod("new", "Pending")];
        assert_eq!(newest(&seen, &now), [pod("a", "Succeeded"), pod("gone", "Running")]);
    }
}
