//! CronJobs: Jobs at certain times.

mod due;
pub mod plan;

use std::sync::Arc;

use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::tz::TimeZone;
use trine_typed::kube::api::{DeleteParams, PostParams, Preconditions, PropagationPolicy};
use trine_typed::kube::{self, Api, Client, Resource, ResourceExt};
use trine_typed::mirror::{Key, Mirror, controller_of};
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx};
use crate::workload::pods::{after_failure, in_ending_namespace, said};
use crate::workload::wake;
use plan::plan;

/// Upstream's name of the controller.
const CONTROLLER: &str = "cronjob-controller";
/// CronJobs that are worked on at a time. Upstream: 5.
const WORKERS: usize = 4;

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let controller = Controller {
        client: cx.client.clone(),
        events: Events::start(cx.client.clone(), CONTROLLER, cx.stop.clone()),
        crons: cx.shared(),
        jobs: cx.shared(),
    };
    tokio::join!(controller.crons.ready(), controller.jobs.ready());
    let controller = Arc::new(controller);
    let queue = Arc::new(WorkQueue::default());
    let _woken = [
        wake::by_themselves(&controller.crons, &queue),
        wake::by_what_they_own(&controller.jobs, &controller.crons, &queue, |_| None),
    ];
    let reconcile = |key: Key| {
        let controller = Arc::clone(&controller);
        async move { controller.reconcile(&key).await.unwrap_or_else(|error| after_failure("cron-job", &error)) }
    };
    queue.work(WORKERS, &cx.stop, reconcile).await;
}

struct Controller {
    client: Client,
    events: Events,
    crons: Mirror<CronJob>,
    jobs: Mirror<Job>,
}

impl Controller {
    async fn reconcile(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(cron) = self.crons.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let jobs = self.jobs.controlled_by(&cron.uid().unwrap_or_default());
        let zone = match &cron.spec.time_zone {
            Some(name) => TimeZone::get(name).map_err(|error| error.to_string()),
            None => Ok(TimeZone::UTC),
        };
        let plan = plan(&cron, &jobs, zone, trine_clock::now());
        for note in plan.notes {
            self.events.post(&*cron, note.level, note.reason, "Reconcile", note.text);
        }
        let mut status = plan.status;
        for job in &plan.delete {
            self.delete(&cron, job).await?;
        }
        if let Some((job, due)) = &plan.create {
            match self.create(&cron, job).await {
                Ok(Some(made)) => {
                    let mut about = made.object_ref(&());
                    about.resource_version = made.resource_version();
                    status.active.get_or_insert_default().push(about);
                    status.last_schedule_time = Some(Time(*due));
                }
                Ok(None) => {}
                Err(error) => {
                    // What was found out is said nevertheless.
                    self.tell(&cron, status).await?;
                    return Err(error);
                }
            }
        }
        self.tell(&cron, status).await?;
        Ok(plan.again.map_or(Next::Wait, Next::After))
    }

    /// Makes a Job; none if somebody else has made one of that name.
    async fn create(&self, cron: &CronJob, job: &Job) -> Result<Option<Job>, ControllerError> {
        let name = job.name_any();
        let api: Api<Job> = Api::namespaced(self.client.clone(), &cron.namespace().unwrap_or_default());
        match api.create(&PostParams::default(), job).await {
            Ok(made) => {
                self.jobs.learn(&made);
                let note = format!("Created job {name}");
                self.events.post(cron, Level::Normal, "SuccessfulCreate", "CreateJob", note);
                Ok(Some(made))
            }
            Err(kube::Error::Api(refused)) if refused.reason == "AlreadyExists" => {
                let found = api.get_opt(&name).await.map_err(ControllerError::of("get Job", name))?;
                let ours = |job: &Job| controller_of(&job.metadata).map(|o| o.uid.clone()) == cron.uid();
                let found = found.filter(ours);
                if let Some(found) = &found {
                    self.jobs.learn(found);
                }
                Ok(found)
            }
            Err(error) => {
                if !in_ending_namespace(&error) {
                    let note = format!("Error creating job: {}", said(&error));
                    self.events.post(cron, Level::Warning, "FailedCreate", "CreateJob", note);
                }
                Err(ControllerError::of("create Job", name)(error))
            }
        }
    }

    /// Removes a Job with its Pods.
    async fn delete(&self, cron: &CronJob, job: &Job) -> Result<(), ControllerError> {
        let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
        let api: Api<Job> = Api::namespaced(self.client.clone(), &cron.namespace().unwrap_or_default());
        let same = Preconditions { uid: Some(uid.clone()), resource_version: None };
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(same),
            ..Default::default()
        };
        match api.delete(&name, &params).await {
            Ok(answer) => {
                match answer.left().filter(|job| job.metadata.deletion_timestamp.is_some()) {
                    Some(going) => self.jobs.learn(&going),
                    None => self.jobs.forget(&Key::of(&job.metadata), &uid),
                }
                let note = format!("Deleted job {name}");
                self.events.post(cron, Level::Normal, "SuccessfulDelete", "DeleteJob", note);
                Ok(())
            }
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                self.jobs.forget(&Key::of(&job.metadata), &uid);
                Ok(())
            }
            Err(error) => {
                let note = format!("Deleted job: {}", said(&error));
                self.events.post(cron, Level::Warning, "FailedDelete", "DeleteJob", note);
                Err(ControllerError::of("delete Job", name)(error))
            }
        }
    }

    /// Writes a status that is news.
    async fn tell(&self, cron: &CronJob, status: CronJobStatus) -> Result<(), ControllerError> {
        if cron.status.clone().unwrap_or_default() == status {
            return Ok(());
        }
        let (name, namespace) = (cron.name_any(), cron.namespace().unwrap_or_default());
        let api: Api<CronJob> = Api::namespaced(self.client.clone(), &namespace);
        let told = CronJob { status: Some(status), ..cron.clone() };
        let done = api.replace_status(&name, &PostParams::default(), &told).await;
        let written = done.map_err(ControllerError::of("write the status of CronJob", name))?;
        self.crons.learn(&written);
        Ok(())
    }
}
