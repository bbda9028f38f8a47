//! What users do with the built-in driver's volumes: snapshots, volumes of these, clones, growth under a Pod; and nothing is left.

use std::path::PathBuf;

use serde_json::Value;
use trine_tests::{Cluster, kubectl, until};

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

/// A claim with the data of something, and who reads it.
fn copy(name: &str, source: &str, size: &str) -> String {
    format!(
        r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  accessModes: [ReadWriteOnce]
  dataSource: {{{source}}}
  resources: {{requests: {{storage: {size}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, sleep, '10000']
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: {name}}}}}]
"
    )
}

struct Stage {
    cluster: Cluster,
    kubectl: PathBuf,
}

impl Stage {
    fn said(&self, words: &[&str]) -> String {
        kubectl::run(&self.kubectl, &self.cluster, words).expect_ok()
    }

    fn apply(&self, manifests: &str) {
        let path = self.cluster.dir().join("run/volumes.yaml");
        std::fs::write(&path, manifests).unwrap();
        let _ = self.said(&["apply", "-f", &path.display().to_string()]);
    }

    fn inside(&self, pod: &str, words: &str) -> String {
        self.said(&["exec", pod, "--", "/bin/busybox", "sh", "-c", words]).trim().to_owned()
    }

    /// The size of what is mounted, MiB.
    fn mebibytes(&self, pod: &str) -> u64 {
        let said = self.inside(pod, "/bin/busybox df -m /data | /bin/busybox tail -n 1");
        said.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    }

    fn none_left(&self, kind: &str) {
        until(&format!("there is no {kind}"), || {
            let left = self.said(&["get", kind, "-A", "-o", "name"]);
            if left.trim().is_empty() { Ok(()) } else { Err(left) }
        });
    }
}

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
    let pool = stage.cluster.dir().join("volumes");
    let named = |dir: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let own = ["lock", "targets.ledger", "own", "own.disk", "own.disk.record"];
    let mut left = named(&pool);
    left.retain(|name| !own.contains(&name.as_str()));
    // What lies on a disk of its own, if this machine's pool has one.
    left.extend(named(&pool.join("own")));
    assert_eq!(left, Vec::<String>::new(), "{}", pool.display());
}
