//! A container that is not made or not started.

use crate::evidence::{Evidence, event_line};
use crate::verdict::{Plane, Verdict};

pub fn judge(evidence: &Evidence) -> Option<Verdict> {
    let refused = |reason: &str| {
        matches!(reason, "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError")
    };
    let found = evidence.containers().find_map(|c| {
        let waiting = c.state.as_ref().and_then(|s| s.waiting.as_ref());
        let reason = waiting.and_then(|w| w.reason.clone()).unwrap_or_default();
        let message = waiting.and_then(|w| w.message.clone()).unwrap_or_default();
        if refused(&reason) {
            return Some((c, reason, message));
        }
        // A start that failed leaves its trace in the last state once the back-off has begun.
        let state = c.state.as_ref().and_then(|s| s.terminated.as_ref());
        let last = c.last_state.as_ref().and_then(|s| s.terminated.as_ref());
        let ended = state.or(last)?;
        let never_ran = matches!(ended.reason.as_deref(), Some("StartError" | "ContainerCannotRun"));
        never_ran.then(|| (c, "RunContainerError".to_owned(), ended.message.clone().unwrap_or_default()))
    });
    let (container, reason, message) = found?;
    let config = reason == "CreateContainerConfigError";
    let step = match reason.as_str() {
        "CreateContainerConfigError" => "container config",
        "CreateContainerError" => "CreateContainer",
        _ => "StartContainer",
    };
    let not_found = ["not found in $PATH", "no such file or directory", "executable file not found"];
    let command = step == "StartContainer" && not_found.iter().any(|w| message.contains(w));
    let cause = if command {
        format!("container {}: its command is not in the image: {message}", container.name)
    } else {
        format!("container {}: {message}", container.name)
    };
    let mut proof = vec![format!("container {} {reason}: {message}", container.name)];
    proof.extend(evidence.latest(&["Failed"]).map(event_line));
    let (name, namespace) = (evidence.name(), evidence.namespace());
    Some(Verdict {
        plane: if config { Plane::App } else { Plane::Cri },
        step: step.to_owned(),
        cause,
        proof,
        next: if command {
            format!("kubectl get pod {name} -n {namespace} -o jsonpath='{{.spec.containers[*].command}}'")
        } else {
            format!("kubectl describe pod {name} -n {namespace}")
        },
    })
}
