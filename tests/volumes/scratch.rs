//! A volume that is its Pod's alone: made with it, gone with it, and nobody else's claim in its place.

use trine_tests::{Cluster, until};

/// `NAME` is asked for a volume of its own.
const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, sh, -c, "echo own > /scratch/note && exec /bin/busybox sleep 10000"]
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes:
  - name: scratch
    ephemeral:
      volumeClaimTemplate:
        metadata: {labels: {of: NAME}}
        spec:
          accessModes: [ReadWriteOnce]
          resources: {requests: {storage: 320Mi}}
"#;

const SOMEBODYS: &str = r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: late-scratch}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 320Mi}}
";

#[test]
fn an_ephemeral_volume_comes_and_goes_with_its_pod_and_takes_no_claim_of_others() {
    const TEST: &str = "an_ephemeral_volume_comes_and_goes_with_its_pod_and_takes_no_claim_of_others";
    let Some(cluster) = Cluster::with_busybox(TEST) else { return };
    let _ = cluster.apply(&POD.replace("NAME", "own")).expect_ok();
    let _ = cluster.wait_running("own");
    let claim = cluster.get("pvc/own-scratch");
    assert_eq!(claim["metadata"]["labels"]["of"], "own", "{claim}");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["name"], "own", "{claim}");
    let volume = claim["spec"]["volumeName"].as_str().unwrap().to_owned();
    let _ = cluster.trine(&["delete", "pod/own"]).expect_ok();
    until("claim and volume are gone with the Pod", || {
        let left = [cluster.get("pvc/own-scratch"), cluster.get(&format!("pv/{volume}"))];
        if left.iter().all(serde_json::Value::is_null) { Ok(()) } else { Err(format!("{left:?}")) }
    });

    let _ = cluster.apply(SOMEBODYS).expect_ok();
    let _ = cluster.apply(&POD.replace("NAME", "late")).expect_ok();
    until("it is told what stands in the way", || {
        let events = cluster.events("late");
        let told = "FailedBinding: ephemeral volume scratch: PVC default/late-scratch was not created for pod default/late";
        if events.contains(told) { Ok(()) } else { Err(events) }
    });
    assert_ne!(cluster.get("pod/late")["status"]["phase"], "Running");
    let _ = cluster.trine(&["delete", "pvc/late-scratch"]).expect_ok();
    let _ = cluster.wait_running("late");
}
