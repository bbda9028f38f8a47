//! Snapshots of several claims at one moment, by the kinds that users have for it; and nothing is left.

use serde_json::Value;
use trine_tests::{Cluster, kubectl};

use crate::stage::{Stage, copy};

/// Two claims, and who writes a number to the first and then to the second of them, again and again.
const WRITER: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: log, labels: {app: db}}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: table, labels: {app: db}}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command:
    - /bin/busybox
    - sh
    - -c
    - "n=0; while true; do n=$((n+1)); echo $n > /log/n; /bin/busybox sync; echo $n > /table/n; /bin/busybox sync; done"
    readinessProbe: {exec: {command: [/bin/busybox, test, -s, /table/n]}, periodSeconds: 1}
    volumeMounts: [{name: log, mountPath: /log}, {name: table, mountPath: /table}]
  volumes:
  - {name: log, persistentVolumeClaim: {claimName: log}}
  - {name: table, persistentVolumeClaim: {claimName: table}}
"#;

const GROUP: &str = r"
apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshot
metadata: {name: then}
spec: {source: {selector: {matchLabels: {app: db}}}}
";

const NOBODY: &str = r"
apiVersion: groupsnapshot.storage.k8s.io/v1beta2
kind: VolumeGroupSnapshot
metadata: {name: nobody}
spec: {source: {selector: {matchLabels: {app: nobody}}}}
";

#[test]
fn claims_are_copied_as_they_were_at_one_moment_and_go_as_a_group() {
    const TEST: &str = "claims_are_copied_as_they_were_at_one_moment_and_go_as_a_group";
    let Some(kubectl) = kubectl::build(TEST) else { return };
    let Some(cluster) = Cluster::with_busybox(TEST) else { return };
    let stage = Stage { cluster, kubectl };
    stage.apply(WRITER);
    let _ = stage.said(&["wait", "pod/writer", "--for=condition=Ready", "--timeout=60s"]);
    stage.apply(GROUP);
    let ready = "--for=jsonpath={.status.readyToUse}=true";
    let _ = stage.said(&["wait", "volumegroupsnapshot/then", ready, "--timeout=60s"]);
    let group = stage.read("volumegroupsnapshot/then");
    assert_eq!(group["spec"]["volumeGroupSnapshotClassName"], "trine-disk", "the default class");

    // Each claim's copy is a snapshot like others, and no snapshot's business alone.
    let list = stage.read("volumesnapshot");
    let members = list["items"].as_array().unwrap();
    assert_eq!(members.len(), 2, "{list:#}");
    for claim in ["log", "table"] {
        let of = |m: &&Value| m["spec"]["source"]["persistentVolumeClaimName"] == claim;
        let member = members.iter().find(of).unwrap_or_else(|| panic!("{claim}: {list:#}"));
        let name = member["metadata"]["name"].as_str().unwrap();
        assert_eq!(member["metadata"]["ownerReferences"][0]["name"], "then");
        let _ = stage.said(&["wait", &format!("volumesnapshot/{name}"), ready, "--timeout=60s"]);
        let source = format!("apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: {name}");
        stage.apply(&copy(&format!("{claim}-then"), &source, "64Mi"));
    }
    let number = |claim: &str| -> u64 {
        let pod = format!("{claim}-then");
        let _ = stage.said(&["wait", &format!("pod/{pod}"), "--for=condition=Ready", "--timeout=60s"]);
        stage.inside(&pod, "/bin/busybox cat /data/n").parse().unwrap_or_default()
    };
    let (log, table) = (number("log"), number("table"));
    assert!(log >= table && log - table <= 1, "the log has {log}, the table {table}");

    // What is chosen is nothing, and it is said.
    stage.apply(NOBODY);
    let said = "--for=jsonpath={.status.error.message}";
    let _ = stage.said(&["wait", "volumegroupsnapshot/nobody", said, "--timeout=60s"]);
    let nobody = stage.read("volumegroupsnapshot/nobody");
    assert!(
        nobody["status"]["error"]["message"].as_str().unwrap().contains("matches no persistentVolumeClaim"),
        "{nobody:#}"
    );

    let _ = stage.said(&["delete", "pod", "--all", "--timeout=60s"]);
    let _ = stage.said(&["delete", "volumegroupsnapshot", "--all", "--timeout=60s"]);
    let _ = stage.said(&["delete", "pvc", "--all", "--timeout=60s"]);
    for kind in
        ["volumegroupsnapshotcontent", "volumesnapshot", "volumesnapshotcontent", "pv", "volumeattachment"]
    {
        stage.none_left(kind);
    }
    stage.nothing_in_the_pool();
}
