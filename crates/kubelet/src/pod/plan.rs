//! What to do next for a Pod. Pure: what is wanted, what runs, what is remembered and the time go in, actions
//! come out. The executor performs them, looks again, and asks again.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod};

use super::memory::{Memory, ProbeKind, Verdicts};
use super::spec::{self, Restart};
use crate::resize::Numbers;
use crate::resize::plan::{Due, due};
use crate::runtime::labels;
use crate::runtime::{ContainerView, Observed, RunState, SandboxView};

/// How long a failed pull is shown as such before it becomes a back-off.
const SHOW_FAILURE: Duration = Duration::from_secs(1);

/// Key of the sandbox's back-off.
pub const SANDBOX: &str = "sandbox";

/// Everything that the plan looks at.
pub struct Situation<'a> {
    /// What is wanted.
    pub pod: &'a Pod,
    /// What the runtime has.
    pub observed: &'a Observed,
    /// What is remembered.
    pub memory: &'a Memory,
    /// What the probes say.
    pub verdicts: &'a Verdicts,
    /// What each container's group is to have.
    pub numbers: &'a BTreeMap<String, Numbers>,
    /// Whether all volumes are there.
    pub volumes_ready: bool,
    /// Whether the node's network is ready.
    pub network_ready: bool,
    /// `Some(grace)` if all must end, with so many seconds of grace.
    pub stopping: Option<i64>,
    /// The time.
    pub now: Timestamp,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make a sandbox.
    CreateSandbox {
        /// How many there were before.
        attempt: u32,
    },
    /// Stop a sandbox, after what runs in it was killed.
    StopSandbox {
        /// Its id.
        id: String,
    },
    /// Remove a stopped, empty sandbox.
    RemoveSandbox {
        /// Its id.
        id: String,
    },
    /// Say that the sandbox is made again.
    AnnounceSandboxChanged,
    /// Say that the network is not ready.
    AnnounceNetworkNotReady,
    /// Pull, make and start a container.
    Start {
        /// Its name.
        container: String,
        /// How many there were before.
        attempt: u32,
        /// Where.
        sandbox: String,
        /// Whether the one before ended, so that the crash back-off counts.
        restart: bool,
    },
    /// Say that a container waits because it crashed.
    AnnounceCrash {
        /// Its name.
        container: String,
        /// The id of the one that crashed.
        id: String,
    },
    /// Say that an image is not pulled for a while.
    AnnouncePullBackOff {
        /// Name of the container that needs it.
        container: String,
    },
    /// Kill one container.
    Kill {
        /// Its id.
        id: String,
        /// Its name.
        container: String,
        /// What the event says.
        why: String,
        /// Which probe asks for it; its own grace counts.
        probe: Option<ProbeKind>,
    },
    /// Change what a running container's group has.
    Resize {
        /// Its id.
        id: String,
        /// Its name.
        container: String,
    },
    /// Remove a container that is no longer of interest.
    RemoveContainer {
        /// Its id.
        id: String,
    },
    /// Kill everything, sidecars last.
    KillPod {
        /// Seconds for all.
        grace: i64,
    },
}

/// The actions, and when to look again although nothing happened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// In this order.
    pub actions: Vec<Action>,
    /// Earliest end of a back-off.
    pub wake: Option<Timestamp>,
    /// All that had to stop has stopped.
    pub stopped: bool,
}

impl Plan {
    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
    }
}

/// Decides.
#[must_use]
pub fn plan(s: &Situation<'_>) -> Plan {
    let mut plan = Plan::default();
    if let Some(grace) = s.stopping {
        stop_all(s, grace, &mut plan);
        return plan;
    }
    match s.observed.sandbox().filter(|b| usable(b)) {
        Some(sandbox) => {
            let older = s.observed.sandboxes.iter().skip(1).filter(|b| b.ready);
            plan.actions.extend(older.map(|b| Action::StopSandbox { id: b.id.clone() }));
            containers(s, sandbox, &mut plan);
            collect_garbage(s, sandbox, &mut plan);
        }
        None => sandbox(s, &mut plan),
    }
    plan
}

fn usable(sandbox: &SandboxView) -> bool {
    sandbox.ready && (sandbox.host_network || !sandbox.ips.is_empty())
}

fn stop_all(s: &Situation<'_>, grace: i64, plan: &mut Plan) {
    let alive = |c: &&ContainerView| matches!(c.state, RunState::Running | RunState::Unknown);
    if s.observed.containers.iter().any(|c| alive(&c)) {
        plan.actions.push(Action::KillPod { grace });
        return;
    }
    let ready: Vec<_> = s.observed.sandboxes.iter().filter(|b| b.ready).collect();
    plan.stopped = ready.is_empty();
    plan.actions.extend(ready.into_iter().map(|b| Action::StopSandbox { id: b.id.clone() }));
}

