//! A Pod without a node.

use super::volume;
use crate::evidence::{Evidence, event_line};
use crate::verdict::{Plane, Verdict};

pub fn judge(evidence: &Evidence) -> Option<Verdict> {
    if evidence.node_name().is_some() {
        return None;
    }
    let spec = evidence.pod.spec.as_ref();
    let gates = spec.and_then(|s| s.scheduling_gates.clone()).unwrap_or_default();
    if !gates.is_empty() {
        let names: Vec<String> = gates.into_iter().map(|g| g.name).collect();
        return Some(verdict(
            evidence,
            "scheduling gates",
            format!("it waits until its gates are lifted: {}", names.join(", ")),
            Vec::new(),
        ));
    }
    // A claim that cannot be bound is the storage's matter, though the scheduler reports it.
    if let Some(found) = volume::unbound(evidence) {
        return Some(found);
    }
    let event = evidence.latest(&["FailedScheduling"]);
    let message = evidence
        .condition("PodScheduled")
        .filter(|(status, message)| *status == "False" && !message.is_empty())
        .map(|(_, message)| message.to_owned())
        .or_else(|| event.and_then(|e| e.message.clone()));
    let Some(message) = message else {
        let name =
            spec.and_then(|s| s.scheduler_name.clone()).unwrap_or_else(|| "default-scheduler".to_owned());
        let created = evidence.pod.metadata.creation_timestamp.as_ref().map(|t| t.0.as_second());
        let age = created.map_or(0, |t| evidence.now - t);
        return (age > 10).then(|| {
            verdict(
                evidence,
                "no scheduler",
                format!("no scheduler named {name} has looked at it for {age} s"),
                vec!["no event, no condition PodScheduled".to_owned()],
            )
        });
    };
    let before = message.split(" preemption:").next().unwrap_or(&message);
    let proof = event.map(event_line).into_iter().collect();
    Some(verdict(evidence, "Filter", before.trim_end_matches('.').to_owned(), proof))
}

fn verdict(evidence: &Evidence, step: &str, cause: String, proof: Vec<String>) -> Verdict {
    let next = if cause.contains("Insufficient") {
        "kubectl describe nodes (Allocated resources)".to_owned()
    } else if cause.contains("affinity/selector") {
        "kubectl get nodes --show-labels".to_owned()
    } else if cause.contains("taint") {
        "kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints".to_owned()
    } else {
        format!("kubectl describe pod {} -n {}", evidence.name(), evidence.namespace())
    };
    Verdict { plane: Plane::Scheduling, step: step.to_owned(), cause, proof, next }
}
