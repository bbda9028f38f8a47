//! What users do with the built-in driver's volumes: snapshots, volumes of these, clones, growth under a Pod; and nothing is left.

use serde_json::Value;
use trine_tests::{Cluster, kubectl};

use crate::stage::{Stage, copy};

/// The first claim and who writes to it.
const WRITER: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 320Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, sh, -c, "echo first > /data/note; sync; exec /bin/busybox sleep 10000"]
    readinessProbe: {exec: {command: [/bin/busybox, test, -s, /data/note]}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"#;

const SNAPSHOT: &str = r"
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: then}
spec: {source: {persistentVolumeClaimName: data}}
";

#[test]
fn volumes_are_copied_and_grow_under_their_pods_and_nothing_is_left() {
    const TEST: &str = "volumes_are_copied_and_grow_under_their_pods_and_nothing_is_left";
    let Some(kubectl) = kubectl::build(TEST) else { return };
    if !trine_kernel::testing::program(TEST, "mkfs.xfs") {
        return;
    }
    let Some(cluster) = Cluster::with_busybox(TEST) else { return };
    let stage = Stage { cluster, kubectl };
    stage.apply(WRITER);
    let _ = stage.said(&["wait", "pod/writer", "--for=condition=Ready", "--timeout=60s"]);

    stage.apply(SNAPSHOT);
    let ready = "--for=jsonpath={.status.readyToUse}=true";
    let _ = stage.said(&["wait", "volumesnapshot/then", ready, "--timeout=60s"]);
    let snapshot: Value =
        serde_json::from_str(&stage.said(&["get", "volumesnapshot", "then", "-o", "json"])).unwrap();
    assert_eq!(snapshot["spec"]["volumeSnapshotClassName"], "trine-disk", "the default class");
    assert_eq!(snapshot["status"]["restoreSize"], "320Mi");
    let _ = stage.inside("writer", "echo second > /data/note; /bin/busybox sync");

    let then = "apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: then";
    stage.apply(&copy("restored", then, "640Mi"));
    stage.apply(&copy("cloned", "kind: PersistentVolumeClaim, name: data", "320Mi"));
    for (pod, note) in [("restored", "first"), ("cloned", "second")] {
        let _ = stage.said(&["wait", &format!("pod/{pod}"), "--for=condition=Ready", "--timeout=60s"]);
        assert_eq!(stage.inside(pod, "/bin/busybox cat /data/note"), note);
    }
    assert!(stage.mebibytes("restored") > 500, "a larger volume has a larger file system");

    let before = stage.mebibytes("writer");
    let larger = r#"{"spec": {"resources": {"requests": {"storage": "512Mi"}}}}"#;
    let _ = stage.said(&["patch", "pvc", "data", "-p", larger]);
    let grown = "--for=jsonpath={.status.capacity.storage}=512Mi";
    let _ = stage.said(&["wait", "pvc/data", grown, "--timeout=60s"]);
    let after = stage.mebibytes("writer");
    assert!(after > before + 150, "{before} MiB, then {after}");
    assert_eq!(stage.inside("writer", "/bin/busybox cat /data/note"), "second");

    // More than the disk: said, and taken back.
    let huge = r#"{"spec": {"resources": {"requests": {"storage": "1Pi"}}}}"#;
    let _ = stage.said(&["patch", "pvc", "data", "-p", huge]);
    let infeasible = "--for=jsonpath={.status.allocatedResourceStatuses.storage}=ControllerResizeInfeasible";
    let _ = stage.said(&["wait", "pvc/data", infeasible, "--timeout=60s"]);
    assert!(stage.cluster.events("data").contains("VolumeResizeFailed"), "{}", stage.cluster.events("data"));
    // As upstream, it may be taken back to anything that is more than there is.
    let possible = r#"{"spec": {"resources": {"requests": {"storage": "600Mi"}}}}"#;
    let _ = stage.said(&["patch", "pvc", "data", "-p", possible]);
    let grown = "--for=jsonpath={.status.capacity.storage}=600Mi";
    let _ = stage.said(&["wait", "pvc/data", grown, "--timeout=60s"]);
    let claim: Value = serde_json::from_str(&stage.said(&["get", "pvc", "data", "-o", "json"])).unwrap();
    assert_eq!(claim.pointer("/status/allocatedResourceStatuses/storage"), None, "{}", claim["status"]);

    let _ = stage.said(&["delete", "pod", "--all", "--timeout=60s"]);
    let _ = stage.said(&["delete", "volumesnapshot", "--all", "--timeout=60s"]);
    let _ = stage.said(&["delete", "pvc", "--all", "--timeout=60s"]);
    for kind in ["volumesnapshotcontent", "pv", "volumeattachment"] {
        stage.none_left(kind);
    }
    stage.nothing_in_the_pool();
}
