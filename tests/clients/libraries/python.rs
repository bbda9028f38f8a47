//! The Python client: the script `clients/python/client.py` checks what it sees.

use std::path::Path;
use std::process::Command;

use trine_tests::{Cluster, python};

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: snake}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "trine.local/busybox:1", command: [/bin/sh, -c, "mkdir -p /www; echo served > /www/index.html; exec /bin/busybox httpd -f -p 8080 -h /www"]}]
"#;

#[test]
fn the_python_client_makes_watches_changes_applies_and_enters() {
    const TEST: &str = "the_python_client_makes_watches_changes_applies_and_enters";
    let Some(python) = python::with_client(TEST) else { return };
    let Some(cluster) = Cluster::with_busybox(TEST) else { return };
    let _ = cluster.apply(POD).expect_ok();
    cluster.wait_running("snake");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python/client.py");
    let mut command = Command::new("timeout");
    let output =
        command.arg("60").arg(python).arg(script).arg(cluster.dir().join("kubeconfig")).arg("snake").output();
    let output = output.expect("python runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with("all holds\n"), "{said}");
}
