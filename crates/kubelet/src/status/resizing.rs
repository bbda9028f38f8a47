//! What containers have, and whether that is what they were given. Pure.

use serde_json::{Value, json};
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodStatus};

use super::containers::known;
use super::generate::StatusInput;
use crate::pod::spec;
use crate::resize::plan::{Due, due};
use crate::runtime::{ContainerView, RunState};

/// Conditions that are there only while they are true.
pub const OURS: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

/// Whether a container that runs does not have yet what it was given.
fn awaits(input: &StatusInput<'_>, container: &Container, view: &ContainerView) -> bool {
    let set = input.memory.resized.get(&view.id);
    due(container, view, input.numbers.get(&container.name), set) != Due::Nothing
}

/// Writes what the container was given and what it has.
pub fn resources(input: &StatusInput<'_>, container: &Container, status: &mut ContainerStatus) {
    if !spec::all(input.pod).any(|c| c.name == container.name) {
        return;
    }
    let given = container.resources.clone().unwrap_or_default();
    status.allocated_resources = given.requests.clone().filter(|requests| !requests.is_empty());
    let running = input.observed.latest(&container.name).filter(|v| v.state == RunState::Running);
    let before = || known(input, &container.name)?.resources.clone();
    status.resources = match running.filter(|view| awaits(input, container, view)) {
        Some(_) => before().or(Some(given)),
        None => Some(given),
    };
}

/// The conditions of [`OURS`] that are true.
#[must_use]
pub fn conditions(input: &StatusInput<'_>) -> Vec<PodCondition> {
    let condition = |kind: &str, reason: Option<String>, message: Option<String>| PodCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason,
        message,
        ..PodCondition::default()
    };
    let mut conditions = Vec::new();
    if let Some(pending) = input.pending {
        let (reason, message) = (pending.reason.to_owned(), pending.message.clone());
        conditions.push(condition(OURS[0], Some(reason), Some(message)));
    }
    let unsettled = |container: &Container| {
        let view = input.observed.latest(&container.name).filter(|view| awaits(input, container, view))?;
        Some(input.memory.resize_errors.get(&view.id).cloned())
    };
    let waiting: Vec<Option<String>> =
        if input.stopping { Vec::new() } else { spec::all(input.pod).filter_map(unsettled).collect() };
    if !waiting.is_empty() {
        let error = waiting.into_iter().flatten().next();
        conditions.push(condition(OURS[1], error.as_ref().map(|_| "Error".to_owned()), error));
    }
    conditions
}

/// Something about a change that is worth an event.
pub struct News {
    /// The event's reason.
    pub event: &'static str,
    /// Its level.
    pub level: Level,
    /// What its message begins with.
    begins: &'static str,
    /// Why, if something is in the way.
    why: Option<String>,
    /// Whether it is about what the spec asks for, in contrast to what was given.
    pub of_spec: bool,
}

/// What `fresh` says that `old` did not.
#[must_use]
pub fn news(old: &PodStatus, fresh: &PodStatus) -> Vec<News> {
    let find = |status: &PodStatus, kind: &str| -> Option<(Option<String>, Option<String>)> {
        let mut all = status.conditions.iter().flatten();
        all.find(|c| c.type_ == kind).map(|c| (c.reason.clone(), c.message.clone()))
    };
    let mut said = Vec::new();
    let mut say = |event, level, begins, why, of_spec| said.push(News { event, level, begins, why, of_spec });
    if let (before, Some((reason, why))) = (find(old, OURS[0]), find(fresh, OURS[0]))
        && before.as_ref() != Some(&(reason.clone(), why.clone()))
    {
        match reason.as_deref() {
            Some("Infeasible") => {
                say("ResizeInfeasible", Level::Warning, "Pod resize Infeasible", why, true);
            }
            _ => say("ResizeDeferred", Level::Warning, "Pod resize Deferred", why, true),
        }
    }
    match (find(old, OURS[1]), find(fresh, OURS[1])) {
        (None, Some((None, _))) => say("ResizeStarted", Level::Normal, "Pod resize started", None, false),
        (before, Some((Some(error), why))) if before != Some((Some(error.clone()), why.clone())) => {
            say("ResizeError", Level::Warning, "Pod resize error", why, false);
        }
        (Some(_), None) => say("ResizeCompleted", Level::Normal, "Pod resize completed", None, false),
        _ => {}
    }
    said
}

/// The event's message: what each container has, or is to have.
#[must_use]
pub fn message(pod: &Pod, news: &News) -> String {
    let list = |containers: &[Container]| -> Vec<Value> {
        containers.iter().map(|c| json!({"name": c.name, "resources": c.resources})).collect()
    };
    let mut summary =
        json!({"containers": list(spec::containers(pod)), "generation": pod.metadata.generation});
    let init = list(spec::init_containers(pod));
    if !init.is_empty() {
        summary["initContainers"] = init.into();
    }
    if let Some(why) = &news.why {
        summary["error"] = why.clone().into();
    }
    format!("{}: {summary}", news.begins)
}
