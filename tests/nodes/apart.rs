//! Nodes that are not neighbours, and nodes that must not behave as if they were: tunnels.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use trine_kernel::netlink::{Link, Request, Route, RouteEntry};
use trine_kernel::netns::Netns;
use trine_tests::{Cluster, until};

/// How soon what somebody removed must be back.
const BACK: Duration = Duration::from_secs(2);

/// A Pod on a node that tells its name on port 9000, the sum of what it is sent on port 9001, a megabyte of noise on port 9002, and who
/// asks on port 9003.
fn pod(name: &str, node: &str) -> String {
    let bb = "/bin/busybox";
    let script = format!(
        "{bb} head -c 1048576 /dev/urandom > /noise; {bb} nc -ll -p 9001 -e {bb} md5sum & \
         {bb} nc -ll -p 9002 -e {bb} cat /noise & {bb} nc -ll -p 9003 -e {bb} netstat -tn & exec {bb} nc -ll -p 9000 -e {bb} echo {name}"
    );
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, sh, -c, "{script}"]
    readinessProbe: {{tcpSocket: {{port: 9000}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{type: NodePort, selector: {{app: {name}}}, ports: [{{port: 80, targetPort: 9000}}]}}
---
"#
    )
}

/// A Pod that asks an address a hundred times within ten seconds, and then is done.
fn asker(name: &str, node: &str, to: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, ping, -i, "0.1", -c, "100", {to}]
---
"#
    )
}

/// A cluster of so many nodes, and a Pod on each.
struct Apart {
    cluster: Cluster,
    nodes: Vec<String>,
}

const PODS: [&str; 3] = ["one", "two", "three"];

impl Apart {
    fn start(test: &str, words: &[&str]) -> Option<Self> {
        if !trine_kernel::testing::root(test) || !trine_kernel::testing::program(test, "busybox") {
            return None;
        }
        let cluster = Cluster::prepared();
        let _ = cluster.trine(&[&["up", "--detach"], words].concat()).expect_ok();
        let listed = cluster.get("nodes");
        let name = |n: &Value| n["metadata"]["name"].as_str().map(str::to_owned);
        let mut nodes: Vec<String> =
            listed["items"].as_array().into_iter().flatten().filter_map(name).collect();
        nodes.sort_by_key(|name| (name.len(), name.clone()));
        Some(Self { cluster, nodes })
    }

    /// The Pods run, one on each node.
    fn people(&self) {
        self.cluster.build_busybox();
        let all: String = PODS.iter().zip(&self.nodes).map(|(name, node)| pod(name, node)).collect();
        let _ = self.cluster.apply(&all).expect_ok();
        self.pods().for_each(|pod| drop(self.cluster.wait_running(pod)));
    }

