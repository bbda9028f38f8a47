//! A node, Pods and an outsider, each a network namespace of its own, with addresses of both families.
//!
//! ```text
//!  a 10.244.0.2 fd00:244::2 ──┐
//!  b 10.244.0.3 fd00:244::3 ──┤ host 192.0.2.1 fd00:2::1 ── ext 192.0.2.2 fd00:2::2
//!  c 10.244.0.4 fd00:244::4 ──┘
//! ```
#![allow(dead_code)]

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use trine_kernel::netns::{self, Netns};
use trine_policy::model::PodFacts;
use trine_policy::policy::Policy;
use trine_policy::{Config, Engine};

pub const INSTANCE: &str = "00beef";
pub const NODE: &str = "n1";
pub const PODS: [&str; 3] = ["a", "b", "c"];
/// How long an answer may take that has to come, on a machine that has much to do.
const ANSWER: Duration = Duration::from_secs(10);
/// How long one is waited for that must not come: what is dropped is not refused.
const SILENCE: Duration = Duration::from_millis(300);

/// Unpins the namespaces; the kernel drops them with their links and rules.
struct Pins(Vec<PathBuf>);

impl Drop for Pins {
    fn drop(&mut self) {
        for pin in &self.0 {
            let _ = netns::delete(pin);
        }
    }
}

