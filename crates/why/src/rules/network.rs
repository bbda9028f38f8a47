//! A sandbox that is not made: the runtime's fault, or the network's. A Pod that passes nothing, because its policies are not in force.

use crate::evidence::{Evidence, event_line};
use crate::verdict::{Plane, Verdict};

/// Words by which a sandbox error is the network's.
const NETWORK_WORDS: [&str; 9] = [
    DEFINITION,
    "cni",
    "network plugin",
    "networkplugin",
    "network for sandbox",
    "failed to setup network",
    "ipam",
    "ip addresses",
    "conflist",
];

/// Trine and Multus say so of a network that a Pod names and nobody has defined.
const DEFINITION: &str = "network-attachment-definition";

/// Whoever enforces policies says so when it lasts.
const HELD: &str = "NetworkPolicyNotInForce";

pub fn judge(evidence: &Evidence) -> Option<Verdict> {
    if evidence.containers().any(|c| c.container_id.is_some()) {
        return None;
    }
    let event = evidence.latest(&["FailedCreatePodSandBox", "NetworkNotReady"])?;
    let message = event.message.clone().unwrap_or_default();
    let lower = message.to_lowercase();
    let network = event.reason.as_deref() == Some("NetworkNotReady")
        || NETWORK_WORDS.iter().any(|word| lower.contains(word));
    let mut proof = vec![event_line(event)];
    let planes: &[&str] = if network { &["cni"] } else { &["cri"] };
    proof.extend(
        evidence
            .failed_step(planes)
            .map(|s| format!("step {} failed: {}", s.name, s.error.clone().unwrap_or_default())),
    );
    let step = if !network {
        "RunPodSandbox"
    } else if event.reason.as_deref() == Some("NetworkNotReady") {
        "STATUS"
    } else {
        "ADD"
    };
    let next = if lower.contains(DEFINITION) {
        "kubectl get network-attachment-definitions.k8s.cni.cncf.io -A".to_owned()
    } else {
        let node = evidence.node_name().unwrap_or_default();
        format!("kubectl get pods -A -o wide --field-selector spec.nodeName={node}")
    };
    Some(Verdict {
        plane: if network { Plane::Cni } else { Plane::Cri },
        step: step.to_owned(),
        cause: reason(&message),
        proof,
        next,
    })
}

/// A Pod that is held until its policies are in force, and nobody has said since that they are.
pub fn held(evidence: &Evidence) -> Option<Verdict> {
    let event = evidence.latest(&[HELD, "NetworkPolicyInForce"])?;
    if event.reason.as_deref() != Some(HELD) {
        return None;
    }
    Some(Verdict {
        plane: Plane::Cni,
        step: "NetworkPolicy".to_owned(),
        cause: event.message.clone().unwrap_or_default(),
        proof: vec![event_line(event)],
        next: format!("trine status   # on {}: the plane policy", evidence.node_name().unwrap_or_default()),
    })
}

/// The message without the kubelet's and gRPC's introductions.
fn reason(message: &str) -> String {
    let text = message.strip_prefix("Failed to create pod sandbox: ").unwrap_or(message);
    match text.split_once("desc = ") {
        Some((_, rest)) => rest.to_owned(),
        None => text.to_owned(),
    }
}
