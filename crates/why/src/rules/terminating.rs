//! A Pod that should be gone.

use crate::evidence::{Evidence, event_line};
use crate::verdict::{Plane, Verdict};

/// Seconds beyond the grace period before slowness is a fault.
const SLACK: i64 = 10;

pub fn judge(evidence: &Evidence) -> Option<Verdict> {
    let meta = &evidence.pod.metadata;
    // The timestamp is when the grace period ends.
    let due = meta.deletion_timestamp.as_ref()?.0.as_second();
    if evidence.now < due + SLACK {
        return None;
    }
    let late = evidence.now - due;
    let finalizers = meta.finalizers.clone().unwrap_or_default();
    let verdict = |plane, step: &str, cause, proof, next| {
        Some(Verdict { plane, step: step.to_owned(), cause, proof, next })
    };
    let (name, namespace) = (evidence.name(), evidence.namespace());
    if !finalizers.is_empty() {
        return verdict(
            Plane::App,
            "finalizers",
            format!("{late} s after its grace period it is held by finalizers {}", finalizers.join(", ")),
            vec![format!("metadata.finalizers {finalizers:?}")],
            format!("kubectl get pod {name} -n {namespace} -o jsonpath='{{.metadata.finalizers}}'"),
        );
    }
    let proof = |reasons: &[&str]| evidence.latest(reasons).map(event_line).into_iter().collect::<Vec<_>>();
    if let Some(step) = evidence.failed_step(&["csi"]) {
        let cause = step.error.clone().unwrap_or_default();
        let next = "kubectl get volumeattachments".to_owned();
        return verdict(Plane::Csi, &step.name, cause, proof(&["FailedUnMount", "FailedMount"]), next);
    }
    let plane = if evidence.failed_step(&["cni"]).is_some() { Plane::Cni } else { Plane::Cri };
    let failed = evidence.failed_step(&["cni", "cri"]);
    verdict(
        plane,
        failed.map_or("StopPodSandbox", |s| s.name.as_str()),
        failed.and_then(|s| s.error.clone()).unwrap_or_else(|| {
            format!("{late} s after its grace period the kubelet has not finished it; is the node alive?")
        }),
        proof(&["FailedKillPod", "Killing"]),
        format!("kubectl describe node {}", evidence.node_name().unwrap_or_default()),
    )
}
