use serde_json::{Value, json};

use super::*;
use crate::evidence::Claim;

const NOW: i64 = 1_900_000_000;

fn evidence(pod: Value, events: &[(&str, &str)]) -> Evidence {
    let mut pod = pod;
    pod["metadata"]["name"] = json!("p");
    pod["metadata"]["namespace"] = json!("d");
    let event = |(reason, message): &(&str, &str)| {
        let value = json!({"metadata": {}, "involvedObject": {}, "type": "Warning", "reason": reason,
                           "message": message});
        serde_json::from_value(value).unwrap()
    };
    Evidence {
        pod: serde_json::from_value(pod).unwrap(),
        events: events.iter().map(event).collect(),
        now: NOW,
        ..Evidence::default()
    }
}

fn placed(status: Value) -> Value {
    json!({"spec": {"nodeName": "n", "containers": [{"name": "c"}]}, "status": status})
}

fn waiting(reason: &str, message: &str) -> Value {
    placed(json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "img", "imageID": "",
        "ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason, "message": message}}}]}))
}

#[test]
fn each_fault_is_found_in_its_plane_at_its_step() {
    let unplaced = json!({"spec": {"containers": []}, "status": {"conditions": [{"type": "PodScheduled",
        "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 ..."}]}});
    let crash =
        placed(json!({"phase": "Running", "containerStatuses": [{"name": "c", "image": "i", "imageID": "",
        "ready": false, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}}, "containerID": "x://1"}]}));
    let start_error = placed(json!({"phase": "Running", "containerStatuses": [{"name": "c", "image": "i",
        "imageID": "", "ready": false, "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 128, "reason": "StartError",
            "message": "exec: \"nosuch\": executable file not found in $PATH"}}, "containerID": "x://1"}]}));
    let not_ready = placed(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"running": {}}, "containerID": "x://1"}]}));
    let pending = || placed(json!({"phase": "Pending"}));
    let rows: Vec<(&str, Evidence, Plane, &str, &str)> = vec![
        ("no room", evidence(unplaced, &[]), Plane::Scheduling, "Filter", "Insufficient cpu"),
        (
            "unknown image",
            evidence(
                waiting("ImagePullBackOff", "Back-off pulling"),
                &[("Failed", "Failed to pull image \"img\": manifest unknown")],
            ),
            Plane::Image,
            "PullImage",
            "does not exist in its registry",
        ),
        (
            "command not found",
            evidence(start_error, &[]),
            Plane::Cri,
            "StartContainer",
            "its command is not in the image",
        ),
        (
            "no addresses",
            evidence(
                pending(),
                &[(
                    "FailedCreatePodSandBox",
                    "Failed to create pod sandbox: rpc error: code = Unknown desc = cni ADD: no IP addresses available",
                )],
            ),
            Plane::Cni,
            "ADD",
            "cni ADD: no IP addresses available",
        ),
        (
            "no definition",
            evidence(
                pending(),
                &[(
                    "FailedCreatePodSandBox",
                    "Failed to create pod sandbox: cannot find a network-attachment-definition (a) in namespace (n): gone",
                )],
            ),
            Plane::Cni,
            "ADD",
            "cannot find a network-attachment-definition (a)",
        ),
        (
            "no network",
            evidence(pending(), &[("NetworkNotReady", "network is not ready: broken conflist")]),
            Plane::Cni,
            "STATUS",
            "broken conflist",
        ),
        (
            "held",
            evidence(
                pending(),
                &[("NetworkPolicyNotInForce", "passes nothing: its policies are not in force")],
            ),
            Plane::Cni,
            "NetworkPolicy",
            "not in force",
        ),
        (
            "not held any more",
            evidence(pending(), &[("NetworkPolicyNotInForce", "held"), ("NetworkPolicyInForce", "in force")]),
            Plane::Healthy,
            "in progress",
            "nothing has failed",
        ),
        (
            "no sandbox",
            evidence(pending(), &[("FailedCreatePodSandBox", "Failed to create pod sandbox: no space left")]),
            Plane::Cri,
            "RunPodSandbox",
            "no space left",
        ),
        (
            "not mounted",
            evidence(pending(), &[("FailedMount", "MountVolume.MountDevice failed for volume \"v\": mkfs")]),
            Plane::Csi,
            "NodeStageVolume",
            "mkfs",
        ),
        ("crash", evidence(crash, &[]), Plane::App, "run", "exit code 3"),
        (
            "probe",
            evidence(not_ready, &[("Unhealthy", "connection refused")]),
            Plane::App,
            "probe",
            "refused",
        ),
        ("young", evidence(pending(), &[]), Plane::Healthy, "in progress", "nothing has failed"),
    ];
    for (name, evidence, plane, step, cause) in rows {
        let verdict = judge(&evidence);
        assert_eq!((verdict.plane, verdict.step.as_str()), (plane, step), "{name}: {verdict}");
        assert!(verdict.cause.contains(cause), "{name}: {verdict}");
        assert!(!verdict.next.is_empty(), "{name}");
    }
}

#[test]
fn an_unbound_claim_is_the_storages_matter_and_its_own_event_says_why() {
    let pod = json!({"spec": {"containers": []}, "status": {"conditions": [{"type": "PodScheduled",
        "status": "False", "message": "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."}]}});
    let object = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}});
    let failed = json!({"metadata": {}, "involvedObject": {}, "reason": "ProvisioningFailed", "type": "Warning",
        "message": "rpc error: code = ResourceExhausted desc = pool has 3 GiB free"});
    let claim = Claim {
        name: "data".to_owned(),
        object: Some(serde_json::from_value(object).unwrap()),
        events: vec![serde_json::from_value(failed).unwrap()],
        class_missing: false,
    };
    let rows = [
        ("too large", claim.clone(), "CreateVolume", "3 GiB free"),
        (
            "class missing",
            Claim { class_missing: true, ..claim.clone() },
            "bind",
            "fast, which does not exist",
        ),
        ("claim missing", Claim { object: None, ..claim }, "bind", "does not exist in namespace d"),
    ];
    for (name, claim, step, cause) in rows {
        let mut evidence = evidence(pod.clone(), &[]);
        evidence.claims.push(claim);
        let verdict = judge(&evidence);
        assert_eq!((verdict.plane, verdict.step.as_str()), (Plane::Csi, step), "{name}: {verdict}");
        assert!(verdict.cause.contains(cause), "{name}: {verdict}");
    }
}

#[test]
fn a_pod_long_past_its_grace_period_is_judged_by_what_holds_it() {
    let mut pod = placed(json!({"phase": "Running"}));
    pod["metadata"] =
        json!({"deletionTimestamp": "2020-01-01T00:00:00Z", "finalizers": ["example.com/hold"]});
    let verdict = judge(&evidence(pod, &[]));
    assert_eq!(verdict.step, "finalizers");
}