/// No usable sandbox: make one, unless the Pod is over.
fn sandbox(s: &Situation<'_>, plan: &mut Plan) {
    let last = s.observed.sandbox();
    if last.is_some() && !wants_more(s) {
        for old in s.observed.sandboxes.iter().filter(|b| b.ready) {
            plan.actions.push(Action::StopSandbox { id: old.id.clone() });
        }
        return;
    }
    if !s.volumes_ready {
        return;
    }
    if !s.network_ready && !spec::host_network(s.pod) {
        if !s.memory.network_announced {
            plan.actions.push(Action::AnnounceNetworkNotReady);
        }
        return;
    }
    if let Some(failed) = s.memory.sandbox_failed
        && let Some(until) = s.memory.sandboxes.until(SANDBOX, failed, s.now)
    {
        plan.wake_at(until);
        return;
    }
    // A sandbox that never had a container is a failed attempt of ours, not a change worth an event.
    if last.is_some_and(|old| s.observed.containers.iter().any(|c| c.sandbox == old.id)) {
        plan.actions.push(Action::AnnounceSandboxChanged);
    }
    for container in s.observed.containers.iter().filter(|c| c.state == RunState::Running) {
        plan.actions.push(Action::Kill {
            id: container.id.clone(),
            container: container.name.clone(),
            why: format!("Stopping container {}", container.name),
            probe: None,
        });
    }
    for old in &s.observed.sandboxes {
        if old.ready || !s.observed.containers.iter().any(|c| c.sandbox == old.id) {
            plan.actions.push(Action::StopSandbox { id: old.id.clone() });
        }
        if !s.observed.containers.iter().any(|c| c.sandbox == old.id) {
            plan.actions.push(Action::RemoveSandbox { id: old.id.clone() });
        }
    }
    plan.actions.push(Action::CreateSandbox { attempt: last.map_or(0, |b| b.attempt + 1) });
}

/// Whether a Pod that lost its sandbox has anything left to run.
fn wants_more(s: &Situation<'_>) -> bool {
    match spec::restart(s.pod) {
        Restart::Always => true,
        Restart::Never => s.observed.containers.is_empty(),
        Restart::OnFailure => spec::containers(s.pod).iter().any(|c| {
            s.observed.latest(&c.name).is_none_or(|v| v.state != RunState::Exited || v.exit_code != 0)
        }),
    }
}

fn containers(s: &Situation<'_>, sandbox: &SandboxView, plan: &mut Plan) {
    // A main container in this sandbox means that the init containers are done.
    let begun = spec::containers(s.pod).iter().any(|c| s.observed.latest_in(&sandbox.id, &c.name).is_some());
    for container in spec::init_containers(s.pod) {
        let sidecar = spec::is_sidecar(container);
        if begun && !sidecar {
            continue;
        }
        let done = one(s, sandbox, container, plan);
        if !done && !begun {
            return;
        }
    }
    for container in spec::containers(s.pod) {
        one(s, sandbox, container, plan);
    }
    // Debugging must not wait for what is to be debugged, and is not begun anew in another sandbox.
    for container in spec::ephemeral_containers(s.pod) {
        let runs = |name: &str| {
            s.observed.latest_in(&sandbox.id, name).is_some_and(|v| v.state == RunState::Running)
        };
        let fresh = s.observed.latest(&container.name).is_none() && !was_begun(s.pod, &container.name);
        if fresh && spec::target(s.pod, &container.name).is_none_or(runs) {
            start(s, sandbox, &container, None, plan);
        }
    }
}

/// Whether the API server knows of an ephemeral container that has run.
fn was_begun(pod: &Pod, name: &str) -> bool {
    let mut known = pod.status.iter().flat_map(|s| s.ephemeral_container_statuses.iter().flatten());
    known.any(|c| c.name == name && c.container_id.as_deref().is_some_and(|id| !id.is_empty()))
}

