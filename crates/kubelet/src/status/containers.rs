//! Container statuses, purely.

use jiff::Timestamp;
use trine_typed::k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus,
};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::generate::StatusInput;
use super::resizing;
use crate::pod::spec;
use crate::runtime::{ContainerView, RunState};

fn time(nanos: i64) -> Option<Time> {
    let seconds = Timestamp::from_second(nanos / 1_000_000_000).ok()?;
    (nanos > 0).then_some(Time(seconds))
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let message = (!message.is_empty()).then(|| message.to_owned());
    let waiting = Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message });
    ContainerState { waiting, ..Default::default() }
}

/// The state of a container that ended.
fn terminated(input: &StatusInput<'_>, view: &ContainerView) -> ContainerState {
    let own = input.memory.messages.get(&view.id).filter(|m| !m.is_empty());
    let message = own.cloned().or_else(|| (!view.message.is_empty()).then(|| view.message.clone()));
    let reason = match (view.reason.as_str(), view.exit_code) {
        ("", 0) => "Completed",
        ("", _) => "Error",
        (reason, _) => reason,
    };
    let terminated = ContainerStateTerminated {
        container_id: Some(format!("{}://{}", input.runtime, view.id)),
        exit_code: view.exit_code,
        reason: Some(reason.to_owned()),
        message,
        started_at: time(view.started_at),
        finished_at: time(view.finished_at),
        signal: None,
    };
    ContainerState { terminated: Some(terminated), ..Default::default() }
}

/// The status that the API server has of a container, if it is worth more than nothing.
pub(super) fn known<'a>(input: &StatusInput<'a>, name: &str) -> Option<&'a ContainerStatus> {
    let status = input.pod.status.as_ref()?;
    let lists = [
        status.container_statuses.as_ref(),
        status.init_container_statuses.as_ref(),
        status.ephemeral_container_statuses.as_ref(),
    ];
    lists.into_iter().flatten().flatten().find(|c| c.name == name)
}

/// The status of one container.
#[must_use]
pub fn status(input: &StatusInput<'_>, container: &Container) -> ContainerStatus {
    let name = &container.name;
    let latest = input.observed.latest(name);
    let mut status = ContainerStatus {
        name: name.clone(),
        image: container.image.clone().unwrap_or_default(),
        started: Some(false),
        ..Default::default()
    };
    resizing::resources(input, container, &mut status);
    let Some(view) = latest else { return not_there(input, container, status) };
    status.restart_count = i32::try_from(view.attempt).unwrap_or(i32::MAX);
    status.image_id.clone_from(&view.image_id);
    status.container_id = Some(format!("{}://{}", input.runtime, view.id));
    if !view.image.is_empty() {
        status.image.clone_from(&view.image);
    }
    let previous = input.observed.previous(name).filter(|p| p.state == RunState::Exited);
    status.last_state =
        previous.map(|p| terminated(input, p)).or_else(|| known(input, name)?.last_state.clone());
    let verdict = input.verdicts.get(&view.id).copied().unwrap_or_default();
    match view.state {
        RunState::Running => {
            let up = !input.memory.post_start.contains(&view.id) && verdict.started.unwrap_or(true);
            status.started = Some(up);
            status.ready = up && verdict.ready.unwrap_or(true);
            let running = Some(ContainerStateRunning { started_at: time(view.started_at) });
            status.state = Some(ContainerState { running, ..Default::default() });
        }
        RunState::Exited => ended(input, container, view, &mut status),
        RunState::Created | RunState::Unknown => {
            status.state = Some(waiting_state(input, container));
        }
    }
    status
}

/// Ended: it stays so, or waits for its next start.
fn ended(input: &StatusInput<'_>, container: &Container, view: &ContainerView, status: &mut ContainerStatus) {
    let state = terminated(input, view);
    let again = !input.stopping && spec::restart_of(input.pod, container).again(view.exit_code);
    match input.memory.waiting.get(&container.name) {
        Some(w) if again => {
            status.last_state = Some(state);
            status.state = Some(waiting(&w.reason, &w.message));
        }
        _ => status.state = Some(state),
    }
    let init = spec::is_init(input.pod, &container.name) && !spec::is_sidecar(container);
    status.ready = init && view.exit_code == 0;
}

/// The runtime has none: never made, or its records are gone.
fn not_there(input: &StatusInput<'_>, container: &Container, mut status: ContainerStatus) -> ContainerStatus {
    if let Some(old) = known(input, &container.name) {
        let ended = old.state.as_ref().is_some_and(|s| s.terminated.is_some());
        let past = input.stopping || spec::ended(input.pod) || !spec::is_main(input.pod, &container.name);
        if ended && past {
            return old.clone();
        }
        status.restart_count = old.restart_count;
        status.last_state = match &old.state {
            Some(state) if state.terminated.is_some() => Some(state.clone()),
            _ => old.last_state.clone(),
        };
    }
    status.state = Some(waiting_state(input, container));
    status
}

fn waiting_state(input: &StatusInput<'_>, container: &Container) -> ContainerState {
    match input.memory.waiting.get(&container.name) {
        Some(w) => waiting(&w.reason, &w.message),
        None if spec::init_containers(input.pod).is_empty() => waiting("ContainerCreating", ""),
        None => waiting("PodInitializing", ""),
    }
}
