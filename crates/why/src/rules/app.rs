//! The planes did their part: what is left is the program's.

use trine_typed::k8s_openapi::api::core::v1::ContainerStateTerminated;

use crate::evidence::{Evidence, event_line};
use crate::verdict::{Plane, Verdict};

/// A Pod that has ended.
pub fn finished(evidence: &Evidence) -> Option<Verdict> {
    let status = evidence.pod.status.as_ref()?;
    if status.phase.as_deref() != Some("Failed") {
        return None;
    }
    if let Some(reason) = &status.reason {
        let message = status.message.clone().unwrap_or_default();
        let next = format!("kubectl describe pod {} -n {}", evidence.name(), evidence.namespace());
        let proof = vec![format!("status {reason}: {message}")];
        let (step, cause) = (reason.clone(), format!("the node refused or ended it: {message}"));
        return Some(Verdict { plane: Plane::Cri, step, cause, proof, next });
    }
    let (name, ended) = evidence.containers().find_map(|c| {
        let ended = c.state.as_ref()?.terminated.as_ref()?;
        (ended.exit_code != 0).then_some((&c.name, ended))
    })?;
    Some(died(evidence, name, ended, "ended and is not restarted"))
}

/// A program that crashes, or is not ready.
pub fn judge(evidence: &Evidence) -> Option<Verdict> {
    for container in evidence.containers() {
        let waiting = container.state.as_ref().and_then(|s| s.waiting.as_ref());
        let looping = waiting.and_then(|w| w.reason.as_deref()) == Some("CrashLoopBackOff");
        let last = container.last_state.as_ref().and_then(|s| s.terminated.as_ref());
        if let (true, Some(ended)) = (looping, last) {
            let times = format!("crashes again and again ({} restarts)", container.restart_count);
            return Some(died(evidence, &container.name, ended, &times));
        }
    }
    let running = evidence.pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
    let (ready, message) = evidence.condition("Ready")?;
    if !running || ready == "True" {
        return None;
    }
    let event = evidence.latest(&["Unhealthy"])?;
    let text = event.message.clone().unwrap_or_default();
    Some(Verdict {
        plane: Plane::App,
        step: "probe".to_owned(),
        cause: format!("it runs, but is not ready: {text}"),
        proof: vec![format!("condition Ready {ready}: {message}"), event_line(event)],
        next: format!("kubectl logs {} -n {}", evidence.name(), evidence.namespace()),
    })
}

fn died(evidence: &Evidence, container: &str, ended: &ContainerStateTerminated, how: &str) -> Verdict {
    let reason = ended.reason.clone().unwrap_or_default();
    let why = match (reason.as_str(), ended.exit_code) {
        ("OOMKilled", _) => "it used more memory than its limit".to_owned(),
        (_, 137) => "it was killed (SIGKILL)".to_owned(),
        (_, 143) => "it was ended (SIGTERM)".to_owned(),
        (_, 139) => "it crashed (SIGSEGV)".to_owned(),
        (_, 0) => "its program ends by itself, though it should go on".to_owned(),
        (_, code) => format!("its program ends with exit code {code}"),
    };
    let mut proof =
        vec![format!("container {container} terminated: {reason}, exit code {}", ended.exit_code)];
    proof.extend(ended.message.clone().filter(|m| !m.is_empty()));
    proof.extend(evidence.latest(&["BackOff", "Unhealthy"]).map(event_line));
    Verdict {
        plane: Plane::App,
        step: "run".to_owned(),
        cause: format!("container {container} {how}: {why}"),
        proof,
        next: format!(
            "kubectl logs {} -n {} -c {container} --previous",
            evidence.name(),
            evidence.namespace()
        ),
    }
}
