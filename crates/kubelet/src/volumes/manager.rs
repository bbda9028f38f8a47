//! The loop of the volume manager: asks the plan, starts what is due, writes down what became true.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use trine_typed::event::{Level, Recorder};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::pods::claim_name;

use super::model::{
    Actual, Certainty, Desired, Device, Lock, Mount, MountKey, MountedClaim, Resolved, Wanted, in_use,
};
use super::operations::{Context, Operations, Outcome, volume_of};
use super::plan::{Held, Operation, plan};
use super::source::{self, Source};
use super::words::describe;
use super::{cleanup, publish, reconstruct, stage};
use crate::config::VOLUME_BACKOFF;
use crate::error::KubeletError;
use crate::pod::spec;
use crate::wake::Wakers;

/// How often files from the API are looked at again (upstream: about a minute).
const REFRESH: Duration = Duration::from_secs(60);
/// First and longest pause while something is simply not there yet.
const NOT_YET: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// When a Pod that waits for its volumes gets an event about it (upstream: 2 m 3 s).
const SLOW: Duration = Duration::from_secs(123);
/// When something that is not there yet is worth an event.
const QUIET: Duration = Duration::from_secs(20);

struct Entry {
    pod: Arc<Pod>,
    since: Timestamp,
    said: bool,
}

#[derive(Default)]
struct State {
    pods: BTreeMap<String, Entry>,
    desired: Desired,
    actual: Actual,
    held: Held,
    pauses: BTreeMap<Lock, Duration>,
    errors: BTreeMap<Lock, String>,
    /// What is not there yet and was said to be missing.
    said: std::collections::BTreeSet<Lock>,
}

/// A volume that is there, for the container's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// What to mount.
    pub host_path: PathBuf,
    /// Whether it is a raw device.
    pub block: bool,
    /// Whether it may only be read.
    pub read_only: bool,
}

/// Keeps the volumes of all Pods.
pub struct VolumeManager {
    pub(super) operations: Operations,
    pub(super) recorder: Arc<Recorder>,
    wakers: Wakers,
    state: Mutex<State>,
    wake: Notify,
}

