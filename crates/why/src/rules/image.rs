//! An image that cannot be had.

use crate::evidence::{Evidence, event_line};
use crate::verdict::{Plane, Verdict};

const REASONS: [&str; 5] =
    ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"];

pub fn judge(evidence: &Evidence) -> Option<Verdict> {
    let (container, waiting) = evidence.containers().find_map(|c| {
        let waiting = c.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        REASONS.contains(&reason).then_some((c, waiting))
    })?;
    let image = &container.image;
    // The back-off says less than the failure before it.
    let failures = evidence.events.iter().rev();
    let mut failures =
        failures.filter(|e| e.message.as_deref().is_some_and(|m| m.contains("Failed to pull image")));
    let event = failures.next();
    let message =
        event.and_then(|e| e.message.clone()).or_else(|| waiting.message.clone()).unwrap_or_default();
    let lower = message.to_lowercase();
    let never = waiting.reason.as_deref() == Some("ErrImageNeverPull");
    let why = if never {
        "is not on the node, and its pull policy is Never"
    } else if waiting.reason.as_deref() == Some("InvalidImageName") {
        "has a name that is no image name"
    } else if lower.contains("manifest unknown") || lower.contains("not found") || lower.contains("404") {
        "does not exist in its registry"
    } else if lower.contains("unauthorized") || lower.contains("denied") || lower.contains("401") {
        "is not given out without other credentials"
    } else if ["connection refused", "no such host", "timed out", "timeout", "dns", "connect"]
        .iter()
        .any(|w| lower.contains(w))
    {
        "cannot be fetched: its registry is not reached"
    } else {
        "cannot be pulled"
    };
    let mut proof = vec![format!(
        "container {} waits: {}: {}",
        container.name,
        waiting.reason.clone().unwrap_or_default(),
        waiting.message.clone().unwrap_or_default()
    )];
    proof.extend(event.map(event_line));
    let (name, namespace) = (evidence.name(), evidence.namespace());
    Some(Verdict {
        plane: Plane::Image,
        step: "PullImage".to_owned(),
        cause: format!("image {image} {why}"),
        proof,
        next: format!("kubectl get pod {name} -n {namespace} -o jsonpath='{{.spec.containers[*].image}}'"),
    })
}
