//! Three nodes on two links with a router between, a Pod on each; all of them network namespaces.
//!
//! ```text
//! Pod a ─ node a ─┐
//!                 ├─ link 1 ─ router ─ link 2 ─ node b ─ Pod b
//! Pod c ─ node c ─┘
//! ```

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use trine_kernel::netlink::{
    Cidr, Link, LinkChange, NewKind, NewLink, Request, Route, RouteEntry, Scope, Veth, VethPeer,
};
use trine_kernel::netns::{self, Netns};
use trine_kernel::sysctl;
use trine_overlay::{Checksums, Me, Mode, Peer, Synced};

/// How long a connection may take: the kernel sends a lost segment again before that.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is sent.
const MEGABYTE: usize = 1 << 20;

/// A namespace that is removed when dropped.
pub struct Space(pub Netns);

impl Space {
    fn new(dir: &Path, name: &str) -> Self {
        let netns = Netns::create(&dir.join(name)).expect("a network namespace");
        let space = Self(netns);
        space.route().set_link("lo", &up()).expect("lo is up");
        space.sysctl("net/ipv4/ip_forward", "1");
        space.sysctl("net/ipv6/conf/all/forwarding", "1");
        // Addresses are usable at once.
        space.sysctl("net/ipv6/conf/all/accept_dad", "0");
        space.sysctl("net/ipv6/conf/default/accept_dad", "0");
        space
    }

    pub fn route(&self) -> Route {
        Route::open_in(&self.0).expect("a socket")
    }

    fn sysctl(&self, key: &str, value: &str) {
        self.0.run(|| sysctl::ensure(key, value)).expect("the namespace").expect("a sysctl");
    }

    pub fn link(&self, name: &str) -> Link {
        self.route().link(name).expect("a link")
    }

    /// A number of the kernel's, by its table and name in `/proc/net/snmp`.
    pub fn counted(&self, name: &str) -> u64 {
        let text =
            self.0.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).expect("the namespace");
        let text = text.expect("the kernel's numbers");
        let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let at = names.split(' ').position(|n| n == name).expect("a known number");
        values.split(' ').nth(at).and_then(|v| v.parse().ok()).expect("a number")
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = netns::delete(self.0.path());
    }
}

fn up() -> LinkChange<'static> {
    LinkChange { up: Some(true), ..LinkChange::default() }
}

fn cidr(text: &str) -> Cidr {
    text.parse().expect("a range")
}

/// A node with its Pod.
pub struct Node {
    pub name: &'static str,
    pub space: Space,
    pub pod: Space,
    pub peer: Peer,
}

/// All of it.
pub struct Lab {
    pub router: Space,
    pub nodes: Vec<Node>,
    _dir: tempfile::TempDir,
}

/// Of which family the nodes' own addresses are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Underlay {
    V4,
    V6,
}

impl Lab {
    pub fn new(underlay: Underlay) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let router = Space::new(dir.path(), "router");
        for (bridge, number) in [("br1", 1), ("br2", 2)] {
            router.route().run(&[Request::add_bridge(bridge, None, None)]).expect("a bridge");
            let device = router.link(bridge).index;
            let addresses = [format!("10.{number}.0.1/24"), format!("fd01:{number}::1/64")];
            let addresses = addresses.iter().map(|a| Request::add_address(device, cidr(a)));
            router.route().run(&addresses.collect::<Vec<_>>()).expect("addresses");
        }
        let nodes = [("a", 1, 2), ("b", 2, 2), ("c", 1, 3)]
            .map(|(name, link, host)| node(dir.path(), &router, underlay, name, link, host));
        Self { router, nodes: nodes.into(), _dir: dir }
    }

    pub fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.name == name).expect("a node")
    }

    pub fn peers(&self) -> Vec<Peer> {
        self.nodes.iter().map(|node| node.peer.clone()).collect()
    }

    /// One pass on each node.
    pub fn sync(&self, mode: Mode) {
        for node in &self.nodes {
            node.sync(mode, &self.peers());
        }
    }
}

