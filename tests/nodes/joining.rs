//! `trine server`, `trine token create`, `trine agent`: a cluster in parts.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use trine_tests::{Cluster, Outcome, program, until};

/// A process of the program, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(cluster: &Cluster, words: &[&str]) -> Running {
    std::fs::create_dir_all(cluster.dir()).expect("a data dir");
    let log = File::options().create(true).append(true).open(cluster.dir().join("test.log")).expect("a log");
    let mut command = Command::new(program());
    command.args(words).arg("--data-dir").arg(cluster.dir());
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Running(command.spawn().expect("trine starts"))
}

fn log(cluster: &Cluster) -> String {
    std::fs::read_to_string(cluster.dir().join("test.log")).unwrap_or_default()
}

/// Waits until the node is Ready and, if `not` is said, its heartbeat is another than that.
fn ready(server: &Cluster, node: &Cluster, not: &str) -> String {
    until("the node is Ready", || {
        let object = server.get("node/elsewhere");
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        let lease = server.trine(&["get", "leases/elsewhere", "-n", "kube-node-lease", "-o", "json"]).out;
        let lease: Value = serde_json::from_str(&lease).unwrap_or_default();
        let beat = lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned();
        if ready && !beat.is_empty() && beat != not { Ok(beat) } else { Err(log(node)) }
    })
}

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: there}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, sh, -c, "echo it begins; exec /bin/busybox sleep 100000"]
"#;

#[test]
fn a_node_joins_with_a_token_that_pins_the_cluster_and_comes_back_without() {
    const TEST: &str = "a_node_joins_with_a_token_that_pins_the_cluster_and_comes_back_without";
    if !trine_kernel::testing::root(TEST) || !trine_kernel::testing::program(TEST, "busybox") {
        return;
    }
    let (server, node) = (Cluster::prepared(), Cluster::prepared());
    let _control = start(&server, &["server"]);
    let token = until("the server makes a token", || {
        let outcome = server.trine(&["token", "create", "--ttl", "10m"]);
        if outcome.ok { Ok(outcome.out.trim().to_owned()) } else { Err(outcome.err) }
    });
    let kubeconfig = std::fs::read_to_string(server.dir().join("kubeconfig")).expect("a kubeconfig");
    let url = kubeconfig.lines().find_map(|l| l.trim().strip_prefix("server: ")).expect("a URL").to_owned();

    // Nothing is believed but the token's own cluster, and nobody without a token that holds.
    let refused = |token: &str| -> String {
        let words = ["agent", "--server", &url, "--node-name", "elsewhere", "--token", token];
        let outcome: Outcome = node.trine(&words);
        outcome.expect_failure()
    };
    let (bearer, pin) = token.split_once('@').expect("a token with a pin");
    let other = format!("{bearer}@sha256:{}", "0".repeat(64));
    assert!(refused(&other).contains("is not the server of this token's cluster"));
    assert!(refused(bearer).contains("does not say whose cluster it is"));
    assert!(refused(&format!("aaaaaa.0123456789abcdef@{pin}")).contains("cannot ask for a certificate"));
    assert!(server.get("node/elsewhere").is_null());

    let mut agent = start(&node, &["agent", "--server", &url, "--node-name", "elsewhere", "--token", &token]);
    let beat = ready(&server, &node, "");
    let kept = std::fs::metadata(node.dir().join("agent/kubeconfig")).expect("what the node keeps");
    assert_eq!(kept.permissions().mode() & 0o777, 0o600);

    node.build_busybox();
    std::fs::create_dir_all(server.dir().join("run")).unwrap();
    let _ = server.apply(POD).expect_ok();
    let before = server.wait_running("there");
    // The kubelet shows a certificate that the cluster has signed.
    until("its log is read through the server", || {
        let outcome = server.trine(&["logs", "there"]);
        if outcome.out.trim() == "it begins" { Ok(()) } else { Err(outcome.err) }
    });

    agent.0.kill().unwrap();
    agent.0.wait().unwrap();
    let _again = start(&node, &["agent"]);
    ready(&server, &node, &beat);
    until("the Pod is adopted", || {
        let outcome = server.trine(&["exec", "there", "--", "/bin/busybox", "echo", "hello"]);
        if outcome.out.trim() == "hello" { Ok(()) } else { Err(outcome.err) }
    });
    let after = server.wait_running("there");
    let container = |pod: &Value| pod["status"]["containerStatuses"][0].clone();
    assert_eq!(container(&after)["containerID"], container(&before)["containerID"]);
    assert_eq!(container(&after)["restartCount"], 0);
}
