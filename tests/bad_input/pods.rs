//! Pods that cannot run.

use super::{Bystander, Expected, possible, simple};
use trine_tests::Cluster;

fn with_claim(name: &str, class: &str, size: &str) -> String {
    let class = if class.is_empty() { String::new() } else { format!("storageClassName: {class}, ") };
    format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\nspec: {{{class}accessModes: \
         [ReadWriteOnce], resources: {{requests: {{storage: {size}}}}}}}\n---\napiVersion: v1\nkind: \
         Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: main, image: 'trine.local/busybox:1', \
         command: [/bin/busybox, sleep, '1000'], volumeMounts: [{{name: v, mountPath: /v}}]}}]\n  volumes: [{{name: \
         v, persistentVolumeClaim: {{claimName: {name}}}}}]\n"
    )
}

#[test]
fn what_cannot_run_is_said_with_plane_call_and_cause() {
    if !possible("what_cannot_run_is_said_with_plane_call_and_cause") {
        return;
    }
    let cluster = Cluster::up();
    cluster.build_busybox();
    let bystander = Bystander::start(&cluster);
    // Port 1 of loopback: nobody listens, so the registry is not reached.
    let unknown = simple("unknown-image", "[/x]").replace("trine.local/busybox:1", "127.0.0.1:1/no/such:1");
    let _ = cluster.apply(&unknown).expect_ok();
    let _ = cluster.apply(&simple("no-command", "[nosuch]")).expect_ok();
    let _ = cluster.apply(&with_claim("too-large", "", "900Ti")).expect_ok();
    let _ = cluster.apply(&with_claim("no-class", "nonsense", "1Gi")).expect_ok();
    let rows = [
        Expected {
            pod: "unknown-image",
            event: &["Failed", "pull image", "127.0.0.1:1/no/such:1"],
            plane: "image",
            cause: &["127.0.0.1:1/no/such:1"],
        },
        Expected {
            pod: "no-command",
            event: &["Failed", "nosuch", "not found"],
            plane: "CRI",
            cause: &["StartContainer", "nosuch"],
        },
        Expected {
            pod: "too-large",
            event: &["ProvisioningFailed"],
            plane: "CSI",
            cause: &["CreateVolume", "too-large"],
        },
        Expected {
            pod: "no-class",
            event: &["ProvisioningFailed", "nonsense", "not found"],
            plane: "CSI",
            cause: &["nonsense", "does not exist"],
        },
    ];
    for row in rows {
        row.check(&cluster);
    }
    bystander.check(&cluster);
}