/// Plans for one container; true if what comes after an init container of this name may start.
fn one(s: &Situation<'_>, sandbox: &SandboxView, container: &Container, plan: &mut Plan) -> bool {
    let sidecar = spec::is_sidecar(container);
    let Some(view) = s.observed.latest_in(&sandbox.id, &container.name) else {
        start(s, sandbox, container, None, plan);
        return false;
    };
    match view.state {
        RunState::Running => {
            let changed = !view.hash.is_empty() && view.hash != labels::hash(container);
            let failed = s.verdicts.get(&view.id).and_then(|v| v.failed);
            if changed {
                kill(view, "definition changed, will be restarted".to_owned(), None, plan);
            } else if let Some(probe) = failed {
                let again = spec::restart_of(s.pod, container) != Restart::Never;
                let then = if again { ", will be restarted" } else { "" };
                let text = format!("failed {} probe{then}", probe.word().to_lowercase());
                kill(view, text, Some(probe), plan);
            } else {
                resize(s, container, view, plan);
            }
            let up = !s.memory.post_start.contains(&view.id)
                && s.verdicts.get(&view.id).and_then(|v| v.started) != Some(false);
            sidecar && up && !changed && failed.is_none()
        }
        RunState::Created | RunState::Unknown => {
            start(s, sandbox, container, Some(view), plan);
            false
        }
        RunState::Exited => {
            let policy = spec::restart_of(s.pod, container);
            let init = spec::is_init(s.pod, &container.name) && !sidecar;
            if init && view.exit_code == 0 {
                return true;
            }
            if policy.again(view.exit_code) {
                start(s, sandbox, container, Some(view), plan);
            }
            false
        }
    }
}

/// Gives a running container what it is to have now.
fn resize(s: &Situation<'_>, container: &Container, view: &ContainerView, plan: &mut Plan) {
    let (name, id) = (container.name.clone(), view.id.clone());
    match due(container, view, s.numbers.get(&name), s.memory.resized.get(&id)) {
        Due::Nothing => {}
        Due::Change => plan.actions.push(Action::Resize { id, container: name }),
        Due::Restart => kill(view, "resize requires restart".to_owned(), None, plan),
    }
}

fn kill(view: &ContainerView, text: String, probe: Option<ProbeKind>, plan: &mut Plan) {
    plan.actions.push(Action::Kill {
        id: view.id.clone(),
        container: view.name.clone(),
        why: format!("Container {} {text}", view.name),
        probe,
    });
}

/// Starts a container, unless it must wait.
fn start(
    s: &Situation<'_>,
    sandbox: &SandboxView,
    container: &Container,
    before: Option<&ContainerView>,
    plan: &mut Plan,
) {
    let name = &container.name;
    // After a restart of the kubelet the volumes of a running Pod are looked at again first.
    if !s.volumes_ready {
        return;
    }
    if let Some(failure) = s.memory.failures.get(name)
        && failure.retry > s.now
    {
        if failure.image.is_some() && !failure.announced {
            match failure.at.checked_add(SHOW_FAILURE) {
                Ok(show) if show > s.now => plan.wake_at(show),
                _ => plan.actions.push(Action::AnnouncePullBackOff { container: name.clone() }),
            }
        }
        plan.wake_at(failure.retry);
        return;
    }
    let crashed = before.filter(|v| v.state == RunState::Exited);
    if let Some(view) = crashed {
        let finished = Timestamp::from_nanosecond(i128::from(view.finished_at)).unwrap_or(s.now);
        if let Some(until) = s.memory.crashes.until(name, finished, s.now) {
            if !s.memory.announced.contains_key(&view.id) {
                plan.actions.push(Action::AnnounceCrash { container: name.clone(), id: view.id.clone() });
            }
            plan.wake_at(until);
            return;
        }
    }
    plan.actions.push(Action::Start {
        container: name.clone(),
        attempt: next_attempt(s, name),
        sandbox: sandbox.id.clone(),
        restart: crashed.is_some(),
    });
}

/// One more than the last; what the runtime no longer knows is read off the Pod's own status.
fn next_attempt(s: &Situation<'_>, name: &str) -> u32 {
    if let Some(last) = s.observed.latest(name) {
        return last.attempt + 1;
    }
    let status = s.pod.status.as_ref();
    let lists = [
        status.and_then(|s| s.container_statuses.as_ref()),
        status.and_then(|s| s.init_container_statuses.as_ref()),
    ];
    let mut known = lists.into_iter().flatten().flatten();
    known
        .find(|c| c.name == name && c.container_id.as_deref().is_some_and(|id| !id.is_empty()))
        .map_or(0, |c| u32::try_from(c.restart_count).unwrap_or_default() + 1)
}

/// Keeps the newest container of each name and the one before it, and sandboxes that hold one of those.
fn collect_garbage(s: &Situation<'_>, current: &SandboxView, plan: &mut Plan) {
    let mut kept = Vec::new();
    for view in &s.observed.containers {
        let older = kept.iter().filter(|k: &&&ContainerView| k.name == view.name).count();
        if older < 2 || view.state == RunState::Running {
            kept.push(view);
        } else {
            plan.actions.push(Action::RemoveContainer { id: view.id.clone() });
        }
    }
    for old in s.observed.sandboxes.iter().filter(|b| b.id != current.id && !b.ready) {
        if !kept.iter().any(|c| c.sandbox == old.id) {
            plan.actions.push(Action::RemoveSandbox { id: old.id.clone() });
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
