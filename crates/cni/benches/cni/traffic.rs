//! What two Pods send each other.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trine_cni::call_built_in;
use trine_cni::spec::Env;

use crate::{Machine, Outcome};

/// Turns of each network.
const TURNS: usize = 3;
/// How long a stream is sent, in seconds.
const SECONDS: &str = "3";
/// Questions and answers of one byte.
const PINGS: usize = 4000;

/// One network.
#[derive(Debug)]
pub struct Measured {
    /// Its name.
    pub name: &'static str,
    /// Streams in bits a second, one of each turn.
    pub streams: Vec<f64>,
    /// From a question to its answer.
    pub answers: Vec<Duration>,
}

fn network(machine: &Machine, kind: &str, range: u8) -> Value {
    json!({"cniVersion": "1.0.0", "name": kind, "type": kind, "bridge": "br0", "isDefaultGateway": true, "instance": "bench0",
        "ipam": {"type": "host-local", "dataDir": machine.dir.path().join("traffic"), "subnet": format!("10.{range}.0.0/16")}})
}

/// Attaches both Pods; the second one's address.
fn attach(machine: &Machine, config: &Value, command: &str) -> Outcome<String> {
    let mut last = Value::Null;
    for (n, pod) in machine.pods.iter().enumerate() {
        let env = Env {
            command: command.to_owned(),
            container_id: format!("t{n}"),
            netns: pod.path().display().to_string(),
            ifname: "eth0".to_owned(),
            ..Env::default()
        };
        let kind = config["type"].as_str().unwrap_or_default();
        last = machine.host.run(|| call_built_in(kind, &env, config.clone()))??.unwrap_or_default();
    }
    let address = last["ips"][0]["address"].as_str().unwrap_or_default();
    Ok(address.split('/').next().unwrap_or_default().to_owned())
}

fn stream(machine: &Machine, iperf: &Path, to: &str) -> Outcome<f64> {
    let mut server = machine.pods[1].run(|| {
        Command::new(iperf)
            .args(["--server", "--one-off"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    })??;
    std::thread::sleep(Duration::from_millis(300));
    let words = ["--client", to, "--time", SECONDS, "--json"];
    let output = machine.pods[0].run(|| Command::new(iperf).args(words).output())?;
    let _ = server.kill();
    server.wait()?;
    let said: Value = serde_json::from_slice(&output?.stdout)?;
    said["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .ok_or_else(|| format!("iperf3 says {said}").into())
}

fn answers(machine: &Machine, to: &str) -> Outcome<Vec<Duration>> {
    let bind = |pod: usize| machine.pods[pod].run(|| UdpSocket::bind("0.0.0.0:7007"));
    let (here, there) = (bind(0)??, bind(1)??);
    let wait = Some(Duration::from_secs(2));
    here.set_read_timeout(wait)?;
    there.set_read_timeout(wait)?;
    here.connect((to, 7007))?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = [0];
            while let Ok((_, from)) = there.recv_from(&mut byte) {
                let _ = there.send_to(&byte, from);
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
        Ok(times)
    })
}

/// Measures both networks.
///
/// # Errors
/// If a Pod cannot be attached or does not answer.
pub fn run(iperf: &Path) -> Outcome<Vec<Measured>> {
    let mut all = vec![
        Measured { name: "routed veth", streams: Vec::new(), answers: Vec::new() },
        Measured { name: "bridge", streams: Vec::new(), answers: Vec::new() },
    ];
    for _ in 0..TURNS {
        for (measured, (kind, range)) in all.iter_mut().zip([("routed", 70), ("bridge", 71)]) {
            let machine = Machine::new(2)?;
            let config = network(&machine, kind, range);
            let to = attach(&machine, &config, "ADD")?;
            eprintln!("{kind}: {to}");
            measured.answers.extend(answers(&machine, &to)?);
            measured.streams.push(stream(&machine, iperf, &to)?);
        }
    }
    Ok(all)
}