impl VolumeManager {
    /// Starts from what a former kubelet left.
    ///
    /// # Errors
    /// [`KubeletError::Io`] if the mount table cannot be read: nothing may be decided without it.
    pub fn new(
        operations: Operations,
        recorder: Arc<Recorder>,
        wakers: Wakers,
    ) -> Result<Self, KubeletError> {
        let mounts = cleanup::mounts()?;
        let actual = reconstruct::reconstruct(&operations.config.root, &mounts);
        // Containers that a former kubelet started may still use all of it.
        let held = actual.mounts.keys().map(|key| key.uid.clone()).collect();
        let desired = Desired { held, ..Default::default() };
        let state = State { actual, desired, ..Default::default() };
        operations.node.set_in_use(in_use(&state.desired, &state.actual));
        Ok(Self { operations, recorder, wakers, state: Mutex::new(state), wake: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wants the volumes of `pod`; again with a newer object of it, too.
    pub fn want(&self, pod: &Arc<Pod>) {
        let uid = spec::uid(pod).to_owned();
        {
            let mut state = self.lock();
            let newer = state.pods.get(&uid).is_some_and(|e| !Arc::ptr_eq(&e.pod, pod));
            if !newer && state.pods.contains_key(&uid) {
                return;
            }
            let since = state.pods.get(&uid).map_or_else(Timestamp::now, |e| e.since);
            let said = state.pods.get(&uid).is_some_and(|e| e.said);
            state.pods.insert(uid.clone(), Entry { pod: pod.clone(), since, said });
            let old = state.desired.pods.remove(&uid).unwrap_or_default();
            let wanted = source::used(pod).map(|volume| {
                let before = old.iter().find(|w| w.volume == volume.name);
                let source = Source::of(volume);
                Wanted {
                    volume: volume.name.clone(),
                    source,
                    resolved: before.and_then(|w| w.resolved.clone()),
                    // Labels, annotations and addresses come with a newer object.
                    stale: before.is_some_and(|w| w.stale)
                        || (newer && matches!(source, Source::DownwardApi | Source::Projected)),
                }
            });
            let wanted = wanted.collect();
            state.desired.pods.insert(uid, wanted);
        }
        self.changed();
    }

    /// No longer wants the volumes of the Pod `uid`: its containers have stopped, and may lose them.
    pub fn forget(&self, uid: &str) {
        self.operations.certificates.forget(uid);
        {
            let mut state = self.lock();
            let held = state.desired.held.remove(uid);
            if state.pods.remove(uid).is_none() && !held {
                return;
            }
            state.desired.pods.remove(uid);
            state.held.waiting.retain(|lock, _| !concerns(lock, uid));
            state.pauses.retain(|lock, _| !concerns(lock, uid));
            state.errors.retain(|lock, _| !concerns(lock, uid));
            state.said.retain(|lock| !concerns(lock, uid));
        }
        self.changed();
    }

    /// All Pods are known: what none of them wants may go.
    pub fn complete(&self) {
        self.lock().desired.complete = true;
        self.changed();
    }

    /// The volumes of `pod`, or the names of those that are not there.
    ///
    /// # Errors
    /// The names.
    pub fn ready(&self, pod: &Pod) -> Result<BTreeMap<String, Ready>, Vec<String>> {
        let state = self.lock();
        let uid = spec::uid(pod);
        let Some(wanted) = state.desired.pods.get(uid) else {
            return Err(source::used(pod).map(|v| v.name.clone()).collect());
        };
        let mut ready = BTreeMap::new();
        let mut missing = Vec::new();
        for volume in wanted {
            let mount = volume.key(uid).and_then(|key| state.actual.mounts.get(&key));
            match mount.filter(|m| m.certainty == Certainty::Sure) {
                Some(mount) => {
                    let resolved = volume.resolved.as_ref();
                    ready.insert(
                        volume.volume.clone(),
                        Ready {
                            host_path: mount.host_path.clone(),
                            block: resolved.is_some_and(|r| r.block),
                            read_only: resolved.is_some_and(|r| r.read_only),
                        },
                    );
                }
                None => missing.push(volume.volume.clone()),
            }
        }
        if missing.is_empty() { Ok(ready) } else { Err(missing) }
    }

    /// Whether nothing of the Pod `uid` is mounted any more.
    #[must_use]
    pub fn clean(&self, uid: &str) -> bool {
        !self.lock().actual.mounts.keys().any(|key| key.uid == uid)
    }

    /// UIDs that have something mounted.
    #[must_use]
    pub fn mounted_pods(&self) -> std::collections::BTreeSet<String> {
        self.lock().actual.mounts.keys().map(|key| key.uid.clone()).collect()
    }

    /// The volumes of claims that are mounted.
    #[must_use]
    pub fn mounted_claims(&self) -> Vec<MountedClaim> {
        let state = self.lock();
        let mut claims = Vec::new();
        for (uid, wanted) in &state.desired.pods {
            let Some(entry) = state.pods.get(uid) else { continue };
            for (wanted, resolved) in wanted.iter().filter_map(|w| Some((w, w.resolved.clone()?))) {
                let mount = wanted.key(uid).and_then(|key| state.actual.mounts.get(&key));
                let volume = volume_of(&entry.pod, &wanted.volume).ok();
                let claim = volume.and_then(|v| claim_name(&entry.pod, v));
                if let (Some(mount), Some(claim)) = (mount.filter(|m| m.certainty == Certainty::Sure), claim)
                {
                    claims.push(MountedClaim {
                        pod: Arc::clone(&entry.pod),
                        resolved,
                        uid: uid.clone(),
                        namespace: spec::namespace(&entry.pod).to_owned(),
                        claim,
                        volume: wanted.volume.clone(),
                        path: mount.host_path.clone(),
                    });
                }
            }
        }
        claims
    }

    fn changed(&self) {
        let in_use = {
            let mut state = self.lock();
            forget_attachments(&mut state);
            in_use(&state.desired, &state.actual)
        };
        self.operations.node.set_in_use(in_use);
        self.wake.notify_one();
    }

    /// Works until `stop`. Operations that run are not interrupted.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut refreshed = tokio::time::Instant::now();
        loop {
            if refreshed.elapsed() >= REFRESH {
                refreshed = tokio::time::Instant::now();
                self.mark_stale();
            }
            let wait = self.start_due();
            self.say_slow().await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn mark_stale(&self) {
        for wanted in self.lock().desired.pods.values_mut().flatten() {
            wanted.stale = wanted.source.refreshed() || wanted.resolved.as_ref().is_some_and(|r| r.republish);
        }
    }

    /// Starts what is due; returns how long nothing else will be.
    fn start_due(self: &Arc<Self>) -> Duration {
        let now = Timestamp::now();
        let mut state = self.lock();
        let operations = plan(&state.desired, &state.actual, &state.held, now);
        for operation in operations {
            state.held.running.insert(operation.lock());
            let context = prepare(&mut state, &operation, &self.operations.config.root);
            let manager = self.clone();
            tokio::spawn(async move { manager.perform(operation, context).await });
        }
        let next = state.held.waiting.values().filter(|at| **at > now).min();
        let until = next.and_then(|at| Duration::try_from(at.duration_since(now)).ok());
        until.unwrap_or(Duration::from_secs(5)).min(Duration::from_secs(5))
    }

    async fn perform(self: Arc<Self>, operation: Operation, context: Context) {
        let pod = context.pod.clone();
        let result = self.operations.perform(&operation, context).await;
        let event = {
            let mut state = self.lock();
            let lock = operation.lock();
            state.held.running.remove(&lock);
            match result {
                Ok(outcome) => {
                    state.held.waiting.remove(&lock);
                    state.pauses.remove(&lock);
                    state.errors.remove(&lock);
                    state.said.remove(&lock);
                    apply(&mut state, &operation, outcome);
                    None
                }
                Err(error) => failed(&mut state, &operation, lock, &error),
            }
        };
        self.changed();
        if let Some(uid) = operation.uid() {
            self.wakers.wake(&uid);
        } else {
            self.wakers.wake_all();
        }
        if let (Some(message), Some(pod)) = (event, pod) {
            self.recorder.post(&*pod, Level::Warning, "FailedMount", &message).await;
        }
    }

    /// Says once that a Pod waits for its volumes, and for what.
    async fn say_slow(&self) {
        let now = Timestamp::now();
        let mut slow = Vec::new();
        {
            let mut state = self.lock();
            let uids: Vec<String> = state.pods.keys().cloned().collect();
            for uid in uids {
                let missing = missing(&state, &uid);
                let errors: Vec<String> =
                    state.errors.iter().filter(|(l, _)| concerns(l, &uid)).map(|(_, e)| e.clone()).collect();
                let Some(entry) = state.pods.get_mut(&uid) else { continue };
                let long = now.duration_since(entry.since)
                    > jiff::SignedDuration::try_from(SLOW).unwrap_or_default();
                if long && !entry.said && !missing.is_empty() {
                    entry.said = true;
                    let names = missing.join(" ");
                    let causes = if errors.is_empty() {
                        "timed out waiting for the condition".to_owned()
                    } else {
                        errors.join("; ")
                    };
                    slow.push((
                        entry.pod.clone(),
                        format!("Unable to attach or mount volumes: unmounted volumes=[{names}]: {causes}"),
                    ));
                }
            }
        }
        for (pod, message) in slow {
            self.recorder.post(&*pod, Level::Warning, "FailedMount", &message).await;
        }
    }
}

/// Once a volume is neither wanted nor staged it is no longer in use, so it may be detached at any time.
fn forget_attachments(state: &mut State) {
    let State { desired, actual, .. } = state;
    let wanted: std::collections::BTreeSet<_> =
        desired.pods.values().flatten().filter_map(|w| w.resolved.as_ref()).map(Resolved::device).collect();
    let devices = &actual.devices;
    actual.attached.retain(|key, _| wanted.contains(key) || devices.contains_key(key));
}

fn missing(state: &State, uid: &str) -> Vec<String> {
    let wanted = state.desired.pods.get(uid).into_iter().flatten();
    let sure = |w: &&Wanted| {
        let mount = w.key(uid).and_then(|key| state.actual.mounts.get(&key));
        mount.is_none_or(|m| m.certainty != Certainty::Sure)
    };
    wanted.filter(sure).map(|w| w.volume.clone()).collect()
}

fn concerns(lock: &Lock, uid: &str) -> bool {
    match lock {
        Lock::Claim(of, _) => of == uid,
        Lock::Mount(key) => key.uid == uid,
        Lock::Device(_) => false,
    }
}

/// Collects what the operation needs, and writes down what may become true before it is tried.
fn prepare(state: &mut State, operation: &Operation, root: &std::path::Path) -> Context {
    let pod = |uid: &str| state.pods.get(uid).map(|e| e.pod.clone());
    let context = |r: &Resolved| state.actual.attached.get(&r.device()).cloned().unwrap_or_default();
    match operation {
        Operation::Resolve { uid, .. }
        | Operation::WaitForAttach { uid, .. }
        | Operation::Refuse { key: MountKey { uid, .. }, .. } => {
            Context { pod: pod(uid), ..Default::default() }
        }
        Operation::Stage { uid, resolved } => {
            let prepared =
                Context { pod: pod(uid), publish_context: context(resolved), ..Default::default() };
            let device = Device {
                certainty: Certainty::Uncertain,
                path: stage::path(root, resolved),
                pv: resolved.pv.clone(),
                block: resolved.block,
                attach: resolved.attach,
            };
            state.actual.devices.insert(resolved.device(), device);
            prepared
        }
        Operation::Publish { key, resolved, .. } => {
            let prepared =
                Context { pod: pod(&key.uid), publish_context: context(resolved), ..Default::default() };
            // Publishing again what is there takes nothing away, whatever becomes of it.
            if state.actual.mounts.get(key).is_none_or(|m| m.certainty == Certainty::Uncertain) {
                uncertain(state, key, Some(resolved), root);
            }
            prepared
        }
        Operation::SetUp { key, .. } => {
            let prepared = Context { pod: pod(&key.uid), ..Default::default() };
            if !state.actual.mounts.contains_key(key) {
                uncertain(state, key, None, root);
            }
            prepared
        }
        Operation::TearDown { key } => {
            let device = state.actual.mounts.get_mut(key).and_then(|mount| {
                mount.certainty = Certainty::Uncertain;
                mount.device.clone()
            });
            Context { device: device.map(|d| (d, None)), ..Default::default() }
        }
        Operation::Unstage { key } => {
            let device = state.actual.devices.get_mut(key).map(|device| {
                device.certainty = Certainty::Uncertain;
                device.clone()
            });
            Context { device: Some((key.clone(), device)), ..Default::default() }
        }
    }
}

fn uncertain(state: &mut State, key: &MountKey, resolved: Option<&Resolved>, root: &std::path::Path) {
    let host_path = match resolved {
        Some(_) => publish::target(root, key),
        None => super::paths::volume(root, &key.uid, &key.plugin, &key.spec),
    };
    let device = resolved.map(Resolved::device);
    let mount = Mount { certainty: Certainty::Uncertain, device, host_path };
    state.actual.mounts.insert(key.clone(), mount);
}

fn apply(state: &mut State, operation: &Operation, outcome: Outcome) {
    match (operation, outcome) {
        (Operation::Resolve { uid, volume }, Outcome::Resolved(resolved)) => {
            let wanted = state.desired.pods.get_mut(uid).into_iter().flatten();
            for entry in wanted.filter(|w| w.volume == *volume) {
                entry.resolved = Some((*resolved).clone());
            }
        }
        (Operation::WaitForAttach { resolved, .. }, Outcome::Attached(context)) => {
            state.actual.attached.insert(resolved.device(), context);
        }
        (Operation::Stage { resolved, .. }, Outcome::Staged) => {
            if let Some(device) = state.actual.devices.get_mut(&resolved.device()) {
                device.certainty = Certainty::Sure;
            }
        }
        (Operation::Publish { key, .. } | Operation::SetUp { key, .. }, Outcome::Up(host_path)) => {
            if let Some(mount) = state.actual.mounts.get_mut(key) {
                mount.certainty = Certainty::Sure;
                mount.host_path = host_path;
            }
            for wanted in state.desired.pods.get_mut(&key.uid).into_iter().flatten() {
                if wanted.key(&key.uid).as_ref() == Some(key) {
                    wanted.stale = false;
                }
            }
        }
        (Operation::TearDown { key }, Outcome::Down) => {
            state.actual.mounts.remove(key);
        }
        (Operation::Unstage { key }, Outcome::Unstaged) => {
            state.actual.devices.remove(key);
            state.actual.attached.remove(key);
        }
        (operation, outcome) => tracing::error!(?operation, ?outcome, "an operation ended as another"),
    }
}

/// Notes a failure and when to try again; returns the text of the event that is due.
fn failed(state: &mut State, operation: &Operation, lock: Lock, error: &KubeletError) -> Option<String> {
    let now = Timestamp::now();
    let not_yet = matches!(error, KubeletError::NotYet(_));
    let (first, longest) = if not_yet { NOT_YET } else { VOLUME_BACKOFF };
    let pause = state.pauses.get(&lock).map_or(first, |p| (*p * 2).clamp(first, longest));
    state.pauses.insert(lock.clone(), pause);
    state.held.waiting.insert(lock.clone(), now.checked_add(pause).unwrap_or(now));
    let text = describe(operation, error);
    if not_yet {
        tracing::debug!(error = text, "volume operation waits");
    } else {
        tracing::info!(error = text, "volume operation failed");
    }
    state.errors.insert(lock.clone(), text.clone());
    if !not_yet {
        return Some(text);
    }
    // What is awaited is said once, when it takes long.
    let since = operation.uid().and_then(|uid| state.pods.get(&uid)).map(|e| e.since);
    let long = since.is_some_and(|s| now.duration_since(s).as_secs() >= QUIET.as_secs().cast_signed());
    (long && state.said.insert(lock)).then_some(text)
}
