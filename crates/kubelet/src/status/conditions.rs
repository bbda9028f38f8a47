//! The Pod's conditions, purely.

use trine_typed::k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

use crate::eviction::orders;
use crate::pod::spec;

/// What the conditions are made from.
pub struct ConditionInput<'a> {
    /// The Pod, with the conditions that others set.
    pub pod: &'a Pod,
    /// Its phase.
    pub phase: &'a str,
    /// Statuses of the init containers.
    pub init: &'a [ContainerStatus],
    /// Statuses of the main containers.
    pub main: &'a [ContainerStatus],
    /// Whether the sandbox has its network.
    pub sandbox_ready: bool,
}

fn condition(kind: &str, reason_if_false: Option<(&str, String)>) -> PodCondition {
    let (status, reason, message) = match reason_if_false {
        None => ("True", None, None),
        Some((reason, message)) => {
            ("False", Some(reason.to_owned()), Some(message).filter(|m| !m.is_empty()))
        }
    };
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.filter(|r| !r.is_empty()),
        message,
        ..Default::default()
    }
}

/// All of the kubelet's conditions, in upstream's order.
#[must_use]
pub fn conditions(input: &ConditionInput<'_>) -> Vec<PodCondition> {
    let containers_ready = containers_ready(input);
    let ready = ready(input, containers_ready.as_ref());
    vec![
        condition("PodReadyToStartContainers", (!input.sandbox_ready).then(|| ("", String::new()))),
        initialized(input),
        condition("Ready", ready),
        condition("ContainersReady", containers_ready),
        condition("PodScheduled", None),
    ]
}

/// That the node and not the Pod is why it fails: what watches over it, a Job say, need not count that.
#[must_use]
pub fn disrupted(reason: &str, message: &str) -> Option<PodCondition> {
    (reason == orders::REASON).then(|| PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some("TerminationByKubelet".to_owned()),
        message: Some(message.to_owned()),
        ..Default::default()
    })
}

fn initialized(input: &ConditionInput<'_>) -> PodCondition {
    let begun = input.main.iter().any(|s| {
        s.state.as_ref().is_some_and(|s| s.running.is_some() || s.terminated.is_some())
            || s.last_state.as_ref().is_some_and(|s| s.terminated.is_some())
    });
    let incomplete: Vec<&str> = spec::init_containers(input.pod)
        .iter()
        .filter(|c| {
            let status = input.init.iter().find(|s| s.name == c.name);
            let done = status.is_some_and(|s| s.ready || (spec::is_sidecar(c) && s.started == Some(true)));
            !done
        })
        .map(|c| c.name.as_str())
        .collect();
    if incomplete.is_empty() || begun {
        let mut done = condition("Initialized", None);
        if input.phase == "Succeeded" {
            done.reason = Some("PodCompleted".to_owned());
        }
        return done;
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    condition("Initialized", Some(("ContainersNotInitialized", message)))
}

fn containers_ready(input: &ConditionInput<'_>) -> Option<(&'static str, String)> {
    match input.phase {
        "Succeeded" => return Some(("PodCompleted", String::new())),
        "Failed" => return Some(("PodFailed", String::new())),
        _ => {}
    }
    let sidecars = spec::init_containers(input.pod).iter().filter(|c| spec::is_sidecar(c));
    let mut unready = Vec::new();
    let mut unknown = Vec::new();
    for container in sidecars.chain(spec::containers(input.pod)) {
        match input.init.iter().chain(input.main).find(|s| s.name == container.name) {
            Some(status) if status.ready => {}
            Some(_) => unready.push(container.name.as_str()),
            None => unknown.push(container.name.as_str()),
        }
    }
    let mut parts = Vec::new();
    if !unknown.is_empty() {
        parts.push(format!("containers with unknown status: [{}]", unknown.join(" ")));
    }
    if !unready.is_empty() {
        parts.push(format!("containers with unready status: [{}]", unready.join(" ")));
    }
    (!parts.is_empty()).then(|| ("ContainersNotReady", parts.join(", ")))
}

fn ready(
    input: &ConditionInput<'_>,
    containers: Option<&(&'static str, String)>,
) -> Option<(&'static str, String)> {
    if let Some((reason, message)) = containers {
        return Some((reason, message.clone()));
    }
    let gates = input.pod.spec.as_ref().and_then(|s| s.readiness_gates.as_deref()).unwrap_or_default();
    let set = input.pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let missing: Vec<String> = gates
        .iter()
        .filter_map(|gate| match set.iter().find(|c| c.type_ == gate.condition_type) {
            None => Some(format!(
                "corresponding condition of pod readiness gate {:?} does not exist.",
                gate.condition_type
            )),
            Some(c) if c.status != "True" => Some(format!(
                "the status of pod readiness gate {:?} is not \"True\", but {}",
                gate.condition_type, c.status
            )),
            Some(_) => None,
        })
        .collect();
    (!missing.is_empty()).then(|| ("ReadinessGatesNotReady", missing.join(", ")))
}
