//! Watches, decides for one Pod after another, and leaves what is written then to tasks of its own: the next decision does not wait
//! for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use trine_typed::event::Recorder;
use trine_typed::k8s_openapi::api::core::v1::PersistentVolumeClaim;
use trine_typed::kube::{Client, ResourceExt};
use trine_typed::mirror::{Kind, Mirror, Mirrors, Subscription};

use crate::bind::{Nomination, Reason, Writes};
use crate::cache::{Cache, Change, Pair};
use crate::devices::claims::wanted;
use crate::devices::{DeviceClass, ResourceClaim, ResourceSlice};
use crate::framework::{Attempt, Decision, attempt};
use crate::pod_info::PodInfo;
use crate::preemption::Room;
use crate::profile::Config;
use crate::tell::Teller;

/// How often Pods that were forgotten are looked for. Upstream: 30 s.
const FLUSH: Duration = Duration::from_secs(30);
/// Bindings that are written at once. More would only wait in the API server.
const BINDING: usize = 64;
/// How long decisions are made before others of this process get their turn.
const TURN: Duration = Duration::from_millis(2);

/// Why a Pod that was decided for could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// The API server refused a write.
    #[error("scheduling: {call} of {object} failed")]
    Api {
        /// What was written.
        call: &'static str,
        /// On what.
        object: String,
        /// What the API server said.
        source: Box<trine_typed::kube::Error>,
    },
    /// A claim was not bound in time.
    #[error("scheduling: claim {claim} was not bound within {waited:?}")]
    Volumes {
        /// The claim.
        claim: String,
        /// How long was waited.
        waited: Duration,
    },
    /// A claim of devices is not as it was when it was decided.
    #[error("scheduling: claim {claim} {why}")]
    Devices {
        /// The claim.
        claim: String,
        /// What has changed.
        why: String,
    },
    /// The provisioner gave the claim back: another node has to be chosen.
    #[error("scheduling: claim {claim} cannot be provisioned for node {node}")]
    NotHere {
        /// The claim.
        claim: String,
        /// The node that was chosen.
        node: String,
    },
}

pub(crate) struct Scheduler {
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) teller: Teller,
    pub(crate) claims: Mirror<PersistentVolumeClaim>,
    pub(crate) device_claims: Mirror<ResourceClaim>,
    /// Woken when claims change, for tasks that wait for them.
    pub(crate) claims_changed: Notify,
    /// What is still written about Pods that had no place, by UID: later writes about them wait for it.
    reports: Mutex<HashMap<String, JoinHandle<()>>>,
    /// The UIDs of Pods that could not be bound.
    failed: mpsc::UnboundedSender<String>,
}

/// What the watches have told and nobody has looked at.
#[derive(Default)]
struct Inbox {
    changes: Mutex<Vec<Change>>,
    filled: Notify,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Change>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, change: Change) {
        self.lock().push(change);
        self.filled.notify_one();
    }

    fn take(&self) -> Vec<Change> {
        std::mem::take(&mut self.lock())
    }
}

