//! A node, Pods and an outsider, each a network namespace of its own, for one family.
//!
//! ```text
//!  a 10.244.0.2, fd00:244::2 ──┐
//!  b          3            3 ──┤ host 192.0.2.1, 2001:db8::1 ──uplink── ext 192.0.2.2, 2001:db8::2 (the host's default route)
//!  c          4            4 ──┘
//! ```
#![allow(dead_code)]

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use trine_kernel::netns::{self, Netns};
use trine_kernel::nft::matches::{address, destination, family};
use trine_kernel::nft::{Batch, Chain, ChainKind, Expr, Hook, Nft, Reg, Rule, Set, SetFlags, octets};
use trine_proxy::model::{ServiceKey, ServiceSpec, SliceSpec};
use trine_proxy::{Config, Engine, Ranges};

pub const INSTANCE: &str = "00beef";
pub const NODE: &str = "n1";
const WAIT: Duration = Duration::from_millis(1500);

/// Unpins the namespaces; the kernel drops them with their links and rules.
struct Pins(Vec<PathBuf>);

impl Drop for Pins {
    fn drop(&mut self) {
        for pin in &self.0 {
            let _ = netns::delete(pin);
        }
    }
}

/// The addresses of a family.
pub struct At {
    /// The Service's.
    pub vip: IpAddr,
    /// In the Service range, and nobody's.
    pub unassigned: IpAddr,
    /// In the Pod range, and nobody's.
    pub stranger: IpAddr,
    /// The host's.
    pub host: IpAddr,
    /// The outsider's.
    pub ext: IpAddr,
    /// One of the Service's from elsewhere.
    pub external: IpAddr,
    pub pods: &'static str,
    pub services: &'static str,
}

impl At {
    pub fn of(v6: bool) -> Self {
        let ip = |v4: &str, other: &str| if v6 { other } else { v4 }.parse().expect("an address");
        Self {
            vip: ip("10.96.0.10", "fd00:96::a"),
            unassigned: ip("10.96.7.7", "fd00:96::707"),
            stranger: ip("10.244.9.9", "fd00:244::9:9"),
            host: ip("192.0.2.1", "2001:db8::1"),
            ext: ip("192.0.2.2", "2001:db8::2"),
            external: ip("198.51.100.7", "2001:db8:7::7"),
            pods: if v6 { "fd00:244::/64" } else { "10.244.0.0/16" },
            services: if v6 { "fd00:96::/112" } else { "10.96.0.0/16" },
        }
    }

    fn v6(&self) -> bool {
        self.host.is_ipv6()
    }

    /// The unspecified address.
    fn any(&self) -> IpAddr {
        if self.v6() { [0u16; 8].into() } else { [0u8; 4].into() }
    }
}

pub struct Lab {
    pub at: At,
    pub host: Netns,
    pub ext: Netns,
    pub pods: Vec<(&'static str, IpAddr, Netns)>,
    pub engine: Engine,
    // Dropped in this order: pins before the folder they are in.
    _pins: Pins,
    _dir: tempfile::TempDir,
}

pub fn ip(netns: &Netns, args: &str) {
    let output = netns
        .run(|| Command::new("ip").args(args.split_whitespace()).output())
        .expect("enters the namespace")
        .expect("ip runs");
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Lab {
    /// One of IPv6, or of IPv4.
    pub fn new(v6: bool) -> Self {
        let at = At::of(v6);
        let dir = tempfile::tempdir().expect("a folder");
        let pins = Pins(["host", "ext", "a", "b", "c"].iter().map(|name| dir.path().join(name)).collect());
        let made: Vec<Netns> = pins.0.iter().map(|pin| Netns::create(pin).expect("a namespace")).collect();
        let mut made = made.into_iter();
        let (host, ext) = (made.next().expect("host"), made.next().expect("ext"));
        for netns in [&host, &ext] {
            ip(netns, "link set lo up");
        }
        let path = |netns: &Netns| netns.path().display().to_string();
        let (link, alone, nodad) = if v6 { ("/64", "/128", " nodad") } else { ("/24", "/32", "") };
        let gateway = if v6 { "fe80::1" } else { "169.254.1.1" };
        ip(&host, &format!("link add up0 type veth peer name eth0 netns {}", path(&ext)));
        ip(&host, &format!("addr add {}{link} dev up0{nodad}", at.host));
        ip(&host, "link set up0 up");
        ip(&ext, &format!("addr add {}{link} dev eth0{nodad}", at.ext));
        ip(&ext, "link set eth0 up");
        ip(&host, &format!("route add default via {}", at.ext));
        let pods = ["a", "b", "c"].into_iter().zip(made).enumerate().map(|(n, (name, netns))| {
            let address = format!("{}{}", if v6 { "fd00:244::" } else { "10.244.0." }, n + 2);
            ip(&host, &format!("link add v{name} type veth peer name eth0 netns {}", path(&netns)));
            ip(&host, &format!("addr add {gateway}{alone} dev v{name} scope link{nodad}"));
            ip(&host, &format!("link set v{name} up"));
            ip(&host, &format!("route add {address}{alone} dev v{name}"));
            ip(&netns, "link set lo up");
            ip(&netns, &format!("addr add {address}{alone} dev eth0{nodad}"));
            ip(&netns, "link set eth0 up");
            ip(&netns, &format!("route add {gateway}{alone} dev eth0"));
            ip(&netns, &format!("route add default via {gateway} dev eth0"));
            (name, address.parse().expect("an address"), netns)
        });
        let pods: Vec<_> = pods.collect();
        let engine = Engine::new(config(&host, v6)).expect("an engine");
        let mut lab = Self { at, host, ext, pods, engine, _pins: pins, _dir: dir };
        lab.engine.guard().expect("the ranges are guarded");
        lab.engine.sync().expect("the empty table is loaded");
        lab
    }

    pub fn pod(&self, name: &str) -> &Netns {
        &self.pods.iter().find(|pod| pod.0 == name).expect("a Pod of that name").2
    }

    pub fn address(&self, name: &str) -> IpAddr {
        self.pods.iter().find(|pod| pod.0 == name).expect("a Pod of that name").1
    }

    /// A TCP and a UDP server which say the Pod's name and who asks.
    pub fn serve(&self, pod: &'static str, port: u16) {
        let netns = self.pod(pod);
        let any = self.at.any();
        let bind = || (TcpListener::bind((any, port)), UdpSocket::bind((any, port)));
        let (tcp, udp) = netns.run(bind).expect("enters");
        let (tcp, udp) = (tcp.expect("tcp"), udp.expect("udp"));
        std::thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                let mut stream = stream;
                let peer = stream.peer_addr().map(|p| p.ip().to_string()).unwrap_or_default();
                let _ = write!(stream, "{pod} {peer}");
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((_, peer)) = udp.recv_from(&mut buffer) {
                let _ = udp.send_to(format!("{pod} {}", peer.ip()).as_bytes(), peer);
            }
        });
    }

