//! One task per container and probe.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod, Probe};

use super::attempt::{self, Target};
use super::tally::Tally;
use crate::events::Events;
use crate::pod::memory::{ProbeKind, Verdict, Verdicts};
use crate::pod::spec;
use crate::runtime::{Observed, RunState, Runtime};
use crate::wake::Wakers;

/// How often a probe that waits for startup looks again.
const GATE: Duration = Duration::from_millis(50);
/// How soon a container that is not ready yet is asked for the second time; the pause doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_FIRST_PAUSE: Duration = Duration::from_millis(500);

struct Probed {
    verdict: Verdict,
    tasks: Vec<(ProbeKind, AbortHandle)>,
}

type Board = BTreeMap<String, BTreeMap<String, Probed>>;

/// All probes of this node.
pub struct Probes {
    runtime: Runtime,
    events: Events,
    wakers: Wakers,
    board: Mutex<Board>,
    counts: Mutex<Counts>,
}

/// Which probe said what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Said {
    /// The Pod's UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// Which probe.
    pub kind: ProbeKind,
    /// `successful`, `failed` or `unknown`.
    pub result: &'static str,
}

/// How often each probe said what.
pub type Counts = BTreeMap<Said, u64>;

struct Task {
    pod: Pod,
    container: Container,
    probe: Probe,
    kind: ProbeKind,
    id: String,
    ip: String,
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    let value = value.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0);
    Duration::from_secs(value.unwrap_or(default))
}

impl Probes {
    /// Without any probe yet.
    #[must_use]
    pub fn new(runtime: Runtime, events: Events, wakers: Wakers) -> Self {
        Self { runtime, events, wakers, board: Mutex::default(), counts: Mutex::default() }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts probes of containers that run, ends those of containers that do not. While the Pod is being ended
    /// only readiness goes on.
    pub fn sync(self: &Arc<Self>, pod: &Pod, observed: &Observed, address: &str, stopping: bool) {
        let uid = spec::uid(pod);
        let running: Vec<_> = observed.containers.iter().filter(|c| c.state == RunState::Running).collect();
        let mut board = self.board();
        let of_pod = board.entry(uid.to_owned()).or_default();
        of_pod.retain(|id, probed| {
            let keep = running.iter().any(|c| c.id == *id);
            for (kind, task) in &probed.tasks {
                if !keep || (stopping && *kind != ProbeKind::Readiness) {
                    task.abort();
                }
            }
            keep
        });
        for view in running {
            let Some(container) = spec::find(pod, &view.name) else { continue };
            let container = container.as_ref();
            let probes = probes_of(container);
            if probes.is_empty() || of_pod.contains_key(&view.id) || stopping {
                continue;
            }
            let verdict = first_verdict(pod, container, &view.id);
            of_pod.insert(view.id.clone(), Probed { verdict, tasks: Vec::new() });
            for (kind, probe) in probes {
                let task = Task {
                    pod: pod.clone(),
                    container: container.clone(),
                    probe: probe.clone(),
                    kind,
                    id: view.id.clone(),
                    ip: address.to_owned(),
                };
                let handle = tokio::spawn(self.clone().run(task)).abort_handle();
                if let Some(probed) = of_pod.get_mut(&view.id) {
                    probed.tasks.push((kind, handle));
                }
            }
        }
    }

    /// What the probes say of a Pod's containers.
    #[must_use]
    pub fn verdicts(&self, uid: &str) -> Verdicts {
        let board = self.board();
        let of_pod = board.get(uid).into_iter().flatten();
        of_pod.map(|(id, probed)| (id.clone(), probed.verdict)).collect()
    }

    /// How often each probe said what.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, task: &Task, result: Option<&Result<(), String>>) {
        let said = Said {
            uid: spec::uid(&task.pod).to_owned(),
            namespace: spec::namespace(&task.pod).to_owned(),
            pod: spec::name(&task.pod).to_owned(),
            container: task.container.name.clone(),
            kind: task.kind,
            result: match result {
                Some(Ok(())) => "successful",
                Some(Err(_)) => "failed",
                None => "unknown",
            },
        };
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(said).or_default() += 1;
    }