    fn pods(&self) -> impl Iterator<Item = &'static str> {
        PODS.into_iter().take(self.nodes.len())
    }

    fn folder(&self, node: usize) -> PathBuf {
        match node {
            0 => self.cluster.dir().to_owned(),
            _ => self.cluster.dir().join("nodes").join(&self.nodes[node]),
        }
    }

    fn route(&self, node: usize) -> Route {
        match node {
            0 => Route::open().expect("a socket"),
            _ => {
                let netns = Netns::open(&self.folder(node).join("ns/net")).expect("the node's namespace");
                Route::open_in(&netns).expect("a socket")
            }
        }
    }

    fn instance(&self, node: usize) -> String {
        let text = std::fs::read(self.folder(node).join("identity.json")).expect("an identity");
        let value: Value = serde_json::from_slice(&text).expect("JSON");
        value["instance"].as_str().expect("an id").to_owned()
    }

    fn tunnel(&self, node: usize) -> Option<Link> {
        let name = format!("tr{}vx4", self.instance(node));
        self.route(node).find_link(&name).expect("links are listed")
    }

    /// Which node's Pods a node reaches through its tunnel (true) and by a route (false).
    fn ways(&self, node: usize) -> Vec<(String, bool)> {
        let nodes = self.cluster.get("nodes");
        let tunnel = self.tunnel(node).map(|link| link.index);
        let routes: Vec<RouteEntry> = self.route(node).routes(false).expect("routes are listed");
        let way = |object: &Value| {
            let range = object["spec"]["podCIDR"].as_str()?.parse().ok()?;
            let found = routes.iter().find(|r| r.dst == range && r.gateway.is_some())?;
            let through = tunnel.is_some() && found.device == tunnel;
            Some((object["metadata"]["name"].as_str()?.to_owned(), through))
        };
        let mut ways: Vec<_> = nodes["items"].as_array().into_iter().flatten().filter_map(way).collect();
        ways.sort_by_key(|(name, _)| (name.len(), name.clone()));
        ways
    }

    fn until_ways(&self, node: usize, through: &[(usize, bool)]) {
        let expected: Vec<_> = through.iter().map(|(to, how)| (self.nodes[*to].clone(), *how)).collect();
        until(&format!("node {node} has ways {through:?}"), || {
            let ways = self.ways(node);
            if ways == expected { Ok(()) } else { Err(format!("{ways:?}")) }
        });
    }

    fn until_mtu(&self, node: usize, mtu: Option<u64>) {
        until(&format!("Pods of node {node} are given {mtu:?}"), || {
            let file = match node {
                0 => self.cluster.dir().join("cni/net.d/90-trine.conflist"),
                _ => self.folder(node).join("cni/net.d/90-trine.conflist"),
            };
            let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let value: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            if value["plugins"][0]["mtu"].as_u64() == mtu { Ok(()) } else { Err(text) }
        });
    }

    fn inside(&self, pod: &str, words: &str) -> String {
        let outcome = self.cluster.trine(&["exec", pod, "--", "/bin/busybox", "sh", "-c", words]);
        outcome.expect_ok().trim().to_owned()
    }

    fn text(&self, what: &str, path: &str) -> String {
        let object = self.cluster.get(what);
        object.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("no {path}")).to_owned()
    }

    fn ip(&self, pod: &str) -> String {
        self.text(&format!("pod/{pod}"), "/status/podIP")
    }

    fn until_said(&self, from: &str, ip: &str, port: &str, answer: &str) {
        until(&format!("{ip}:{port} says {answer} to Pod {from}"), || {
            let words = format!("/bin/busybox nc -w 2 {ip} {port} </dev/null");
            let said = self.cluster.trine(&["exec", from, "--", "/bin/busybox", "sh", "-c", &words]).out;
            if said.trim() == answer { Ok(()) } else { Err(said) }
        });
    }

    /// Everybody reaches everybody: by address, through the Service, and through its port of each node; a megabyte goes each way.
    fn all_exchange(&self) {
        let address = |node: &String| self.text(&format!("node/{node}"), "/status/addresses/0/address");
        let addresses: Vec<String> = self.nodes.iter().map(address).collect();
        for to in self.pods() {
            let (ip, service) = (self.ip(to), self.text(&format!("service/{to}"), "/spec/clusterIP"));
            let port = self.cluster.get(&format!("service/{to}"))["spec"]["ports"][0]["nodePort"].to_string();
            let noise = self.inside(to, "/bin/busybox md5sum < /noise");
            for from in self.pods().filter(|from| *from != to) {
                self.until_said(from, &ip, "9000", to);
                self.until_said(from, &service, "80", to);
                addresses.iter().for_each(|node| self.until_said(from, node, &port, to));
                let own = self.inside(from, "/bin/busybox md5sum < /noise");
                let sent = self.inside(from, &format!("/bin/busybox nc -w 9 {ip} 9001 < /noise"));
                assert_eq!(sent, own, "{from} sends to {to}");
                let got = format!("/bin/busybox nc -w 9 {ip} 9002 </dev/null | /bin/busybox md5sum");
                assert_eq!(self.inside(from, &got), noise, "{from} gets from {to}");
                let seen = self.inside(from, &format!("/bin/busybox nc -w 9 {ip} 9003 </dev/null"));
                assert!(seen.contains(&format!("{}:", self.ip(from))), "{from} is itself to {to}: {seen}");
            }
        }
    }
}

#[test]
fn nodes_on_different_links_reach_each_other_through_tunnels_and_neighbours_by_routes() {
    const TEST: &str = "nodes_on_different_links_reach_each_other_through_tunnels_and_neighbours_by_routes";
    let Some(apart) = Apart::start(TEST, &["--nodes", "3", "--node-links", "2"]) else { return };
    apart.until_ways(0, &[(1, true), (2, false)]);
    apart.until_ways(1, &[(0, true), (2, true)]);
    apart.until_ways(2, &[(0, false), (1, true)]);
    (0..3).for_each(|node| apart.until_mtu(node, Some(1450)));
    apart.people();
    for pod in apart.pods() {
        let link = apart.inside(pod, "/bin/busybox ip link show eth0");
        assert!(link.contains("mtu 1450"), "{link}");
    }
    apart.all_exchange();
    let status = apart.cluster.trine(&["status"]).expect_ok();
    assert!(status.contains("1 by routes, 1 through tunnels of 1450 bytes"), "{status}");
    assert!(status.contains("2 through tunnels of 1450 bytes"), "{status}");
}

