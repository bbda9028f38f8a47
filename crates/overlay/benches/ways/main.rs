//! `cargo xtask bench ways`: what Pods of two nodes send each other by a route and through a tunnel, in turns.
//!
//! Nodes and Pods are those of the tests' lab, the sender is its own: a stream of TCP, and a byte by UDP and back. `--out FILE` takes the
//! place of the section in that page.

#[path = "../../tests/ways/lab.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod lab;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use lab::{Lab, Node, Space, Underlay};
use trine_kernel::netlink::LinkChange;
use trine_kernel::offload::leave_sent_checksums;
use trine_overlay::Mode;

/// Turns of each way.
const TURNS: usize = 5;
/// How long a stream is sent.
const LENGTH: Duration = Duration::from_secs(2);
/// Questions and answers of one byte in each turn.
const PINGS: usize = 3000;
/// How much is written at once, in bytes.
const PIECE: usize = 128 * 1024;
/// What the section begins with.
const HEADING: &str = "## From node to node";
const TUNNEL: &str = "tr00aabbvx4";

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A way between two neighbours.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    mode: Mode,
    /// Checksums are left to what comes after the tunnel.
    left: bool,
    /// The MTU of its Pods.
    mtu: u32,
}

const WAYS: [Way; 3] = [
    Way { name: "route (bare veth)", mode: Mode::Direct, left: true, mtu: 1500 },
    Way { name: "tunnel (VXLAN)", mode: Mode::Vxlan, left: true, mtu: 1450 },
    Way { name: "tunnel that computes its checksums", mode: Mode::Vxlan, left: false, mtu: 1450 },
];

fn prepare(lab: &Lab, way: Way) -> Outcome<()> {
    lab.sync(way.mode);
    for node in [lab.node("a"), lab.node("c")] {
        let mtu = LinkChange { mtu: Some(way.mtu), ..LinkChange::default() };
        node.space.route().set_link("pod0", &mtu)?;
        node.pod.route().set_link("eth0", &mtu)?;
        if way.mode == Mode::Vxlan {
            node.space.0.run(|| leave_sent_checksums(TUNNEL, way.left))??;
        }
    }
    Ok(())
}

fn connect(from: &Node, to: &Node) -> Outcome<(TcpStream, TcpStream)> {
    let listener = to.pod.0.run(|| TcpListener::bind("0.0.0.0:0"))??;
    let address = SocketAddr::new(to.pod_ip(false), listener.local_addr()?.port());
    let near = from.pod.0.run(|| TcpStream::connect(address))??;
    Ok((near, listener.accept()?.0))
}

/// Bits a second that come through.
fn stream(from: &Node, to: &Node) -> Outcome<f64> {
    let (mut near, mut far) = connect(from, to)?;
    let receiver = std::thread::spawn(move || -> std::io::Result<(usize, Duration)> {
        let (mut piece, mut total, begin) = (vec![0; PIECE], 0, Instant::now());
        loop {
            match far.read(&mut piece)? {
                0 => return Ok((total, begin.elapsed())),
                length => total += length,
            }
        }
    });
    let (piece, begin) = (vec![7; PIECE], Instant::now());
    while begin.elapsed() < LENGTH {
        near.write_all(&piece)?;
    }
    drop(near);
    let (bytes, time) = receiver.join().map_err(|_| "the receiver died")??;
    Ok(bytes as f64 * 8.0 / time.as_secs_f64())
}

/// From questions to their answers.
fn answers(from: &Node, to: &Node) -> Outcome<Vec<Duration>> {
    let bind = |space: &Space| space.0.run(|| UdpSocket::bind("0.0.0.0:0"));
    let (here, there) = (bind(&from.pod)??, bind(&to.pod)??);
    let wait = Some(Duration::from_secs(2));
    here.set_read_timeout(wait)?;
    there.set_read_timeout(wait)?;
    here.connect((to.pod_ip(false), there.local_addr()?.port()))?;
    let echo = std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok((_, back)) = there.recv_from(&mut byte) {
            let _ = there.send_to(&byte, back);
            if byte == [1] {
                break;
            }
        }
    });
    let mut times = Vec::new();
    for n in 0..PINGS {
        let begin = Instant::now();
        here.send(&[u8::from(n + 1 == PINGS)])?;
        here.recv(&mut [0])?;
        times.push(begin.elapsed());
    }
    echo.join().map_err(|_| "the other end died")?;
    Ok(times)
}

fn micros(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

fn section() -> Outcome<String> {
    let lab = Lab::new(Underlay::V4);
    let mut all: Vec<(Vec<f64>, Vec<Duration>)> = vec![(Vec::new(), Vec::new()); WAYS.len()];
    for _ in 0..TURNS {
        for (way, (streams, times)) in WAYS.into_iter().zip(&mut all) {
            prepare(&lab, way)?;
            let (from, to) = (lab.node("a"), lab.node("c"));
            times.extend(answers(from, to)?);
            streams.push(stream(from, to)?);
        }
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split(' ').take(3).collect();
    let mut page = format!(
        "{HEADING}\n\nBy `cargo xtask bench ways`: Pods of two nodes on one link, in turns; sender and receiver share the machine's cores with all \
         of both nodes. Load average at the end {}. A stream of TCP, Gbit/s in each turn; a byte by UDP and back, in microseconds: p50 / \
         p99.\n\n| | stream | answer |\n|---|---|---|\n",
        load.join(" ")
    );
    for (way, (streams, times)) in WAYS.iter().zip(&mut all) {
        let streams: Vec<String> = streams.iter().map(|bits| format!("{:.1}", bits / 1e9)).collect();
        let (half, most) = (micros(times, 50), micros(times, 99));
        let _ = writeln!(page, "| {} | {} | {half:.0} / {most:.0} |", way.name, streams.join(", "));
    }
    Ok(page)
}

fn main() -> Outcome<()> {
    // Cargo's own word.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let section = section()?;
    println!("{section}");
    if let [word, file] = &words[..]
        && word == "--out"
    {
        let page = std::fs::read_to_string(file)?;
        let before = page.split(HEADING).next().unwrap_or_default().trim_end();
        std::fs::write(file, format!("{before}\n\n{section}"))?;
    }
    Ok(())
}