fn node(dir: &Path, router: &Space, underlay: Underlay, name: &'static str, link: u8, host: u8) -> Node {
    let space = Space::new(dir, name);
    let pod = Space::new(dir, &format!("pod-{name}"));
    let port = format!("to-{name}");
    wire(router, &port, &space, "eth0");
    let bridge = router.link(&format!("br{link}")).index;
    let port = router.link(&port);
    router.route().set_link(&port, &LinkChange { master: Some(bridge), ..up() }).expect("a port");
    let eth0 = space.link("eth0").index;
    let own = [format!("10.{link}.0.{host}/24"), format!("fd01:{link}::{host}/64")].map(|a| cidr(&a));
    let ways = [format!("10.{link}.0.1"), format!("fd01:{link}::1")].map(|a| RouteEntry {
        gateway: Some(a.parse().expect("an address")),
        device: Some(eth0),
        ..RouteEntry::to(Cidr::default_route(a.contains(':')))
    });
    let addresses = own.iter().map(|a| Request::add_address(eth0, *a));
    let all: Vec<Request> = addresses.chain(ways.iter().map(RouteEntry::add)).collect();
    space.route().run(&all).expect("addresses and routes");
    let number = name.bytes().next().map_or(0, |b| b - b'a');
    let ranges = [cidr(&format!("10.244.{number}.0/24")), cidr(&format!("fd00:244:0:{number}::/64"))];
    let addresses = match underlay {
        Underlay::V4 => vec![own[0].addr],
        Underlay::V6 => vec![own[1].addr],
    };
    let peer = Peer { name: name.to_owned(), addresses, ranges: ranges.to_vec() };
    let node = Node { name, space, pod, peer };
    node.attach();
    node
}

/// A link from `near` to `far`, both ends up.
fn wire(near: &Space, name: &str, far: &Space, peer: &str) {
    let end = VethPeer { name: peer, netns: Some(far.0.as_fd()), mac: None };
    near.route().add_veth(&Veth { name, mac: None, mtu: None, peer: end }).expect("a veth");
    far.route().set_link(peer, &up()).expect("its other end is up");
}

impl Node {
    /// Of the family of `to`.
    pub fn pod_ip(&self, v6: bool) -> IpAddr {
        let range = self.peer.ranges[usize::from(v6)].addr;
        match range {
            IpAddr::V4(first) => IpAddr::from((u32::from(first) + 5).to_be_bytes()),
            IpAddr::V6(first) => IpAddr::from((u128::from(first) + 5).to_be_bytes()),
        }
    }

    /// The Pod's link, as the built-in network makes it.
    fn attach(&self) {
        wire(&self.space, "pod0", &self.pod, "eth0");
        let (near, far) = (self.space.link("pod0").index, self.pod.link("eth0").index);
        let mac = self.space.link("pod0").mac.expect("a hardware address");
        for (v6, gateway) in [(false, "169.254.1.1"), (true, "fe80::1")] {
            let addr = Cidr::host(self.pod_ip(v6));
            let gateway = gateway.parse().expect("an address");
            let out = RouteEntry {
                gateway: Some(gateway),
                device: Some(far),
                onlink: true,
                ..RouteEntry::to(Cidr::default_route(v6))
            };
            let inside =
                [Request::add_address(far, addr), Request::add_neighbour(far, gateway, mac), out.add()];
            self.pod.route().run(&inside).expect("the Pod's addresses");
            let here = RouteEntry { device: Some(near), scope: Scope::Link, ..RouteEntry::to(addr) };
            self.space.route().run(&[here.add()]).expect("the Pod's route");
        }
    }

    pub fn me(&self, mode: Mode) -> Me {
        Me {
            instance: "00aabb".to_owned(),
            node: self.name.to_owned(),
            cluster: vec![cidr("10.244.0.0/16"), cidr("fd00:244::/56")],
            mode,
            vni: 0x00aabb,
            checksums: Checksums::Auto,
        }
    }

