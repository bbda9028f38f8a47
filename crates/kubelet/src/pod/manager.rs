//! Which worker there is for which Pod. Pods come from the API alone; what the runtime has beyond them is an
//! orphan, and is ended once the API's list is known.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::mirror::Mirror;

use super::worker::{Order, Worker};
use super::{Context, spec};
use crate::admission::{self, Refusal};
use crate::error::KubeletError;
use crate::eviction;
use crate::resize::{self, Given, given};
use crate::runtime::events::Change;
use crate::runtime::{Runtime, labels};
use crate::volumes::{cleanup, paths};

struct Handle {
    orders: watch::Sender<Order>,
    task: JoinHandle<bool>,
    /// Set when the worker has nothing more to do, in contrast to one that panicked.
    done: Arc<AtomicBool>,
    /// Whether the node did not take the Pod.
    refused: bool,
    /// What the node has given to its containers.
    given: Arc<Given>,
}

/// Keeps one worker per Pod.
pub struct Manager {
    ctx: Arc<Context>,
    pods: Mirror<Pod>,
    changed: Arc<Notify>,
    workers: BTreeMap<String, Handle>,
    orphans: Arc<Mutex<BTreeSet<String>>>,
    stop: CancellationToken,
}

impl Manager {
    /// For the Pods of `pods`, which notifies `changed`.
    #[must_use]
    pub fn new(ctx: Arc<Context>, pods: Mirror<Pod>, changed: Arc<Notify>, stop: CancellationToken) -> Self {
        Self { ctx, pods, changed, workers: BTreeMap::new(), orphans: Arc::default(), stop }
    }

    /// Runs until told to stop; workers stop with it, Pods do not.
    pub async fn run(mut self, mut changes: mpsc::Receiver<Change>) {
        tokio::select! {
            () = self.stop.cancelled() => return,
            () = self.pods.ready() => {}
        }
        self.sync().await;
        self.ctx.volumes.complete();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.changed.notified() => self.sync().await,
                change = changes.recv() => match change {
                    Some(Change::Pod(uid)) => self.ctx.wakers.wake(&uid),
                    Some(Change::Listed(known)) => {
                        self.sync().await;
                        self.collect(&known);
                    }
                    None => return,
                },
            }
        }
    }

    async fn sync(&mut self) {
        let mut seen = BTreeSet::new();
        let mut new = Vec::new();
        for pod in self.pods.all() {
            let uid = spec::uid(&pod).to_owned();
            if uid.is_empty() {
                continue;
            }
            seen.insert(uid.clone());
            match self.workers.get(&uid) {
                // A worker that panicked is replaced: it took nothing with it that cannot be looked up.
                Some(handle) if !handle.task.is_finished() => self.tell(&uid, pod).await,
                // A worker that is done deleted the Pod; the watch has not heard of it yet.
                Some(handle) if handle.done.load(Ordering::Relaxed) => {}
                _ => new.push(pod),
            }
        }
        self.begin(new).await;
        for (uid, handle) in &self.workers {
            if !seen.contains(uid) {
                handle.orders.send_if_modified(|order| !std::mem::replace(&mut order.gone, true));
            }
        }
        self.workers.retain(|uid, handle| seen.contains(uid) || !handle.task.is_finished());
    }

    /// Starts the workers of new Pods: first of those that were taken before, then of the others, the oldest first.
    async fn begin(&mut self, mut new: Vec<Arc<Pod>>) {
        new.sort_by_key(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
            (!admission::was_taken(pod), created, spec::key(pod))
        });
        for pod in new {
            let refusal = if admission::was_taken(&pod) { None } else { self.refusal(&pod).await };
            self.start(pod, refusal);
        }
    }

    /// Tells a worker of a newer object of its Pod. A change of what it asks for is given first, if that is possible.
    async fn tell(&mut self, uid: &str, pod: Arc<Pod>) {
        let Some(handle) = self.workers.get(uid) else { return };
        let (wanted, mut given) = (given::wanted(&pod), handle.given.clone());
        let mut pending = None;
        if !given::same(&wanted, &given) && !handle.refused && !spec::ended(&pod) {
            let node = self.ctx.node.node(false).await;
            pending = node.ok().and_then(|node| resize::plan::judge(&pod, &self.others(uid), &node));
            if pending.is_none() {
                given = Arc::new(wanted);
            }
        }
        let Some(handle) = self.workers.get_mut(uid) else { return };
        handle.given = given.clone();
        handle.orders.send_if_modified(|old| {
            let same =
                Arc::ptr_eq(&old.pod, &pod) && Arc::ptr_eq(&old.given, &given) && old.pending == pending;
            if !same {
                *old = Order { pod, gone: false, given, pending };
            }
            !same
        });
    }

    /// The Pods that the node has beside `uid`, with what it has given to them.
    fn others(&self, uid: &str) -> Vec<Arc<Pod>> {
        let one = |pod: Arc<Pod>| {
            let handle = self.workers.get(spec::uid(&pod)).filter(|handle| !handle.refused)?;
            Some(match given::apply(&pod, &handle.given) {
                Cow::Borrowed(_) => pod.clone(),
                Cow::Owned(changed) => Arc::new(changed),
            })
        };
        let others = self.pods.all().into_iter().filter(|p| spec::uid(p) != uid && !spec::ended(p));
        others.filter_map(one).collect()
    }

    /// Why the node does not take `pod` beside those that it has. Without a Node to ask, it does.
    async fn refusal(&self, pod: &Pod) -> Option<Refusal> {
        if let Some(message) = self.ctx.pressures.keep_out(pod) {
            return Some(Refusal { reason: eviction::orders::REASON.to_owned(), message });
        }
        let others = self.others(spec::uid(pod));
        let node = self.ctx.node.node(false).await.ok()?;
        let refusal = admission::admit(pod, &others, &node)?;
        if !refusal.is_of_the_node() {
            return Some(refusal);
        }
        match self.ctx.node.node(true).await {
            Ok(newer) => admission::admit(pod, &others, &newer),
            Err(_) => Some(refusal),
        }
    }

    fn start(&mut self, pod: Arc<Pod>, refusal: Option<Refusal>) {
        let (uid, refused) = (spec::uid(&pod).to_owned(), refusal.is_some());
        let given =
            Arc::new(if admission::was_taken(&pod) { given::found(&pod) } else { given::wanted(&pod) });
        let order = Order { pod, gone: false, given: given.clone(), pending: None };
        let (orders, receiver) = watch::channel(order);
        let worker = Worker::new(self.ctx.clone(), receiver, refusal);
        let (stop, done) = (self.stop.clone(), Arc::new(AtomicBool::new(false)));
        let finished = done.clone();
        let task = tokio::spawn(async move {
            let ended = worker.run(stop).await;
            finished.store(ended, Ordering::Relaxed);
            ended
        });
        self.workers.insert(uid, Handle { orders, task, done, refused, given });
    }

    /// Ends what no Pod of the API owns: in the runtime, and on disk.
    fn collect(&mut self, in_runtime: &BTreeSet<String>) {
        self.workers.retain(|_, handle| !(handle.task.is_finished() && handle.orders.borrow().gone));
        let dir = self.ctx.config.root.join("pods");
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let on_disk = entries.map(|e| e.file_name().to_string_lossy().into_owned());
        let with_devices = self.ctx.devices.pods();
        let candidates: BTreeSet<String> =
            on_disk.chain(in_runtime.iter().cloned()).chain(with_devices).collect();
        for uid in candidates {
            if self.workers.contains_key(&uid) {
                continue;
            }
            let mut orphans = self.orphans.lock().unwrap_or_else(PoisonError::into_inner);
            if !orphans.insert(uid.clone()) {
                continue;
            }
            drop(orphans);
            let (ctx, orphans) = (self.ctx.clone(), self.orphans.clone());
            tokio::spawn(async move {
                if let Err(error) = end_orphan(&ctx, &uid).await {
                    tracing::warn!(uid, error = error.chain(), "an orphaned pod stays for now");
                }
                orphans.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
            });
        }
    }
}

