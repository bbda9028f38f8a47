//! NetworkPolicies on a cluster of two nodes.

use trine_tests::{Cluster, until};

const ASK: &str = "/bin/busybox nc -w 1";

/// A Pod on a node that answers with its name on port 9000. What it does before that is given.
fn pod(name: &str, node: &str, first: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  terminationGracePeriodSeconds: 1
  initContainers:
  - name: first
    image: trine.local/busybox:1
    command: [/bin/busybox, sh, -c, "{first}"]
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, nc, -ll, -p, "9000", -e, /bin/busybox, echo, {name}]
    readinessProbe: {{tcpSocket: {{port: 9000}}, periodSeconds: 1}}
---
"#
    )
}

/// Lets only the friend come in to the server.
const POLICY: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{port: 9000}]}]
";

/// Both may go out to nobody but the server, or to nobody at all.
const OUTWARD: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friend}
spec:
  podSelector: {matchLabels: {app: friend}}
  policyTypes: [Egress]
  egress: [{to: [{podSelector: {matchLabels: {app: server}}}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: mute}
spec: {podSelector: {matchLabels: {app: mute}}, policyTypes: [Egress]}
";

const SERVICE: &str = r"
apiVersion: v1
kind: Service
metadata: {name: server}
spec: {selector: {app: server}, ports: [{port: 80, targetPort: 9000}]}
";

fn asks(cluster: &Cluster, from: &str, to: &str) -> String {
    let words = format!("{ASK} {to} </dev/null");
    cluster.trine(&["exec", from, "--", "/bin/busybox", "sh", "-c", &words]).out.trim().to_owned()
}

fn until_asked(cluster: &Cluster, from: &str, to: &str, answer: &str) {
    until(&format!("{to} says {answer:?} to {from}"), || {
        let said = asks(cluster, from, to);
        if said == answer { Ok(()) } else { Err(format!("it says {said:?}")) }
    });
}

#[test]
fn policies_hold_between_nodes() {
    policies_hold("policies_hold_between_nodes", "direct");
}

#[test]
fn policies_hold_through_tunnels() {
    policies_hold("policies_hold_through_tunnels", "vxlan");
}

fn policies_hold(test: &str, overlay: &str) {
    if !trine_kernel::testing::root(test) || !trine_kernel::testing::program(test, "busybox") {
        return;
    }
    let cluster = Cluster::prepared();
    let _ = cluster.trine(&["up", "--detach", "--nodes", "2", "--overlay", overlay]).expect_ok();
    cluster.build_busybox();
    let nodes = cluster.get("nodes");
    let mut names: Vec<&str> = nodes["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|n| n["metadata"]["name"].as_str())
        .collect();
    names.sort_by_key(|name| name.len());
    let [first, second] = names[..] else { panic!("two nodes: {names:?}") };
    let all = [pod("server", first, "true"), pod("stranger", second, "true"), SERVICE.to_owned()].concat();
    let _ = cluster.apply(&all).expect_ok();
    let server = cluster.wait_running("server")["status"]["podIP"].as_str().expect("an address").to_owned();
    cluster.wait_running("stranger");
    let service = cluster.get("service/server")["spec"]["clusterIP"].as_str().expect("an address").to_owned();
    let ways = [format!("{server} 9000"), format!("{service} 80")];
    ways.iter().for_each(|way| until_asked(&cluster, "stranger", way, "server"));

    // Both nodes know the policies by the time that they keep somebody off.
    let _ = cluster.apply(&format!("{POLICY}---{OUTWARD}")).expect_ok();
    ways.iter().for_each(|way| until_asked(&cluster, "stranger", way, ""));

    // A Pod's first container asks at once. The other node has to hear of the friend first.
    let ask = format!("/bin/busybox nc -w 5 {server} 9000 </dev/null || echo nobody");
    for (name, node, hears) in
        [("friend", second, "server"), ("mute", first, "nobody"), ("other", first, "nobody")]
    {
        let _ = cluster.apply(&pod(name, node, &ask)).expect_ok();
        cluster.wait_running(name);
        let said = cluster.trine(&["logs", name, "-c", "first"]).expect_ok();
        assert!(said.lines().any(|line| line == hears), "{name}: {said}");
    }
    ways.iter().for_each(|way| until_asked(&cluster, "friend", way, "server"));

    // What is in force needs no process of Trine, and the next one finds it.
    cluster.kill();
    let listed = std::process::Command::new("nft").args(["list", "ruleset"]).output();
    if let Ok(listed) = listed {
        assert!(String::from_utf8_lossy(&listed.stdout).contains("default/server ingress[0]"));
    }
    cluster.start();
    ways.iter().for_each(|way| until_asked(&cluster, "friend", way, "server"));
    ways.iter().for_each(|way| assert_eq!(asks(&cluster, "stranger", way), ""));

    let _ = cluster.trine(&["delete", "networkpolicy/server"]).expect_ok();
    ways.iter().for_each(|way| until_asked(&cluster, "stranger", way, "server"));
    let status = cluster.trine(&["status"]).expect_ok();
    assert!(status.contains("policy"), "{status}");
}