    /// One pass, in the node's namespace.
    pub fn sync(&self, mode: Mode, peers: &[Peer]) -> Synced {
        let me = self.me(mode);
        self.space.0.run(|| trine_overlay::sync(&me, peers)).expect("the namespace").expect("a pass")
    }

    /// The Pod gets the address of the node's range now, in place of `old`.
    pub fn renumber(&self, old: IpAddr) {
        let (near, far) = (self.space.link("pod0").index, self.pod.link("eth0").index);
        let (old, new) = (Cidr::host(old), Cidr::host(self.pod_ip(old.is_ipv6())));
        let inside = [Request::add_address(far, new), Request::del_address(far, old)];
        self.pod.route().run(&inside).expect("the Pod's addresses");
        let way = |dst| RouteEntry { device: Some(near), scope: Scope::Link, ..RouteEntry::to(dst) };
        self.space.route().run(&[way(new).add(), way(old).del()]).expect("the Pod's route");
    }

    /// By which address the node itself speaks to another node's Pod.
    pub fn host_is_seen_as(&self, other: &Node, v6: bool) -> Result<IpAddr, String> {
        let any: SocketAddr = if v6 { "[::]:0" } else { "0.0.0.0:0" }.parse().expect("an address");
        let listener = other.pod.0.run(|| TcpListener::bind(any)).expect("the namespace");
        let listener = listener.map_err(|e| e.to_string())?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let to = SocketAddr::new(other.pod_ip(v6), port);
        let near = self.space.0.run(|| TcpStream::connect_timeout(&to, PATIENCE)).expect("the namespace");
        let _near = near.map_err(|e| e.to_string())?;
        Ok(listener.accept().map_err(|e| e.to_string())?.1.ip())
    }

    /// Sends a megabyte from the Pod to another node's and one back; true if all arrives unchanged.
    pub fn exchange(&self, other: &Node, v6: bool) -> Result<(), String> {
        let any: SocketAddr = if v6 { "[::]:0" } else { "0.0.0.0:0" }.parse().expect("an address");
        let failed = |what: &str, e: std::io::Error| format!("{what}: {e}");
        let listener = other
            .pod
            .0
            .run(|| TcpListener::bind(any))
            .expect("the namespace")
            .map_err(|e| failed("bind", e))?;
        let port = listener.local_addr().map_err(|e| failed("address", e))?.port();
        let to = SocketAddr::new(other.pod_ip(v6), port);
        let near = self.pod.0.run(|| TcpStream::connect_timeout(&to, PATIENCE)).expect("the namespace");
        let near = near.map_err(|e| failed("connect", e))?;
        let (far, from) = listener.accept().map_err(|e| failed("accept", e))?;
        if from.ip() != self.pod_ip(v6) {
            return Err(format!("the Pod is seen as {from}"));
        }
        let back = std::thread::spawn(move || pass(&far, 7));
        pass(&near, 3).and(back.join().expect("the other end")).map_err(|e| failed("exchange", e))
    }
}

/// Sends a megabyte and reads one, at the same time.
fn pass(stream: &TcpStream, seed: u8) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let bytes = |seed: u8| -> Vec<u8> { (0..MEGABYTE).map(|n| (n % 251) as u8 ^ seed).collect() };
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let mut to = stream;
            to.write_all(&bytes(seed))
        });
        let mut received = vec![0; MEGABYTE];
        let mut from = stream;
        from.read_exact(&mut received)?;
        if received != bytes(seed ^ 4) {
            return Err(std::io::Error::other("other bytes than were sent"));
        }
        sent.join().expect("the sender")
    })
}

/// A link of somebody else's with that name.
pub fn take_name(space: &Space, name: &str) {
    let link =
        NewLink { name, kind: NewKind::Ifb, parent: None, netns: None, mac: None, mtu: None, up: true };
    space.route().run(&[link.request()]).expect("a link");
}
