//! Pods on a network of their own. The test runs itself again inside a network namespace of its own, which stands for
//! the node.

#![allow(clippy::unwrap_used)]

mod harness;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use harness::{Node, container, inside, script};
use trine_contracts::cri::*;

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
    let stats = PodSandboxStatsRequest { pod_sandbox_id: pods[0].clone() };
    let stats = node.client().pod_sandbox_stats(stats).await.unwrap().into_inner().stats.unwrap();
    let interface = stats.linux.unwrap().network.unwrap().default_interface.unwrap();
    let (sent, received) = (interface.tx_bytes.unwrap().value, interface.rx_bytes.unwrap().value);
    assert!(
        interface.name == "eth0" && sent > 84 && received > 84,
        "an echo and its answer: {sent}, {received}"
    );
    let metrics = node.client().list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}).await.unwrap();
    let metrics = metrics.into_inner().pod_metrics;
    let metrics = metrics.iter().find(|metrics| metrics.pod_sandbox_id == pods[0]).unwrap();
    let packets = metrics.metrics.iter().find(|m| m.name == "container_network_transmit_packets_total");
    assert!(packets.unwrap().value.unwrap().value >= 1, "{metrics:?}");
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

/// What comes back from `to` for a line, over TCP.
fn ask(to: &str) -> Option<String> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    stream.write_all(b"hello\n").ok()?;
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).ok()?;
    String::from_utf8(answer.into()).ok()
}

/// The same over UDP, from a socket that sent there before.
fn ask_by_datagram(socket: &UdpSocket, to: &str) -> Option<String> {
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut answer = [0; 16];
    // A datagram that found nobody is an error of the next call.
    (0..10).find_map(|_| {
        let _ = socket.send_to(b"hello\n", to);
        let (length, _) = socket.recv_from(&mut answer).ok()?;
        String::from_utf8(answer[..length].into()).ok()
    })
}

fn echo_datagrams(socket: UdpSocket) {
    std::thread::spawn(move || {
        let mut bytes = [0; 16];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..length], from);
        }
    });
}

fn greet(listener: TcpListener) {
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"other\n");
        }
    });
}

async fn soon(what: &str, done: impl Fn() -> bool) {
    for _ in 0..50 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_the_host_lead_to_the_pod_that_has_them_and_to_nobody_when_it_is_gone() {
    let test = "ports_of_the_host_lead_to_the_pod_that_has_them_and_to_nobody_when_it_is_gone";
    if !inside(test) {
        return;
    }
    let Some(node) = Node::start(test).await else { return };
    let host = |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success());
    host(&["addr", "add", "192.0.2.1/32", "dev", "lo"]);
    host(&["addr", "add", "192.0.2.2/32", "dev", "lo"]);
    host(&["addr", "add", "2001:db8::1/128", "dev", "lo"]);
    std::fs::create_dir_all(&node.config.cni_conf_dir).unwrap();
    let conflist = trine_cni::default_network(&trine_cni::DefaultNetwork {
        instance: &node.config.instance,
        pod_cidrs: &["10.79.0.0/24".parse().unwrap(), "fd00:79::/64".parse().unwrap()],
        data_dir: &node.config.cni_state_dir,
        mtu: None,
    });
    std::fs::write(node.config.cni_conf_dir.join("90-trine.conflist"), conflist.to_string()).unwrap();
    let port = |protocol: Protocol, host_port, container_port, host_ip: &str| PortMapping {
        protocol: protocol as i32,
        host_port,
        container_port,
        host_ip: host_ip.to_owned(),
    };
    let with = |name: &str, port_mappings| PodSandboxConfig { port_mappings, ..own_network(node.pod(name)) };
    // The first Pod makes the kernel track connections; then a client sends where nobody is yet.
    let first = node.run_pod(&with("first", vec![port(Protocol::Tcp, 12000, 80, "")])).await;
    let early = UdpSocket::bind("0.0.0.0:0").unwrap();
    early.send_to(b"hello\n", "192.0.2.1:12053").unwrap();
    let mappings = vec![
        port(Protocol::Tcp, 12001, 80, "192.0.2.1"),
        port(Protocol::Udp, 12053, 53, ""),
        // The port that the first Pod has on all addresses, on one of them.
        port(Protocol::Tcp, 12000, 81, "192.0.2.2"),
        port(Protocol::Tcp, 12006, 82, ""),
    ];
    let second = node.run_pod(&with("second", mappings)).await;
    let one = node.run(&first, script("main", "exec nc -ll -p 80 -e cat")).await;
    node.run(&second, script("main", "exec nc -ll -p 80 -e cat")).await;
    let netns = node.config.state_dir.join("sandboxes").join(&second).join("netns");
    let netns = trine_kernel::netns::Netns::open(&netns).unwrap();
    echo_datagrams(netns.run(|| UdpSocket::bind("0.0.0.0:53")).unwrap().unwrap());
    greet(netns.run(|| TcpListener::bind("0.0.0.0:81")).unwrap().unwrap());
    greet(netns.run(|| TcpListener::bind("[::]:82")).unwrap().unwrap());
    let said =
        |to: &'static str, expected: Option<&'static str>| soon(to, move || ask(to).as_deref() == expected);
    said("127.0.0.1:12000", Some("hello\n")).await;
    said("192.0.2.1:12000", Some("hello\n")).await;
    said("192.0.2.1:12001", Some("hello\n")).await;
    said("192.0.2.2:12000", Some("other\n")).await;
    said("192.0.2.1:12006", Some("other\n")).await;
    said("[2001:db8::1]:12006", Some("other\n")).await;
    said("127.0.0.1:12001", None).await;
    assert_eq!(ask_by_datagram(&early, "192.0.2.1:12053").as_deref(), Some("hello\n"), "the early client");
    let ask_inside = |to: &str| format!("echo hello | nc -w 2 {to} || true");
    assert_eq!(node.stdout(&one, &ask_inside("192.0.2.1 12001")).await, "hello", "from the other Pod");
    assert_eq!(node.stdout(&one, &ask_inside("192.0.2.1 12000")).await, "hello", "from the Pod itself");
    let stop = |pod: &str| StopPodSandboxRequest { pod_sandbox_id: pod.to_owned() };
    node.client().stop_pod_sandbox(stop(&second)).await.unwrap();
    said("192.0.2.1:12001", None).await;
    said("192.0.2.1:12000", Some("hello\n")).await;
    node.client().stop_pod_sandbox(stop(&first)).await.unwrap();
    said("192.0.2.1:12000", None).await;
    for family in [trine_kernel::nft::Family::Ip, trine_kernel::nft::Family::Ip6] {
        let tables = trine_kernel::nft::Nft::open().unwrap().tables(family).unwrap();
        assert!(tables.is_empty(), "{family:?}: {tables:?}");
    }
    node.finish().await;
}