/// Ends a Pod that the API does not know: its containers with their own grace, its sandboxes, its folders.
async fn end_orphan(ctx: &Context, uid: &str) -> Result<(), KubeletError> {
    stop_all(&ctx.runtime, uid).await?;
    ctx.devices.unprepare(uid).await?;
    ctx.volumes.forget(uid);
    if !ctx.volumes.clean(uid) {
        // The volume manager takes them down; the next list comes back here.
        return Ok(());
    }
    let mut logs = Vec::new();
    for sandbox in ctx.runtime.sandboxes(Some(uid)).await? {
        let get = |key: &str| sandbox.labels.get(key).cloned().unwrap_or_default();
        logs.push(format!("{}_{}_{uid}", get(labels::POD_NAMESPACE), get(labels::POD_NAME)));
        ctx.runtime.remove_sandbox(&sandbox.id).await?;
    }
    let (root, log_root, owner) = (ctx.config.root.clone(), ctx.config.log_root.clone(), uid.to_owned());
    let removed = tokio::task::spawn_blocking(move || {
        let mut result = cleanup::remove_pod(&root, &owner);
        for name in logs.iter().filter(|n| !n.contains('/')) {
            result = cleanup::remove_tree(&log_root.join(name)).and(result);
        }
        result
    });
    let result = removed.await.unwrap_or(Ok(()));
    if !paths::pod(&ctx.config.root, uid).exists() {
        tracing::info!(uid, "an orphaned pod was cleaned up");
    }
    result
}

async fn stop_all(runtime: &Runtime, uid: &str) -> Result<(), KubeletError> {
    let stops = runtime.containers(Some(uid)).await?.into_iter().map(|container| async move {
        let grace =
            container.annotations.get(labels::GRACE_PERIOD).and_then(|g| g.parse().ok()).unwrap_or(30);
        runtime.stop_container(&container.id, grace).await
    });
    let mut result = Ok(());
    for stopped in futures::future::join_all(stops).await {
        result = stopped.and(result);
    }
    for sandbox in runtime.sandboxes(Some(uid)).await? {
        result = runtime.stop_sandbox(&sandbox.id).await.and(result);
    }
    result
}