/// Runs until `stop`. What it knows of the cluster is `read`, by others too if they have it; `client` writes.
///
/// # Errors
/// None at present: what fails is retried, and said in the Pod's condition and events.
pub async fn run(
    client: Client,
    read: Mirrors,
    config: Config,
    stop: CancellationToken,
) -> Result<(), SchedulerError> {
    let inbox = Arc::new(Inbox::default());
    let claims = read.of();
    let device_claims: Mirror<ResourceClaim> = read.of();
    let (known, classes, slices) =
        (device_claims.clone(), read.of::<DeviceClass>(), read.of::<ResourceSlice>());
    // Without these a decision can be made; what a foreign cluster does not show is not waited for.
    let _at_once = (
        follow(&read.of(), &inbox, Change::CsiNode),
        follow(&read.of(), &inbox, Change::Budget),
        follow(&read.of(), &inbox, Change::Namespace),
        follow(&read.of(), &inbox, Change::Service),
        follow(&read.of(), &inbox, Change::ReplicationController),
        follow(&read.of(), &inbox, Change::ReplicaSet),
        follow(&read.of(), &inbox, Change::StatefulSet),
        follow(&device_claims, &inbox, Change::DeviceClaim),
        follow(&classes, &inbox, Change::DeviceClass),
        follow(&slices, &inbox, Change::DeviceSlice),
        follow(&read.of(), &inbox, Change::DeviceTaint),
    );
    // Pods with claims of devices are not looked at before all of these are known.
    let told = Arc::clone(&inbox);
    let all_told = async move {
        tokio::join!(known.ready(), classes.ready(), slices.ready());
        told.put(Change::DevicesListed);
    };
    tokio::spawn(stop.clone().run_until_cancelled_owned(all_told));
    let _kept = tokio::join!(
        followed(claims.clone(), &inbox, Change::Claim),
        followed(read.of(), &inbox, Change::Node),
        followed(read.of(), &inbox, Change::Volume),
        followed(read.of(), &inbox, Change::Class),
        followed(read.of(), &inbox, Change::Pod),
    );
    let (failed, failures) = mpsc::unbounded_channel();
    let scheduler = Arc::new(Scheduler {
        teller: Teller::start(
            config
                .profiles
                .iter()
                .map(|profile| (profile.name.clone(), Recorder::new(client.clone(), &profile.name, None))),
        ),
        client,
        claims,
        device_claims,
        claims_changed: Notify::new(),
        reports: Mutex::default(),
        failed,
        config,
    });
    let cache = Cache::new(&scheduler.config);
    let binding = Arc::new(Semaphore::new(BINDING));
    let mut cycle = Cycle { scheduler, cache, inbox, failures, binding, begin: Instant::now(), turn: 0 };
    tokio::select! {
        () = stop.cancelled() => {}
        () = cycle.run() => {}
    }
    Ok(())
}

fn follow<K: Kind>(mirror: &Mirror<K>, inbox: &Arc<Inbox>, change: fn(Pair<K>) -> Change) -> Subscription {
    let inbox = Arc::clone(inbox);
    mirror.subscribe(move |old, new| inbox.put(change((old.cloned(), new.cloned()))))
}

/// Follows the objects of a kind from when they have been listed.
async fn followed<K: Kind>(
    mirror: Mirror<K>,
    inbox: &Arc<Inbox>,
    change: fn(Pair<K>) -> Change,
) -> Subscription {
    mirror.ready().await;
    follow(&mirror, inbox, change)
}

/// The one who decides.
struct Cycle {
    scheduler: Arc<Scheduler>,
    cache: Cache,
    inbox: Arc<Inbox>,
    failures: mpsc::UnboundedReceiver<String>,
    binding: Arc<Semaphore>,
    begin: Instant,
    turn: usize,
}

impl Cycle {
    async fn run(&mut self) {
        let mut flush = tokio::time::interval(FLUSH);
        loop {
            self.decide_all().await;
            let due = self.cache.queue.due_at();
            let rest = due.map_or(FLUSH, |due| due.saturating_sub(self.begin.elapsed()));
            tokio::select! {
                () = self.inbox.filled.notified() => {}
                Some(uid) = self.failures.recv() => self.cache.forget(&uid, self.begin.elapsed()),
                () = tokio::time::sleep(rest) => {}
                _ = flush.tick() => {
                    self.cache.queue.flush(self.begin.elapsed());
                    self.scheduler.reports().retain(|_, report| !report.is_finished());
                }
            }
        }
    }

    /// Decides for one Pod after another, each with all that is known by then.
    async fn decide_all(&mut self) {
        let mut since = Instant::now();
        loop {
            self.catch_up();
            if self.cache.queue.due_at().is_none_or(|due| due > self.begin.elapsed()) {
                return;
            }
            // Whoever decides faster than the decisions are written has to wait, and knows more then.
            let Ok(binding) = Arc::clone(&self.binding).acquire_owned().await else { return };
            self.catch_up();
            if let Some(pod) = self.cache.queue.next(self.begin.elapsed()) {
                self.decide(pod, binding);
            }
            if since.elapsed() > TURN {
                tokio::task::yield_now().await;
                since = Instant::now();
            }
        }
    }

    fn catch_up(&mut self) {
        let now = self.begin.elapsed();
        let changes = self.inbox.take();
        let of_claims =
            changes.iter().any(|change| matches!(change, Change::Claim(_) | Change::DeviceClaim(_)));
        if !changes.is_empty() {
            self.cache.apply(changes, now);
        }
        if of_claims {
            self.scheduler.claims_changed.notify_waiters();
        }
        while let Ok(uid) = self.failures.try_recv() {
            self.cache.forget(&uid, now);
        }
    }

