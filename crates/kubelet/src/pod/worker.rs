//! The loop of one Pod: look, plan, act, report; until the Pod is gone.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{Pod, PodStatus};
use trine_typed::kube::Api;
use trine_typed::kube::api::{DeleteParams, Preconditions};

use super::act::Batch;
use super::memory::{Memory, Verdicts};
use super::plan::{Plan, Situation, plan};
use super::{Context, spec, stop, termination};
use crate::admission::Refusal;
use crate::config::RESYNC;
use crate::container::sandbox;
use crate::error::{KubeletError, api};
use crate::eviction::orders;
use crate::networks;
use crate::resize::{self, Given, Numbers, Pending, given};
use crate::runtime::{Observed, RunState};
use crate::status::{self, StatusInput};
use crate::volumes::cleanup;

/// Pause after something failed that has no back-off of its own.
const RETRY: Duration = Duration::from_secs(1);

/// Key of the pause after a batch that failed.
const BATCH: &str = "batch";

/// What the manager tells a worker.
#[derive(Debug, Clone)]
pub struct Order {
    /// The Pod as the watch has it.
    pub pod: Arc<Pod>,
    /// Whether it is gone from the API.
    pub gone: bool,
    /// What the node has given to its containers.
    pub given: Arc<Given>,
    /// Why it is not given what it asks for now.
    pub pending: Option<Pending>,
}

/// Why a Pod failed as a whole.
#[derive(Debug, Clone)]
struct Failed {
    reason: String,
    message: String,
}

struct Running {
    handle: JoinHandle<bool>,
    cancel: CancellationToken,
    /// Grace of a batch that ends the Pod.
    grace: Option<i64>,
}

/// One Pod's worker.
pub struct Worker {
    ctx: Arc<Context>,
    uid: String,
    orders: watch::Receiver<Order>,
    bell: Arc<Notify>,
    /// The Pod with what the node has given to its containers.
    pod: Arc<Pod>,
    /// The Pod as the API server has it.
    raw: Arc<Pod>,
    gone: bool,
    given: Arc<Given>,
    pending: Option<Pending>,
    memory: Arc<Mutex<Memory>>,
    observed: Arc<Observed>,
    running: Option<Running>,
    stopping: Option<i64>,
    failed: Option<Failed>,
    /// Why the node does not take the Pod.
    refusal: Option<Refusal>,
    sent: Option<PodStatus>,
    started: Timestamp,
    wake: Option<Timestamp>,
    /// No plan before this time: the last batch failed.
    hold: Option<Timestamp>,
}

/// A resource version as a number, to tell which of two objects is newer.
fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default()
}

/// The Pod with what it was given.
fn with(pod: &Arc<Pod>, given: &Given) -> Arc<Pod> {
    match given::apply(pod, given) {
        Cow::Borrowed(_) => pod.clone(),
        Cow::Owned(changed) => Arc::new(changed),
    }
}

