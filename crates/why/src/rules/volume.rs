//! A volume that is not made, bound, attached or mounted.

use trine_typed::k8s_openapi::api::core::v1::Event;

use super::innermost;
use crate::evidence::{Claim, Evidence, event_line};
use crate::verdict::{Plane, Verdict};

/// A claim that keeps the Pod from being scheduled.
pub fn unbound(evidence: &Evidence) -> Option<Verdict> {
    evidence.claims.iter().find_map(|claim| for_claim(evidence, claim))
}

fn for_claim(evidence: &Evidence, claim: &Claim) -> Option<Verdict> {
    let (namespace, name) = (evidence.namespace(), &claim.name);
    let verdict = |step: &str, cause, proof, next: &str| {
        let next = format!("{next} -n {namespace}");
        Some(Verdict { plane: Plane::Csi, step: step.to_owned(), cause, proof, next })
    };
    let Some(object) = &claim.object else {
        return verdict(
            "bind",
            format!("the claim {name} does not exist in namespace {namespace}"),
            evidence.latest(&["FailedScheduling"]).map(event_line).into_iter().collect(),
            "kubectl get pvc",
        );
    };
    let phase = object.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending");
    if phase == "Bound" {
        return None;
    }
    let volume = object.spec.as_ref().and_then(|s| s.volume_name.clone()).unwrap_or_default();
    if phase == "Lost" {
        return verdict(
            "bind",
            format!("claim {name} lost its volume {volume}"),
            Vec::new(),
            "kubectl get pvc",
        );
    }
    let latest = |reasons: &[&str]| {
        let wanted = |e: &&Event| e.reason.as_deref().is_some_and(|r| reasons.contains(&r));
        claim.events.iter().rev().find(wanted)
    };
    let class = object.spec.as_ref().and_then(|s| s.storage_class_name.clone()).unwrap_or_default();
    if claim.class_missing {
        return verdict(
            "bind",
            format!("claim {name} names the StorageClass {class}, which does not exist"),
            latest(&["ProvisioningFailed"]).map(event_line).into_iter().collect(),
            "kubectl get storageclass; kubectl get pvc",
        );
    }
    if let Some(event) = latest(&["ProvisioningFailed"]) {
        let message = event.message.clone().unwrap_or_default();
        return verdict(
            "CreateVolume",
            format!("claim {name} of class {class}: {message}"),
            vec![event_line(event)],
            &format!("kubectl describe pvc {name}"),
        );
    }
    if class.is_empty()
        && let Some(event) = latest(&["FailedBinding"])
    {
        return verdict(
            "bind",
            format!("claim {name} names no StorageClass, there is no default one, and no volume fits"),
            vec![event_line(event)],
            "kubectl get storageclass; kubectl get pv; kubectl get pvc",
        );
    }
    let event = latest(&["ExternalProvisioning"])?;
    verdict(
        "CreateVolume",
        format!("claim {name} waits for the provisioner of class {class}; does its driver run?"),
        vec![event_line(event)],
        &format!("kubectl describe pvc {name}"),
    )
}

/// A volume that does not reach the containers of a Pod that has a node.
pub fn judge(evidence: &Evidence) -> Option<Verdict> {
    if evidence.containers().any(|c| c.container_id.is_some()) {
        return None;
    }
    if let Some(found) = unbound(evidence) {
        return Some(found);
    }
    let event = evidence.latest(&["FailedAttachVolume", "FailedMount", "FailedMapVolume"])?;
    let message = event.message.clone().unwrap_or_default();
    let step = if event.reason.as_deref() == Some("FailedAttachVolume") || message.contains("AttachVolume") {
        "ControllerPublishVolume"
    } else if message.contains("MountDevice") || message.contains("NodeStageVolume") {
        "NodeStageVolume"
    } else {
        "NodePublishVolume"
    };
    let configured =
        ["configmap", "secret"].iter().any(|k| message.contains(k)) && message.contains("not found");
    let cause = if configured { innermost(&message).to_owned() } else { message.clone() };
    let failed = evidence.failed_step(&["csi", "kubelet"]);
    let mut proof = vec![event_line(event)];
    proof.extend(failed.map(|s| format!("step {} failed: {}", s.name, s.error.clone().unwrap_or_default())));
    Some(Verdict {
        plane: if configured { Plane::App } else { Plane::Csi },
        step: if configured { "volume source".to_owned() } else { step.to_owned() },
        cause,
        proof,
        next: format!("kubectl describe pod {} -n {}", evidence.name(), evidence.namespace()),
    })
}
