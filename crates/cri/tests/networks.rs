//! Pods on several networks, as the annotation of their sandboxes has it. Each test runs itself again inside a network namespace
//! of its own, which stands for the node.

#![allow(clippy::unwrap_used)]

mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use harness::{Node, container, inside};
use serde_json::{Value, json};
use trine_contracts::cri::*;
use trine_contracts::networks::attachments::{ANNOTATION, INFO};
use trine_contracts::networks::{Attached, status};

fn ipam(node: &Node, subnet: &str) -> Value {
    json!({"type": "host-local", "subnet": subnet, "dataDir": node.config.cni_state_dir.join("networks")})
}

/// A bridge whose Pods may wish for addresses.
fn bridge() -> Value {
    json!({"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge", "bridge": "br-a", "isGateway": true,
        "capabilities": {"ips": true, "mac": true}, "ipam": {"type": "host-local", "subnet": "10.50.0.0/24"}}]})
}

fn pod(node: &Node, name: &str, networks: &Value) -> PodSandboxConfig {
    let mut config = node.pod(name);
    config.linux = None;
    config.annotations.insert(ANNOTATION.to_owned(), networks.to_string());
    config
}

async fn try_pod(node: &Node, config: &PodSandboxConfig) -> Result<String, tonic::Status> {
    let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
    Ok(node.client().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
}

async fn stop(node: &Node, pod: &str) -> Result<(), tonic::Status> {
    let request = StopPodSandboxRequest { pod_sandbox_id: pod.to_owned() };
    node.client().stop_pod_sandbox(request).await.map(drop)
}

/// What the runtime says of a sandbox's networks, and where its namespace is.
async fn said(node: &Node, pod: &str) -> (Vec<Attached>, PathBuf) {
    let request = PodSandboxStatusRequest { pod_sandbox_id: pod.to_owned(), verbose: true };
    let info = node.client().pod_sandbox_status(request).await.unwrap().into_inner().info;
    let described: Value = serde_json::from_str(&info["info"]).unwrap();
    let networks = info.get(INFO).map_or_else(Vec::new, |text| serde_json::from_str(text).unwrap());
    (networks, described["netns"].as_str().unwrap().into())
}

/// What `ip` prints of a namespace.
fn ip(netns: Option<&PathBuf>, words: &str) -> String {
    let mut command = match netns {
        Some(netns) => {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net={}", netns.display())).arg("ip");
            command
        }
        None => Command::new("ip"),
    };
    let output = command.args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Names in folders of addresses, and entries of the cache.
fn kept(node: &Node) -> Vec<String> {
    let names = |dir: PathBuf| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let networks = node.config.cni_state_dir.join("networks");
    let all = ["trine", "a", "b"].into_iter().flat_map(|network| names(networks.join(network)));
    let addresses = all.filter(|name| name.parse::<std::net::IpAddr>().is_ok());
    addresses.chain(names(node.config.cni_state_dir.join("results"))).collect()
}

/// Waits until links that go behind a call are gone, and says which are left beside the bridge's.
async fn links_left() -> String {
    let mut left = String::new();
    for _ in 0..100 {
        let links = ip(None, "-br link");
        left = links.lines().filter(|line| !line.starts_with("lo ") && !line.starts_with("br-a ")).collect();
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    left
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_on_all_its_networks_and_leaves_none_of_them_behind() {
    let test = "a_pod_is_on_all_its_networks_and_leaves_none_of_them_behind";
    if !inside(test) || !trine_kernel::testing::program(test, "nsenter") {
        return;
    }
    let Some(mut node) = Node::start(test).await else { return };
    node.with_network("10.77.0.0/24");
    let by_name =
        json!({"cniVersion": "0.4.0", "name": "b", "type": "ptp", "ipam": ipam(&node, "10.51.0.0/24")});
    std::fs::write(node.config.cni_conf_dir.join("99-b.conf"), by_name.to_string()).unwrap();
    let networks = json!({
        "default": {"interface": "eth0", "gateways": []},
        "networks": [
            {"name": "n/a", "interface": "net1", "config": bridge(), "gateways": [],
                "wishes": {"ips": ["10.50.0.77/24"], "mac": "02:00:00:00:00:77"}},
            {"name": "n/b", "interface": "data", "configName": "b", "gateways": ["10.51.0.1"]},
        ],
    });
    let mut config = pod(&node, "one", &networks);
    config.port_mappings = vec![PortMapping { container_port: 80, host_port: 12_345, ..Default::default() }];
    let one = node.run_pod(&config).await;
    let other = json!({"networks": [{"name": "n/a", "interface": "net1", "config": bridge()}]});
    let two = node.run_pod(&pod(&node, "two", &other)).await;

    let (attached, netns) = said(&node, &one).await;
    let names: Vec<_> = attached.iter().map(|a| (a.name.as_str(), a.interface.as_str(), a.default)).collect();
    assert_eq!(names, [("trine", "eth0", true), ("n/a", "net1", false), ("n/b", "data", false)]);
    let status: Value = serde_json::from_str(&status::annotation(&attached)).unwrap();
    assert_eq!(status[1]["ips"], json!(["10.50.0.77"]), "{status}");
    assert_eq!(
        (&status[1]["mac"], &status[2]["gateway"]),
        (&json!("02:00:00:00:00:77"), &json!(["10.51.0.1"]))
    );
    assert_eq!(status[0].get("gateway"), None, "its default route was given up");
    let addresses = ip(Some(&netns), "-br -4 addr");
    for link in [("eth0@", "10.77.0."), ("net1@", "10.50.0.77/24"), ("data@", "10.51.0.")] {
        let has = |line: &str| line.starts_with(link.0) && line.contains(link.1);
        assert!(addresses.lines().any(has), "{link:?}: {addresses}");
    }
    let default = ip(Some(&netns), "route show default");
    assert!(default.lines().count() == 1 && default.contains("via 10.51.0.1 dev data"), "{default}");
    let (_, netns_of_two) = said(&node, &two).await;
    assert!(ip(Some(&netns_of_two), "route show default").contains("dev eth0"), "nobody said anything of it");
    let main = node.run(&two, container("main", &[])).await;
    let ping = "ping -c 1 -W 2 10.50.0.77 >/dev/null && echo there";
    assert_eq!(node.stdout(&main, ping).await, "there", "over the second network");

    // A new daemon keeps all of it, also when it looks for what is stale.
    node.end_daemon().await;
    node.serve().await;
    assert_eq!(said(&node, &one).await, (attached, netns.clone()));
    assert_eq!(ip(Some(&netns), "-br -4 addr"), addresses);
    assert_eq!(node.stdout(&main, ping).await, "there");
    assert_eq!(kept(&node).len(), 5 + 5, "{:?}", kept(&node));
    for pod in [&one, &two] {
        stop(&node, pod).await.unwrap();
    }
    assert_eq!(kept(&node), Vec::<String>::new());
    assert_eq!(links_left().await, "");
    node.finish().await;
}

/// A network whose plugin does what files in its folder say.
fn doubtful(node: &Node) -> Value {
    let bin = node.dir.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let script = r#"#!/bin/sh
cat > /dev/null
here=$(dirname "$0")
test -e "$here/fail-$CNI_COMMAND" && { echo '{"cniVersion": "1.0.0", "code": 999, "msg": "as it was told"}'; exit 1; }
test "$CNI_COMMAND" = ADD && echo '{"cniVersion": "1.0.0"}'
exit 0
"#;
    std::fs::write(bin.join("doubtful"), script).unwrap();
    std::fs::set_permissions(bin.join("doubtful"), PermissionsExt::from_mode(0o755)).unwrap();
    json!({"cniVersion": "1.0.0", "name": "b", "type": "doubtful"})
}

#[tokio::test(flavor = "multi_thread")]
async fn one_network_that_fails_fails_the_pod_and_one_that_cannot_be_left_keeps_the_sandbox() {
    let test = "one_network_that_fails_fails_the_pod_and_one_that_cannot_be_left_keeps_the_sandbox";
    if !inside(test) {
        return;
    }
    let Some(node) = Node::start(test).await else { return };
    node.with_network("10.77.0.0/24");
    let networks = json!({"networks": [
        {"name": "n/a", "interface": "net1", "config": bridge()},
        {"name": "n/b", "interface": "net2", "config": doubtful(&node)},
    ]});
    let told = |word: &str| node.dir.path().join("bin").join(word);
    std::fs::write(told("fail-ADD"), "").unwrap();
    let failed = try_pod(&node, &pod(&node, "one", &networks)).await.unwrap_err();
    assert!(failed.message().contains("as it was told"), "{failed:?}");
    assert_eq!((kept(&node), links_left().await), (Vec::new(), String::new()));
    std::fs::remove_file(told("fail-ADD")).unwrap();
    let one = node.run_pod(&pod(&node, "one", &networks)).await;
    std::fs::write(told("fail-DEL"), "").unwrap();
    for _ in 0..2 {
        let failed = stop(&node, &one).await.unwrap_err();
        assert!(failed.message().contains("as it was told"), "{failed:?}");
        assert_eq!(kept(&node), [format!("b-{one}-net2")], "the others are left");
    }
    let request = RemovePodSandboxRequest { pod_sandbox_id: one.clone() };
    assert!(node.client().remove_pod_sandbox(request).await.is_err());
    let listed = node.client().list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap();
    assert_eq!(listed.into_inner().items.len(), 1, "it is kept");
    std::fs::remove_file(told("fail-DEL")).unwrap();
    stop(&node, &one).await.unwrap();
    assert_eq!((kept(&node), links_left().await), (Vec::new(), String::new()));
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_refused_and_leaves_nothing() {
    let test = "what_cannot_be_done_is_refused_and_leaves_nothing";
    if !inside(test) {
        return;
    }
    let Some(node) = Node::start(test).await else { return };
    node.with_network("10.77.0.0/24");
    let with = |key: &str, value: Value| {
        let mut network = json!({"name": "n/a", "interface": "net1", "config": bridge()});
        network[key] = value;
        json!({"networks": [network]})
    };
    let mut plain = bridge();
    plain["plugins"][0]["capabilities"] = json!({});
    let mut rows = vec![
        (with("interface", json!("eth0")), "there twice"),
        (with("config", json!({"type": "bridge"})), "the network has no name"),
        (with("more", json!(1)), "unknown field"),
        (with("wishes", json!({"ips": ["10.99.0.1/24"]})), "10.99.0.1"),
        (with("wishes", json!({"portMappings": [{"hostPort": 80}]})), "no plugin has the capability"),
        (with("gateways", json!(["10.99.0.1"])), "add route to 0.0.0.0/0 via 10.99.0.1"),
        (
            json!({"networks": [{"interface": "net1", "configName": "none"}]}),
            "no network available in the name none",
        ),
    ];
    let mut told = with("wishes", json!({"mac": "02:00:00:00:00:05"}));
    told["networks"][0]["config"] = doubtful(&node);
    told["networks"][0]["wishes"]["ips"] = json!(["10.0.0.5"]);
    rows.push((told, "no plugin gave the address 10.0.0.5"));
    for (networks, part) in rows {
        let failed = try_pod(&node, &pod(&node, "one", &networks)).await.unwrap_err();
        assert!(failed.message().contains(part), "{networks}: {failed:?}");
        assert_eq!((kept(&node), links_left().await), (Vec::new(), String::new()), "{networks}");
    }
    // Without the capability the plugins hear of it by the arguments.
    let mut by_arguments = with("wishes", json!({"ips": ["10.50.0.9"], "mac": "02:00:00:00:00:05"}));
    by_arguments["networks"][0]["config"] = plain;
    let one = node.run_pod(&pod(&node, "one", &by_arguments)).await;
    assert_eq!(said(&node, &one).await.0[1].result["ips"][0]["address"], "10.50.0.9/24");
    // Another default network.
    let default = json!({"default": {"name": "kube-system/d", "interface": "eth0", "config": bridge()}});
    let two = node.run_pod(&pod(&node, "two", &default)).await;
    let (attached, _) = said(&node, &two).await;
    assert_eq!((attached.len(), attached[0].default, attached[0].name.as_str()), (1, true, "kube-system/d"));
    let request = PodSandboxStatusRequest { pod_sandbox_id: two.clone(), verbose: false };
    let status = node.client().pod_sandbox_status(request).await.unwrap().into_inner().status.unwrap();
    assert!(status.network.unwrap().ip.starts_with("10.50.0."), "it is what the Pod is known by");
    for pod in [&one, &two] {
        stop(&node, pod).await.unwrap();
    }
    assert_eq!((kept(&node), links_left().await), (Vec::new(), String::new()));
    node.finish().await;
}