impl Worker {
    /// A worker for the Pod of `orders`, which the node does not take if there is a `refusal`.
    #[must_use]
    pub fn new(ctx: Arc<Context>, orders: watch::Receiver<Order>, refusal: Option<Refusal>) -> Self {
        let order = orders.borrow().clone();
        let uid = spec::uid(&order.pod).to_owned();
        Self {
            bell: ctx.wakers.bell(&uid),
            ctx,
            uid,
            orders,
            pod: with(&order.pod, &order.given),
            raw: order.pod,
            gone: order.gone,
            given: order.given,
            pending: order.pending,
            memory: Arc::default(),
            observed: Arc::default(),
            running: None,
            stopping: None,
            failed: None,
            refusal,
            sent: None,
            started: Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default(),
            wake: None,
            hold: None,
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until the Pod is gone and cleaned up after: true; or until `stop`: then it is left as it is.
    pub async fn run(mut self, stop: CancellationToken) -> bool {
        let mut network = self.ctx.network_ready.clone();
        loop {
            let network_ready = *network.borrow_and_update();
            match self.turn(network_ready).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(pod = spec::key(&self.pod), error = error.chain(), "pod not synced");
                    self.wake_in(RETRY);
                }
            }
            let pause = self.pause();
            let batch = async {
                match &mut self.running {
                    // A batch that panicked did not go well.
                    Some(running) => (&mut running.handle).await.unwrap_or(false),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return false,
                well = batch => self.ended(well),
                () = self.bell.notified() => {}
                changed = self.orders.changed() => if changed.is_err() { return false },
                _ = network.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.ctx.probes.forget(&self.uid);
        self.ctx.wakers.forget(&self.uid);
        self.ctx.evictions.forget(&self.uid);
        true
    }

    /// A batch ended. After a failure there is a growing pause before the next plan.
    fn ended(&mut self, well: bool) {
        self.running = None;
        let now = Timestamp::now();
        self.hold = if well {
            self.memory().sandboxes.reset(BATCH);
            None
        } else {
            let delay = self.memory().sandboxes.next(BATCH, now);
            now.checked_add(delay).ok()
        };
    }

    fn wake_in(&mut self, pause: Duration) {
        let at = Timestamp::now().checked_add(pause).unwrap_or_default();
        self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
    }

    fn pause(&self) -> Duration {
        let Some(wake) = self.wake else { return RESYNC };
        let until = wake.duration_since(Timestamp::now());
        Duration::try_from(until).unwrap_or_default().clamp(Duration::from_millis(1), RESYNC)
    }

    /// One look and what follows from it; true if the worker is done.
    async fn turn(&mut self, network_ready: bool) -> Result<bool, KubeletError> {
        self.wake = None;
        self.take_order();
        self.observe().await?;
        self.refuse();
        self.decide_end();
        self.end_batch_that_is_too_slow();
        self.say_networks().await?;
        if self.stopping.is_none() {
            self.ctx.volumes.want(&self.pod);
        }
        let address = self.ctx.address(&self.pod, &self.observed);
        self.ctx.probes.sync(&self.pod, &self.observed, &address, self.stopping.is_some());
        let verdicts = self.ctx.probes.verdicts(&self.uid);
        let mut finished = false;
        if let Some(until) = self.hold.filter(|until| *until > Timestamp::now()) {
            self.wake = Some(until);
        } else if self.running.is_none() {
            let plan = self.plan(&verdicts, network_ready);
            if let Some(wake) = plan.wake {
                self.wake = Some(self.wake.map_or(wake, |old| old.min(wake)));
            }
            if plan.actions.is_empty() {
                finished = plan.stopped;
            } else {
                self.begin(plan);
            }
        }
        let report = self.report(&verdicts).await;
        if finished && self.stopping.is_some() {
            return self.clean_up(&verdicts).await;
        }
        report.map(|()| false)
    }

    fn take_order(&mut self) {
        let order = self.orders.borrow_and_update().clone();
        self.gone |= order.gone;
        self.pending = order.pending;
        let regiven = !Arc::ptr_eq(&self.given, &order.given);
        self.given = order.given;
        // The answer to our own patch may be newer than the watch.
        let newer = version(&order.pod) > version(&self.raw);
        if newer {
            self.raw = order.pod;
        }
        if newer || regiven {
            self.pod = with(&self.raw, &self.given);
        }
    }

    async fn observe(&mut self) -> Result<(), KubeletError> {
        let observed = self.ctx.runtime.observe(&self.uid).await?;
        let mut memory = self.memory();
        let known = |id: &String| observed.containers.iter().any(|c| c.id == *id);
        memory.messages.retain(|id, _| known(id));
        memory.resized.retain(|id, _| known(id));
        memory.resize_errors.retain(|id, _| known(id));
        for view in observed.containers.iter().filter(|c| c.state == RunState::Exited) {
            if !memory.messages.contains_key(&view.id) {
                memory.messages.insert(view.id.clone(), termination::message(view));
            }
        }
        drop(memory);
        self.observed = Arc::new(observed);
        Ok(())
    }

    /// Writes on the Pod how it is attached to its networks, once for each sandbox, before its containers start.
    async fn say_networks(&mut self) -> Result<(), KubeletError> {
        let Some(sandbox) = self.observed.sandbox().filter(|sandbox| sandbox.ready) else { return Ok(()) };
        let said = self.memory().networks_said.as_ref() == Some(&sandbox.id);
        let id = sandbox.id.clone();
        if said || self.stopping.is_some() || !networks::concern(&self.ctx, &self.pod) {
            return Ok(());
        }
        if let Some(newer) = networks::say(&self.ctx, &self.pod, &id).await? {
            self.renew(newer);
        }
        self.memory().networks_said = Some(id);
        Ok(())
    }

    /// The Pod as the server has just answered.
    fn renew(&mut self, newer: Pod) {
        if spec::uid(&newer) == self.uid {
            self.raw = Arc::new(newer);
            self.pod = with(&self.raw, &self.given);
        }
    }

    /// Fails a Pod that the node does not take, unless something of it is here: then it was taken before.
    fn refuse(&mut self) {
        let here = !self.observed.sandboxes.is_empty() || !self.observed.containers.is_empty();
        if here && self.failed.is_none() {
            self.refusal = None;
        }
        if let (Some(refusal), None) = (&self.refusal, &self.failed) {
            let Refusal { reason, message } = refusal.clone();
            tracing::info!(pod = spec::key(&self.pod), reason, message, "pod not taken");
            self.ctx.events.pod(&self.pod, Level::Warning, reason.clone(), message.clone());
            self.failed = Some(Failed { reason, message: format!("Pod was rejected: {message}") });
        }
    }

    /// Whether all must end: deleted, over by itself, past its deadline, or evicted.
    fn decide_end(&mut self) {
        let deleted = self.pod.metadata.deletion_timestamp.is_some() || self.gone;
        if deleted || spec::ended(&self.pod) {
            let grace = spec::grace(&self.pod);
            self.stopping = Some(self.stopping.map_or(grace, |old| old.min(grace)));
            return;
        }
        let deadline = self.pod.spec.as_ref().and_then(|s| s.active_deadline_seconds);
        let start = self.pod.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0);
        if let (Some(seconds), Some(start), None) = (deadline, start, &self.failed) {
            let left = seconds - Timestamp::now().duration_since(start).as_secs();
            if left <= 0 {
                let message = "Pod was active on the node longer than the specified deadline".to_owned();
                self.ctx.events.pod(&self.pod, Level::Normal, "DeadlineExceeded", message.clone());
                self.failed = Some(Failed { reason: "DeadlineExceeded".to_owned(), message });
            } else {
                self.wake_in(Duration::from_secs(left.unsigned_abs()));
            }
        }
        if let (Some(message), None) = (self.ctx.evictions.why(&self.uid), &self.failed) {
            self.ctx.events.pod(&self.pod, Level::Warning, orders::REASON, message.clone());
            self.failed = Some(Failed { reason: orders::REASON.to_owned(), message });
        }
        if let Some(failed) = &self.failed {
            let evicted = failed.reason == orders::REASON;
            self.stopping = Some(if evicted { orders::GRACE } else { spec::grace(&self.pod) });
        }
    }

    /// Starting makes way for ending, and ending for ending faster.
    fn end_batch_that_is_too_slow(&mut self) {
        let Some(grace) = self.stopping else { return };
        match &self.running {
            Some(Running { grace: None, cancel, .. }) => cancel.cancel(),
            Some(Running { grace: Some(slow), handle, .. }) if *slow > grace => {
                handle.abort();
                self.running = None;
            }
            _ => {}
        }
    }

    fn numbers(&self) -> BTreeMap<String, Numbers> {
        resize::plan::numbers(&self.pod, self.ctx.memory, self.ctx.cgroup_2)
    }

    fn plan(&self, verdicts: &Verdicts, network_ready: bool) -> Plan {
        let memory = self.memory();
        plan(&Situation {
            pod: &self.pod,
            observed: &self.observed,
            memory: &memory,
            verdicts,
            numbers: &self.numbers(),
            volumes_ready: self.ctx.volumes.ready(&self.pod).is_ok(),
            network_ready,
            stopping: self.stopping,
            now: Timestamp::now(),
        })
    }

    fn begin(&mut self, plan: Plan) {
        let cancel = CancellationToken::new();
        let batch = Batch {
            ctx: self.ctx.clone(),
            pod: self.pod.clone(),
            observed: self.observed.clone(),
            memory: self.memory.clone(),
            cancel: cancel.clone(),
        };
        let handle = tokio::spawn(batch.perform(plan.actions));
        self.running = Some(Running { handle, cancel, grace: self.stopping });
    }

    fn status(&self, verdicts: &Verdicts) -> PodStatus {
        let old = self.pod.status.clone().unwrap_or_default();
        if let (Some(_), Some(failed)) = (&self.refusal, &self.failed) {
            return status::refused(&self.pod, &failed.reason, &failed.message);
        }
        // A former kubelet did not take it: it never began.
        if spec::ended(&self.pod) && old.start_time.is_none() {
            return old;
        }
        let memory = self.memory();
        let mut fresh = status::generate(&StatusInput {
            pod: &self.pod,
            observed: &self.observed,
            memory: &memory,
            verdicts,
            numbers: &self.numbers(),
            pending: self.pending.as_ref(),
            runtime: self.ctx.runtime.name(),
            host_ips: &self.ctx.facts.host_ips,
            stopping: self.stopping.is_some(),
            failed: self.failed.as_ref().map(|f| (f.reason.as_str(), f.message.as_str())),
            start_time: self.started,
            now: Timestamp::now(),
        });
        self.ctx.devices.show_health(&self.pod, &mut fresh);
        status::writer::overlay(&old, fresh)
    }

    /// Sends the status if it is news; a Pod that ended by itself begins to be ended.
    async fn report(&mut self, verdicts: &Verdicts) -> Result<(), KubeletError> {
        if self.gone {
            return Ok(());
        }
        let fresh = self.status(verdicts);
        let over = matches!(fresh.phase.as_deref(), Some("Succeeded" | "Failed"));
        if over && self.stopping.is_none() {
            self.stopping = Some(spec::grace(&self.pod));
            self.wake_in(Duration::from_millis(1));
        }
        // A server that changes what it is sent must not make us send it for ever.
        if self.pod.status.as_ref() == Some(&fresh) || self.sent.as_ref() == Some(&fresh) {
            return Ok(());
        }
        self.say_resizing(&fresh);
        if let Some(newer) = status::writer::send(&self.ctx.client, &self.pod, &fresh).await? {
            self.renew(newer);
        }
        self.sent = Some(fresh);
        Ok(())
    }

    /// Says what became of a change of resources.
    fn say_resizing(&self, fresh: &PodStatus) {
        let old = self.pod.status.clone().unwrap_or_default();
        for news in status::resizing::news(&old, fresh) {
            let of = if news.of_spec { &self.raw } else { &self.pod };
            let message = status::resizing::message(of, &news);
            self.ctx.events.pod(&self.pod, news.level, news.event, message);
        }
    }

    /// Nothing runs any more: volumes go, and if the Pod was deleted, so does all the rest.
    async fn clean_up(&mut self, verdicts: &Verdicts) -> Result<bool, KubeletError> {
        self.ctx.devices.unprepare(&self.uid).await?;
        self.ctx.volumes.forget(&self.uid);
        if !self.ctx.volumes.clean(&self.uid) {
            return Ok(false);
        }
        let deleted = self.gone || self.pod.metadata.deletion_timestamp.is_some();
        if !deleted {
            return Ok(false);
        }
        self.report(verdicts).await?;
        for sandbox in &self.observed.sandboxes {
            stop::remove_sandbox(&self.ctx, &self.pod, &sandbox.id).await?;
        }
        let (root, uid) = (self.ctx.config.root.clone(), self.uid.clone());
        let logs = sandbox::log_directory(&self.ctx.config.log_root, &self.pod);
        let removed = tokio::task::spawn_blocking(move || {
            cleanup::remove_tree(&logs).and(cleanup::remove_pod(&root, &uid))
        });
        removed.await.unwrap_or(Ok(()))?;
        if !self.gone {
            self.delete().await?;
        }
        Ok(true)
    }

    async fn delete(&self) -> Result<(), KubeletError> {
        let pods: Api<Pod> = Api::namespaced(self.ctx.client.clone(), spec::namespace(&self.pod));
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
            ..Default::default()
        };
        let deleted = pods.delete(spec::name(&self.pod), &params);
        match api("delete Pod", &spec::key(&self.pod), deleted).await {
            Err(error) if !matches!(error.api_code(), Some(404 | 409)) => Err(error),
            _ => Ok(()),
        }
    }
}
