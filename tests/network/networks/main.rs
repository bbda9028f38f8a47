//! Pods on several networks, as users of Multus ask for them.

mod foreign;

use std::process::Command;

use serde_json::{Value, json};
use trine_tests::{Cluster, until};

const ASKED: &str = "k8s.v1.cni.cncf.io/networks";
const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// The bridge outlives its Pods, as it does under any runtime; the test removes it.
struct Bridge(String);

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "delete", &self.0]).output();
    }
}

/// Ranges of this test's own.
fn subnet(third: u32) -> String {
    format!("10.198.{}", (std::process::id() * 4 + third) % 256)
}

fn definition(name: &str, config: &Value) -> String {
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name}, "spec": {"config": config.to_string()},
    })
    .to_string()
}

fn pod(name: &str, networks: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {ASKED: networks}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
            "name": "main", "image": "trine.local/busybox:1", "command": ["/bin/busybox", "sleep", "600"],
            "env": [{"name": "NETWORKS", "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.annotations['{STATUS}']")}}}],
        }]},
    })
    .to_string()
}

fn busybox(cluster: &Cluster, pod: &str, words: &[&str]) -> String {
    let mut all = vec!["exec", pod, "--", "/bin/busybox"];
    all.extend(words);
    cluster.trine(&all).expect_ok()
}

fn status(cluster: &Cluster, pod: &str) -> Value {
    let pod = cluster.get(&format!("pod/{pod}"));
    serde_json::from_str(pod["metadata"]["annotations"][STATUS].as_str().unwrap_or("null")).unwrap()
}

/// Addresses that are taken in a network of the node's.
fn taken(cluster: &Cluster, network: &str) -> Vec<String> {
    let entries = std::fs::read_dir(cluster.dir().join("cni/state/networks").join(network))
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
}

#[test]
fn pods_are_on_the_networks_that_they_name() {
    let Some(cluster) = Cluster::with_busybox("pods_are_on_the_networks_that_they_name") else { return };
    let bridge = Bridge(format!("trn{}", std::process::id() % 100_000));
    let (a, b) = (subnet(0), subnet(1));
    let ipam = |subnet: &str| json!({"type": "host-local", "subnet": format!("{subnet}.0/24")});
    let shared = json!({"cniVersion": "1.0.0", "plugins": [{"type": "bridge", "bridge": bridge.0,
        "capabilities": {"ips": true}, "ipam": ipam(&a)}]});
    let apart = json!({"cniVersion": "0.3.1", "type": "ptp", "ipam": ipam(&b)});
    // The kind is defined behind the start.
    until("networks can be defined", || {
        let outcome = cluster.apply(&definition("shared", &shared));
        if outcome.ok { Ok(()) } else { Err(outcome.err) }
    });
    let again = cluster.apply(&definition("shared", &shared)).expect_ok();
    assert!(again.contains("unchanged"), "{again}");
    let asked = json!([{"name": "shared", "ips": [format!("{a}.50/24")]},
        {"name": "apart", "interface": "data", "default-route": [format!("{b}.1")]}]);
    let _ = cluster.apply(&pod("first", &asked.to_string())).expect_ok();
    let _ = cluster.apply(&pod("second", "shared")).expect_ok();
    let _ = cluster.wait_running("second");
    let words = "cannot find a network-attachment-definition (apart) in namespace (default)";
    let said = until("a missing definition is said", || {
        let events = cluster.events("first");
        if events.contains(words) { Ok(events) } else { Err(events) }
    });
    assert!(said.contains("FailedCreatePodSandBox"), "{said}");
    let _ = cluster.apply(&definition("apart", &apart)).expect_ok();
    let first = cluster.wait_running("first");

    let all = status(&cluster, "first");
    let names: Vec<_> =
        all.as_array().unwrap().iter().map(|n| (n["name"].clone(), n["interface"].clone())).collect();
    let expected = [("trine", "eth0"), ("default/shared", "net1"), ("default/apart", "data")];
    assert_eq!(names, expected.map(|(name, link)| (json!(name), json!(link))), "{all}");
    assert_eq!((&all[0]["default"], &all[0]["ips"]), (&json!(true), &json!([first["status"]["podIP"]])));
    assert_eq!(all[1]["ips"], json!([format!("{a}.50")]));
    assert_eq!(all[2]["gateway"], json!([format!("{b}.1")]));
    assert!(cluster.events("first").contains(&format!("Add net1 [{a}.50/24] from default/shared")));
    let env = busybox(&cluster, "first", &["sh", "-c", "echo \"$NETWORKS\""]);
    assert_eq!(serde_json::from_str::<Value>(&env).unwrap(), all, "it is there before the container starts");
    let routes = busybox(&cluster, "first", &["ip", "route", "show", "default"]);
    assert!(routes.contains(&format!("via {b}.1 dev data")) && !routes.contains("eth0"), "{routes}");
    let reach = || {
        until("the other Pod answers over the second network", || {
            let address = format!("{a}.50");
            let outcome = cluster.trine(&[
                "exec",
                "second",
                "--",
                "/bin/busybox",
                "ping",
                "-c",
                "1",
                "-W",
                "2",
                &address,
            ]);
            if outcome.out.contains("1 packets received") { Ok(()) } else { Err(format!("{outcome:?}")) }
        });
    };
    reach();

    // Whoever comes after finds them as they were.
    cluster.kill();
    cluster.start();
    reach();
    assert_eq!(status(&cluster, "first"), all);
    assert_eq!((taken(&cluster, "shared").len(), taken(&cluster, "apart").len()), (2, 1));
    let _ = cluster.trine(&["delete", "pod/first", "pod/second"]);
    until("their addresses are given back", || {
        let left = [taken(&cluster, "shared"), taken(&cluster, "apart")].concat();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}