    fn decide(&mut self, pod: PodInfo, binding: OwnedSemaphorePermit) {
        self.turn = self.turn.wrapping_add(1);
        // Pods of other schedulers are not in the queue.
        let Some(profile) = self.scheduler.config.profile_of(&pod.pod) else { return };
        self.cache.snapshot.prepare(&pod, profile);
        let Attempt { decision, rejected_by, looked_at, give_back } =
            attempt(&pod, &self.cache.snapshot, profile, self.turn);
        let nodes = self.cache.snapshot.nodes.len().max(1);
        self.cache.snapshot.start = (self.cache.snapshot.start + looked_at) % nodes;
        if let Some(claim) = give_back {
            self.scheduler.give_back_in_background(claim, pod.uid());
        }
        let mut promised = Vec::new();
        let (message, nomination, room) = match decision {
            Decision::Place { node, bindings, devices } => {
                self.cache.assume(&pod, &node, &devices);
                self.scheduler.bind_in_background(pod, node, Writes { bindings, devices }, binding);
                return;
            }
            Decision::Failed(message) => {
                self.cache.put_back(pod.uid(), self.begin.elapsed());
                let reason = Reason::SchedulerError;
                self.scheduler.report_in_background(
                    pod,
                    reason,
                    message,
                    Nomination::AsItIs,
                    None,
                    Vec::new(),
                );
                return;
            }
            Decision::Preempt(room, message) => {
                promised = self.cache.snapshot.nominated.get(&room.node).cloned().unwrap_or_default();
                self.cache.promise(pod.uid(), Some((room.node.clone(), pod.clone())));
                (message, Nomination::To(room.node.clone()), Some(room))
            }
            Decision::Wait(message) => (message, Nomination::AsItIs, None),
            Decision::Nowhere(message) => {
                self.cache.promise(pod.uid(), None);
                (message, Nomination::None, None)
            }
        };
        self.cache.set_aside(pod.uid(), rejected_by, self.begin.elapsed());
        let reason = Reason::Unschedulable;
        self.scheduler.report_in_background(pod, reason, message, nomination, room, promised);
    }
}

impl Scheduler {
    fn reports(&self) -> MutexGuard<'_, HashMap<String, JoinHandle<()>>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bind_in_background(
        self: &Arc<Self>,
        pod: PodInfo,
        node: String,
        writes: Writes,
        binding: OwnedSemaphorePermit,
    ) {
        let this = Arc::clone(self);
        let name = format!("{}/{}", pod.pod.namespace().unwrap_or_default(), pod.pod.name_any());
        let span = tracing::info_span!(
            target: "trine::step", "schedule", plane = "scheduler", pod = %name,
            pod_uid = pod.uid(), detail = %node, error = tracing::field::Empty
        );
        let told = self.reports().remove(pod.uid());
        // One that waits for its volumes may wait for minutes.
        let quick = pod.claims.is_empty() && wanted(&pod.pod).is_empty();
        let binding = quick.then_some(binding);
        tokio::spawn(
            async move {
                if let Some(told) = told {
                    drop(told.await);
                }
                if let Err(error) = this.bind(&pod, &node, &writes).await {
                    let message = trine_typed::chain::display(&error);
                    tracing::Span::current().record("error", &message);
                    this.report(&pod.pod, Reason::SchedulerError, &message, &Nomination::AsItIs).await;
                    drop(this.failed.send(pod.uid().to_owned()));
                }
                drop(binding);
            }
            .instrument(span),
        );
    }

    /// Tells that a Pod has no place, then makes the room that was found for it.
    fn report_in_background(
        self: &Arc<Self>,
        pod: PodInfo,
        reason: Reason,
        message: String,
        nomination: Nomination,
        room: Option<Room>,
        promised: Vec<PodInfo>,
    ) {
        let (this, uid) = (Arc::clone(self), pod.uid().to_owned());
        let told = self.reports().remove(&uid);
        let report = tokio::spawn(async move {
            if let Some(told) = told {
                drop(told.await);
            }
            this.report(&pod.pod, reason, &message, &nomination).await;
            if let Some(room) = room
                && !this.make_room(&pod.pod, &room, &promised).await
            {
                // Nothing would wake it.
                drop(this.failed.send(pod.uid().to_owned()));
            }
        });
        self.reports().insert(uid, report);
    }
}