    pub fn service(&mut self, name: &str, extra: Value) {
        let mut spec = json!({
            "clusterIP": self.at.vip,
            "ports": [
                {"name": "web", "port": 80, "protocol": "TCP"},
                {"name": "dns", "port": 53, "protocol": "UDP"},
            ],
        });
        for (key, value) in extra.as_object().expect("an object") {
            spec[key] = value.clone();
        }
        let service = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        let service = serde_json::from_value(service).expect("a Service");
        self.engine.model.set_service(ServiceKey::new("default", name), ServiceSpec::from_api(&service));
    }

    /// One slice with these Pods as endpoints on a node.
    pub fn endpoints(&mut self, service: &str, node: &str, pods: &[&str]) {
        let endpoints: Vec<_> = pods
            .iter()
            .map(|pod| json!({"addresses": [self.address(pod)], "nodeName": node, "conditions": {"ready": true}}))
            .collect();
        let slice = json!({
            "metadata": {
                "name": "slice", "namespace": "default", "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": if self.at.v6() { "IPv6" } else { "IPv4" },
            "ports": [
                {"name": "web", "port": 8080, "protocol": "TCP"},
                {"name": "web", "port": 8080, "protocol": "SCTP"},
                {"name": "dns", "port": 8080, "protocol": "UDP"},
            ],
            "endpoints": endpoints,
        });
        let slice = serde_json::from_value(slice).expect("a slice");
        let key = ServiceKey::new("default", &format!("{service}-{node}"));
        self.engine.model.set_slice(key, SliceSpec::from_api(&slice));
    }

    pub fn sync(&mut self) {
        self.engine.sync().expect("the table is changed");
    }

    /// Watches which addresses packets that reach the outsider are for.
    pub fn watch_uplink(&self) {
        let v6 = self.at.v6();
        let mut batch = Batch::new(family(v6));
        batch.add_table("watch");
        let flags = SetFlags { dynamic: true, ..SetFlags::default() };
        batch.add_set("watch", &Set { flags, size: Some(1000), ..Set::new("seen", &[address(v6)]) });
        batch.add_chain("watch", &Chain::base("in", ChainKind::Filter, Hook::Prerouting, -300));
        let note = Expr::Update { set: "seen".into(), key: Reg(0), data: None, timeout: None };
        batch.add_rule("watch", "in", &Rule::new([destination(v6, Reg(0)), note]));
        Nft::open_in(&self.ext).expect("socket").commit(batch).expect("the watch is set");
    }

    /// The first bytes of those addresses, as many as an address of the family has.
    pub fn seen_on_uplink(&self) -> Vec<Vec<u8>> {
        let family = family(self.at.v6());
        let elements = Nft::open_in(&self.ext).expect("socket").elements(family, "watch", "seen");
        let length = octets(self.at.host).len();
        let mut seen: Vec<_> = elements.expect("elements").iter().map(|e| e.key[..length].to_vec()).collect();
        seen.sort_unstable();
        seen
    }
}

pub fn config(host: &Netns, v6: bool) -> Config {
    let at = At::of(v6);
    let range = |text: &str| text.parse().expect("a range");
    Config {
        node_name: NODE.into(),
        instance: INSTANCE.into(),
        ranges: Ranges::pairs(&range(at.pods), &range(at.services), None),
        node_ips: vec![at.host],
        netns: Some(host.path().to_owned()),
    }
}

/// What a TCP server says.
pub fn tcp(from: &Netns, to: (impl Into<IpAddr>, u16)) -> io::Result<String> {
    let to = SocketAddr::new(to.0.into(), to.1);
    from.run(|| {
        let mut stream = TcpStream::connect_timeout(&to, WAIT)?;
        stream.set_read_timeout(Some(WAIT))?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    })
    .expect("enters the namespace")
}

/// What a UDP server says.
pub fn udp(from: &Netns, to: (impl Into<IpAddr>, u16)) -> io::Result<String> {
    let to = SocketAddr::new(to.0.into(), to.1);
    from.run(|| {
        let socket = UdpSocket::bind(if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" })?;
        socket.set_read_timeout(Some(WAIT))?;
        socket.connect(to)?;
        socket.send(b"?")?;
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    })
    .expect("enters the namespace")
}