pub struct Lab {
    pub host: Netns,
    pub ext: Netns,
    pub pods: Vec<Netns>,
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

fn number(pod: &str) -> usize {
    PODS.iter().position(|name| *name == pod).expect("a Pod of that name")
}

/// The address of a Pod, or of the outsider or the host.
pub fn address(name: &str, v6: bool) -> IpAddr {
    let text = match (name, v6) {
        ("host", false) => "192.0.2.1".to_owned(),
        ("host", true) => "fd00:2::1".to_owned(),
        ("ext", false) => "192.0.2.2".to_owned(),
        ("ext", true) => "fd00:2::2".to_owned(),
        (pod, false) => format!("10.244.0.{}", number(pod) + 2),
        (pod, true) => format!("fd00:244::{}", number(pod) + 2),
    };
    text.parse().expect("an address")
}

impl Lab {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let names = ["host", "ext"].into_iter().chain(PODS);
        let pins = Pins(names.map(|name| dir.path().join(name)).collect());
        let mut made = pins.0.iter().map(|pin| Netns::create(pin).expect("a namespace"));
        let (host, ext) = (made.next().expect("host"), made.next().expect("ext"));
        let pods: Vec<Netns> = made.collect();
        let at = |netns: &Netns| netns.path().display().to_string();
        [&host, &ext].into_iter().chain(&pods).for_each(|netns| ip(netns, "link set lo up"));
        host.run(|| {
            for file in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
                trine_kernel::sysctl::ensure(file, "1").expect("forwards");
            }
        })
        .expect("enters");
        ip(&host, &format!("link add up0 type veth peer name eth0 netns {}", at(&ext)));
        for (netns, link, name) in [(&host, "up0", "host"), (&ext, "eth0", "ext")] {
            ip(netns, &format!("addr add {}/24 dev {link}", address(name, false)));
            ip(netns, &format!("addr add {}/64 dev {link} nodad", address(name, true)));
            ip(netns, &format!("link set {link} up"));
        }
        ip(&ext, "route add 10.244.0.0/16 via 192.0.2.1");
        ip(&ext, "-6 route add fd00:244::/64 via fd00:2::1");
        for (name, pod) in PODS.iter().zip(&pods) {
            let (v4, v6) = (address(name, false), address(name, true));
            ip(&host, &format!("link add v{name} type veth peer name eth0 netns {}", at(pod)));
            ip(&host, &format!("addr add 169.254.1.1/32 dev v{name} scope link"));
            ip(&host, &format!("addr add fe80::1/128 dev v{name} nodad"));
            ip(&host, &format!("link set v{name} up"));
            ip(&host, &format!("route add {v4}/32 dev v{name}"));
            ip(&host, &format!("-6 route add {v6}/128 dev v{name}"));
            ip(pod, &format!("addr add {v4}/32 dev eth0"));
            ip(pod, &format!("addr add {v6}/128 dev eth0 nodad"));
            ip(pod, "link set eth0 up");
            ip(pod, "route add 169.254.1.1/32 dev eth0 scope link");
            ip(pod, "route add default via 169.254.1.1");
            ip(pod, "-6 route add default via fe80::1 dev eth0");
        }
        let engine = Engine::open(config(&host)).expect("an engine");
        let mut lab = Self { host, ext, pods, engine, _pins: pins, _dir: dir };
        lab.engine.model.set_namespace("x", Some([("ns".to_owned(), "x".to_owned())].into()));
        lab.engine.model.set_namespace("y", Some([("ns".to_owned(), "y".to_owned())].into()));
        for name in PODS {
            lab.pod(name, |_| {});
        }
        lab
    }

    /// Tells the engine of a Pod: `x/a`, `x/b` and `y/c`, labelled by their names, each with a port that is called `web`.
    pub fn pod(&mut self, name: &str, change: impl FnOnce(&mut PodFacts)) {
        let mut facts = PodFacts {
            uid: format!("uid-{name}"),
            node: Some(NODE.to_owned()),
            labels: [("pod".to_owned(), name.to_owned())].into(),
            addresses: vec![address(name, false), address(name, true)],
            ports: vec![("web".to_owned(), trine_policy::policy::Proto::Tcp, 80)],
            ..PodFacts::default()
        };
        change(&mut facts);
        let namespace = if name == "c" { "y" } else { "x" };
        self.engine.model.set_pod(&(namespace.to_owned(), name.to_owned()), Some(facts));
    }

    pub fn netns(&self, name: &str) -> &Netns {
        match name {
            "host" => &self.host,
            "ext" => &self.ext,
            pod => &self.pods[number(pod)],
        }
    }

    /// Has a policy of namespace `x` in force, or none of that name.
    pub fn policy(&mut self, name: &str, spec: Option<Value>) {
        let policy = spec.map(|spec| {
            let object = json!({"metadata": {"name": name, "namespace": "x"}, "spec": spec});
            Policy::from_api(&serde_json::from_value(object).expect("a policy")).expect("a spec")
        });
        self.engine.model.set_policy(&("x".to_owned(), name.to_owned()), policy);
        self.turn();
    }

    pub fn turn(&mut self) {
        let turn = self.engine.turn();
        if let Some(error) = turn.failed {
            panic!("{}", trine_typed::chain::display(&error));
        }
    }

    /// Serves TCP and UDP on both families: each says who asks, and goes on to say what it hears.
    pub fn serve(&self, name: &str, port: u16) {
        let bind = || (TcpListener::bind(("::", port)), UdpSocket::bind(("::", port)));
        let (tcp, udp) = self.netns(name).run(bind).expect("enters");
        let (tcp, udp) = (tcp.expect("tcp"), udp.expect("udp"));
        std::thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                std::thread::spawn(move || echo(stream));
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((length, peer)) = udp.recv_from(&mut buffer) {
                let _ = udp.send_to(&buffer[..length], peer);
            }
        });
    }

    /// Whether a TCP server answers; `wanted` says how long to wait.
    pub fn tcp(&self, from: &str, to: &str, v6: bool, port: u16, wanted: bool) -> bool {
        self.connect(from, to, v6, port, wanted).is_ok_and(|mut talk| says(&mut talk, wanted))
    }

    pub fn connect(&self, from: &str, to: &str, v6: bool, port: u16, wanted: bool) -> io::Result<TcpStream> {
        let to = SocketAddr::new(address(to, v6), port);
        self.netns(from).run(|| TcpStream::connect_timeout(&to, patience(wanted))).expect("enters")
    }

    /// A UDP socket that is connected.
    pub fn datagrams(&self, from: &str, to: &str, v6: bool, port: u16) -> UdpSocket {
        let to = SocketAddr::new(address(to, v6), port);
        let connect = || {
            let socket = UdpSocket::bind(if v6 { "[::]:0" } else { "0.0.0.0:0" })?;
            socket.connect(to)?;
            Ok::<_, io::Error>(socket)
        };
        self.netns(from).run(connect).expect("enters").expect("a socket")
    }
}

pub fn patience(wanted: bool) -> Duration {
    if wanted { ANSWER } else { SILENCE }
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 64];
    while let Ok(length) = stream.read(&mut buffer) {
        if length == 0 || stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// Whether a connection still carries anything; `wanted` says how long to wait.
pub fn says(talk: &mut TcpStream, wanted: bool) -> bool {
    talk.set_read_timeout(Some(patience(wanted))).expect("a time");
    talk.write_all(b"?").and_then(|()| talk.read_exact(&mut [0; 1])).is_ok()
}

/// The same of datagrams.
pub fn heard(socket: &UdpSocket, wanted: bool) -> bool {
    socket.set_read_timeout(Some(patience(wanted))).expect("a time");
    socket.send(b"?").and_then(|_| socket.recv(&mut [0; 8])).is_ok()
}

pub fn config(host: &Netns) -> Config {
    Config { node_name: NODE.into(), instance: INSTANCE.into(), netns: Some(host.path().to_owned()) }
}
