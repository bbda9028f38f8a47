//! Pods on a network of their own. The test runs itself again inside a network namespace of its own, which stands for
//! the node.

#![allow(clippy::unwrap_used)]

mod harness;

use std::process::Command;

use harness::{Node, container};
use trine_contracts::cri::*;

/// Set in the run inside.
const INSIDE: &str = "TRINE_TEST_INSIDE_NETNS";

/// True if this is the run inside; else the run inside is made, and has passed.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if !trine_kernel::testing::root(test)
        || !trine_kernel::testing::program(test, "unshare")
        || !trine_kernel::testing::program(test, "ip")
    {
        return false;
    }
    let passed = Command::new("unshare")
        .args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(passed.success());
    false
}

fn own_network(mut config: PodSandboxConfig) -> PodSandboxConfig {
    config.hostname = "my-host".into();
    config.linux = None;
    config.dns_config = Some(DnsConfig {
        servers: vec!["10.9.9.9".into()],
        searches: vec!["a.b".into()],
        options: Vec::new(),
    });
    config
}

async fn network_of(node: &Node, pod: &str) -> PodSandboxNetworkStatus {
    let request = PodSandboxStatusRequest { pod_sandbox_id: pod.into(), verbose: false };
    let status = node.client().pod_sandbox_status(request).await.unwrap().into_inner().status;
    status.unwrap().network.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_an_address_a_name_and_its_dns_and_gives_the_address_back() {
    let test = "a_pod_has_an_address_a_name_and_its_dns_and_gives_the_address_back";
    if !inside(test) {
        return;
    }
    let Some(mut node) = Node::start(test).await else { return };
    let ready = |conditions: &[RuntimeCondition]| {
        let network = conditions.iter().find(|c| c.r#type == "NetworkReady").unwrap();
        (network.status, network.message.clone())
    };
    let status = node.client().status(StatusRequest::default()).await.unwrap().into_inner();
    let (is_ready, why) = ready(&status.status.unwrap().conditions);
    assert!(!is_ready && !why.is_empty(), "no configuration yet: {why}");
    let refused =
        RunPodSandboxRequest { config: Some(own_network(node.pod("early"))), runtime_handler: String::new() };
    let refused = node.client().run_pod_sandbox(refused).await.unwrap_err();
    assert!(refused.message().contains("network"), "{refused:?}");
    std::fs::create_dir_all(&node.config.cni_conf_dir).unwrap();
    let conflist = serde_json::json!({
        "cniVersion": "1.1.0", "name": "trine", "loadOnlyInlinedPlugins": true,
        "plugins": [{"type": "routed", "instance": node.config.instance, "ipam": {
            "type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]],
            "dataDir": node.config.cni_state_dir.join("networks"),
        }}],
    });
    std::fs::write(node.config.cni_conf_dir.join("90-trine.conflist"), conflist.to_string()).unwrap();
    let status = node.client().status(StatusRequest::default()).await.unwrap().into_inner();
    assert_eq!(ready(&status.status.unwrap().conditions), (true, String::new()));
    let pods = [
        node.run_pod(&own_network(node.pod("one"))).await,
        node.run_pod(&own_network(node.pod("two"))).await,
    ];
    let ips = [network_of(&node, &pods[0]).await.ip, network_of(&node, &pods[1]).await.ip];
    assert!(ips[0].starts_with("10.77.0.") && ips[0] != ips[1], "{ips:?}");
    let id = node.run(&pods[0], container("main", &[])).await;
    assert_eq!(node.stdout(&id, "hostname; cat /etc/hostname").await, "my-host\nmy-host");
    assert_eq!(node.stdout(&id, "cat /etc/resolv.conf").await, "search a.b\nnameserver 10.9.9.9");
    let ping = format!("ping -c 1 -W 2 {} >/dev/null && echo there", ips[1]);
    assert_eq!(node.stdout(&id, &ping).await, "there", "the other Pod answers");
    // A new daemon keeps the attachments.
    node.end_daemon().await;
    node.serve().await;
    assert_eq!(network_of(&node, &pods[0]).await.ip, ips[0]);
    assert_eq!(node.stdout(&id, &ping).await, "there", "still");
    for pod in &pods {
        let request = StopPodSandboxRequest { pod_sandbox_id: pod.clone() };
        node.client().stop_pod_sandbox(request).await.unwrap();
    }
    let links = String::from_utf8(Command::new("ip").args(["-br", "link"]).output().unwrap().stdout).unwrap();
    let mut left = links.lines().filter(|line| line.starts_with("tr"));
    if left.next().is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let links =
            String::from_utf8(Command::new("ip").args(["-br", "link"]).output().unwrap().stdout).unwrap();
        assert!(!links.lines().any(|line| line.starts_with("tr")), "{links}");
    }
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_a_networked_pods_life_are_measured() {
    let test = "the_calls_of_a_networked_pods_life_are_measured";
    if !inside(test) {
        return;
    }
    let Some(node) = Node::start(test).await else { return };
    std::fs::create_dir_all(&node.config.cni_conf_dir).unwrap();
    let conflist = serde_json::json!({
        "cniVersion": "1.1.0", "name": "trine", "loadOnlyInlinedPlugins": true,
        "plugins": [{"type": "routed", "instance": node.config.instance, "ipam": {
            "type": "host-local", "ranges": [[{"subnet": "10.78.0.0/24"}]],
            "dataDir": node.config.cni_state_dir.join("networks"),
        }}],
    });
    std::fs::write(node.config.cni_conf_dir.join("90-trine.conflist"), conflist.to_string()).unwrap();
    node.measure(own_network).await;
    node.finish().await;
}