    /// Ends all probes of a Pod.
    pub fn forget(&self, uid: &str) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).retain(|said, _| said.uid != uid);
        for probed in self.board().remove(uid).into_iter().flat_map(BTreeMap::into_values) {
            probed.tasks.iter().for_each(|(_, task)| task.abort());
        }
    }

    fn verdict(&self, task: &Task) -> Option<Verdict> {
        Some(self.board().get(spec::uid(&task.pod))?.get(&task.id)?.verdict)
    }

    fn set(&self, task: &Task, change: impl FnOnce(&mut Verdict)) {
        let changed = {
            let mut board = self.board();
            let probed = board.get_mut(spec::uid(&task.pod)).and_then(|of_pod| of_pod.get_mut(&task.id));
            probed.is_some_and(|probed| {
                let before = probed.verdict;
                change(&mut probed.verdict);
                before != probed.verdict
            })
        };
        if changed {
            self.wakers.wake(spec::uid(&task.pod));
        }
    }

    async fn run(self: Arc<Self>, task: Task) {
        let period = seconds(task.probe.period_seconds, 10);
        let timeout = seconds(task.probe.timeout_seconds, 1);
        let delay = u64::try_from(task.probe.initial_delay_seconds.unwrap_or_default()).unwrap_or_default();
        tokio::time::sleep(Duration::from_secs(delay)).await;
        let mut tally =
            Tally::new(task.probe.success_threshold.unwrap_or(1), task.probe.failure_threshold.unwrap_or(3));
        let mut starting =
            task.kind == ProbeKind::Readiness && self.verdict(&task).is_some_and(|v| v.ready == Some(false));
        loop {
            // Until the container has started, only its startup probe runs.
            loop {
                match self.verdict(&task) {
                    None => return,
                    Some(verdict) if task.kind == ProbeKind::Startup || verdict.started != Some(false) => {
                        break;
                    }
                    Some(_) => tokio::time::sleep(GATE).await,
                }
            }
            let next = tokio::time::Instant::now() + period;
            let target = Target { container: &task.container, ip: &task.ip };
            let attempt = || attempt::probe(&self.runtime, &task.probe, &target, &task.id, timeout);
            let mut result = attempt().await;
            // A container that has just started is asked again soon instead of a period later: what counts, and is told,
            // is what it said last.
            let mut pause = FIRST_PAUSE;
            while starting && matches!(result, Some(Err(_))) {
                if tokio::time::Instant::now() + pause >= next {
                    break;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_FIRST_PAUSE);
                result = attempt().await;
            }
            starting &= !matches!(result, Some(Ok(())));
            self.count(&task, result.as_ref());
            if let Some(result) = result
                && self.judge(&task, &mut tally, result)
            {
                return;
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// Notes a result; true if this probe has said all that it will.
    fn judge(&self, task: &Task, tally: &mut Tally, result: Result<(), String>) -> bool {
        if let Err(output) = &result {
            let text = format!("{} probe failed: {output}", task.kind.word());
            self.events.container(&task.pod, &task.container.name, Level::Warning, "Unhealthy", text);
        }
        let Some(success) = tally.note(result.is_ok()) else { return false };
        match (task.kind, success) {
            (ProbeKind::Readiness, ready) => {
                self.set(task, |v| v.ready = Some(ready));
                false
            }
            (ProbeKind::Startup, true) => {
                self.set(task, |v| v.started = Some(true));
                true
            }
            (kind, false) => {
                self.set(task, |v| v.failed = Some(kind));
                true
            }
            (ProbeKind::Liveness, true) => false,
        }
    }
}

fn probes_of(container: &Container) -> Vec<(ProbeKind, &Probe)> {
    let all = [
        (ProbeKind::Startup, container.startup_probe.as_ref()),
        (ProbeKind::Liveness, container.liveness_probe.as_ref()),
        (ProbeKind::Readiness, container.readiness_probe.as_ref()),
    ];
    all.into_iter().filter_map(|(kind, probe)| Some((kind, probe?))).collect()
}

/// Not started and not ready, unless the API server says that this very container was: then it is one that a
/// former kubelet looked after, and a restart of the kubelet is no reason to take it out of service.
fn first_verdict(pod: &Pod, container: &Container, id: &str) -> Verdict {
    let status = pod.status.as_ref();
    let lists = [
        status.and_then(|s| s.container_statuses.as_ref()),
        status.and_then(|s| s.init_container_statuses.as_ref()),
    ];
    let mut known = lists.into_iter().flatten().flatten();
    let same =
        known.find(|c| c.container_id.as_deref().is_some_and(|known| known.ends_with(&format!("://{id}"))));
    Verdict {
        started: container.startup_probe.as_ref().map(|_| same.and_then(|c| c.started).unwrap_or_default()),
        ready: container.readiness_probe.as_ref().map(|_| same.is_some_and(|c| c.ready)),
        failed: None,
    }
}