#[test]
fn what_somebody_removes_is_back_at_once_and_a_restart_loses_no_packet() {
    const TEST: &str = "what_somebody_removes_is_back_at_once_and_a_restart_loses_no_packet";
    let Some(apart) = Apart::start(TEST, &["--nodes", "2", "--node-links", "2"]) else { return };
    apart.until_ways(0, &[(1, true)]);
    apart.until_ways(1, &[(0, true)]);
    apart.people();
    let (one, two) = (apart.ip("one"), apart.ip("two"));
    apart.until_said("one", &two, "9000", "two");

    // On the node whose process the agent is, and on the first.
    for node in [1, 0] {
        let before = apart.tunnel(node).expect("a tunnel");
        let since = Instant::now();
        apart.route(node).run(&[Request::del_link(&before)]).expect("it is removed");
        until("all is back", || {
            let link = apart.tunnel(node).ok_or("no device")?;
            let forwards = apart.route(node).forwards(link.index).map_err(|e| e.to_string())?;
            let way = apart.ways(node).first().is_some_and(|(_, through)| *through);
            let whole = forwards.len() == 1 && way && link.up && link.mtu == before.mtu;
            if whole { Ok(()) } else { Err(format!("{link:?} {forwards:?}")) }
        });
        println!("back after {:.2?}", since.elapsed());
        assert!(since.elapsed() < BACK || !trine_kernel::testing::time_counts(), "{:?}", since.elapsed());
        apart.until_said("one", &two, "9000", "two");
    }

    let devices: Vec<_> = [0, 1].map(|node| apart.tunnel(node)).into();
    let askers = [("forth", 0, &two), ("back", 1, &one)];
    let manifests = askers.map(|(name, node, to)| asker(name, &apart.nodes[node], to)).concat();
    let _ = apart.cluster.apply(&manifests).expect_ok();
    for (name, ..) in askers {
        apart.cluster.wait_running(name);
    }
    let pid = std::fs::read_to_string(apart.folder(1).join("run/trine.pid")).expect("the agent's pid");
    let killed = std::process::Command::new("kill").args(["-9", pid.trim()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    apart.cluster.kill();
    apart.cluster.start();
    for (name, ..) in askers {
        until(&format!("Pod {name} is done"), || {
            let phase = apart.text(&format!("pod/{name}"), "/status/phase");
            if phase == "Succeeded" { Ok(()) } else { Err(phase) }
        });
        let said = apart.cluster.trine(&["logs", name]).expect_ok();
        assert!(said.contains("100 packets transmitted, 100 packets received"), "{name}: {said}");
    }
    assert_eq!([0, 1].map(|node| apart.tunnel(node)).to_vec(), devices, "the devices are the same");
    apart.all_exchange();
}

#[test]
fn nodes_that_get_other_addresses_are_found_there_and_their_pods_learn_what_is_too_large() {
    const TEST: &str =
        "nodes_that_get_other_addresses_are_found_there_and_their_pods_learn_what_is_too_large";
    let Some(apart) = Apart::start(TEST, &["--nodes", "2"]) else { return };
    apart.until_ways(1, &[(0, false)]);
    apart.until_mtu(1, None);
    apart.people();
    apart.cluster.kill();
    let _ = apart.cluster.trine(&["up", "--detach", "--node-links", "2"]).expect_ok();
    apart.until_ways(0, &[(1, true)]);
    apart.until_ways(1, &[(0, true)]);
    let address = apart.text(&format!("node/{}", apart.nodes[1]), "/status/addresses/0/address");
    assert!(address.ends_with(".1.2"), "{address}");
    for pod in apart.pods() {
        let link = apart.inside(pod, "/bin/busybox ip link show eth0");
        assert!(link.contains("mtu 1500"), "it is the same Pod: {link}");
    }
    apart.all_exchange();
}

#[test]
fn neighbours_use_tunnels_if_told_to_and_routes_again_if_told_otherwise() {
    const TEST: &str = "neighbours_use_tunnels_if_told_to_and_routes_again_if_told_otherwise";
    let Some(apart) = Apart::start(TEST, &["--nodes", "2", "--overlay", "vxlan"]) else { return };
    apart.until_ways(0, &[(1, true)]);
    apart.until_ways(1, &[(0, true)]);
    (0..2).for_each(|node| apart.until_mtu(node, Some(1450)));
    apart.people();
    apart.all_exchange();

    apart.cluster.kill();
    let _ = apart.cluster.trine(&["up", "--detach", "--overlay", "direct"]).expect_ok();
    apart.until_ways(0, &[(1, false)]);
    apart.until_ways(1, &[(0, false)]);
    (0..2).for_each(|node| apart.until_mtu(node, None));
    assert!(apart.tunnel(0).is_none() && apart.tunnel(1).is_none());
    apart.all_exchange();

    // It is kept.
    apart.cluster.kill();
    apart.cluster.start();
    apart.until_ways(1, &[(0, false)]);
    let wrong = apart.cluster.trine(&["up", "--overlay", "ipip"]).expect_failure();
    assert!(wrong.contains("is none of auto, vxlan, direct"), "{wrong}");
}
