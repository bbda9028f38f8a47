//! The rules, in the order in which proof is looked for: what comes first in a Pod's way cannot be the fault of what
//! comes later. Each looks at the evidence alone and is tested on it.

mod app;
mod container;
mod image;
mod network;
mod scheduling;
mod terminating;
mod volume;

use crate::evidence::Evidence;
use crate::verdict::{Plane, Verdict};

/// The verdict on a Pod.
#[must_use]
pub fn judge(evidence: &Evidence) -> Verdict {
    let rules = [
        terminating::judge,
        scheduling::judge,
        app::finished,
        network::held,
        image::judge,
        container::judge,
        network::judge,
        volume::judge,
        app::judge,
    ];
    rules.iter().find_map(|rule| rule(evidence)).unwrap_or_else(|| healthy(evidence))
}

fn healthy(evidence: &Evidence) -> Verdict {
    let phase = evidence.pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default();
    let ready = evidence.condition("Ready").is_some_and(|(status, _)| status == "True");
    let (step, cause) = if ready || phase == "Succeeded" {
        ("none", "the Pod is as it should be".to_owned())
    } else {
        ("in progress", format!("the Pod is {phase} and nothing has failed so far"))
    };
    let past = evidence.events.iter().rev().find(|e| e.type_.as_deref() == Some("Warning"));
    let mut proof = vec![format!("phase {phase}, Ready {ready}")];
    proof.extend(past.map(|e| format!("past: {}", crate::evidence::event_line(e))));
    Verdict {
        plane: Plane::Healthy,
        step: step.to_owned(),
        cause,
        proof,
        next: format!("kubectl get pod {} -n {} -w", evidence.name(), evidence.namespace()),
    }
}

/// The last sentence of a chain `a: b: c`, which is where the cause stands.
fn innermost(text: &str) -> &str {
    text.rsplit(": ").next().unwrap_or(text).trim()
}

#[cfg(test)]
mod tests;
