//! What goes wrong: a plugin is killed between any two steps, many come and go at once, and configurations and results are odd.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use trine_cni::spec::{CniResult, Env, NetworkList, Request};
use trine_kernel::testing;

use crate::world::World;

/// Says to the test program which of the places it dies at, and what it is asked.
const DIES_AT: &str = "TRINE_CNI_DIES_AT";
const ASKED: &str = "TRINE_CNI_ASKED";

/// The chains that are cut, each with what is behind its first plugin.
fn chain(world: &World) -> Vec<Value> {
    let ipam = world.host_local();
    vec![
        json!({"type": "bridge", "bridge": "br7", "isGateway": true, "ipMasq": true, "macspoofchk": true, "ipam": ipam}),
        json!({"type": "portmap", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}}),
        json!({"type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 80_000}),
        json!({"type": "tuning", "dataDir": world.data().join("tuning"), "mtu": 1300}),
    ]
}

/// Asks a plugin in a process of its own that dies at the `place`th place. True if it got there.
fn killed(world: &World, command: &str, config: &Value, place: usize) -> bool {
    let asked = json!({"command": command, "netns": world.pod_path(0), "config": config}).to_string();
    let mut child = Command::new("nsenter");
    child.arg(format!("--net={}", world.host.path().display())).arg(std::env::current_exe().unwrap());
    child.args(["--exact", "faults::a_process_that_dies", "--ignored", "--nocapture"]);
    child.env(DIES_AT, place.to_string()).env(ASKED, asked).stdout(Stdio::null()).stderr(Stdio::null());
    child.status().unwrap().signal() == Some(9)
}

#[cfg(debug_assertions)]
fn die(_: &'static str) {
    static PASSED: AtomicUsize = AtomicUsize::new(0);
    let at: usize = std::env::var(DIES_AT).unwrap().parse().unwrap();
    if PASSED.fetch_add(1, Ordering::SeqCst) == at {
        let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
        std::thread::sleep(std::time::Duration::from_secs(5));
    }
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn a_process_that_dies() {
    let Ok(asked) = std::env::var(ASKED) else { return };
    #[cfg(debug_assertions)]
    testing::on_failpoint(die);
    let asked: Value = serde_json::from_str(&asked).unwrap();
    let text = |key: &str| asked[key].as_str().unwrap().to_owned();
    let env = Env {
        command: text("command"),
        container_id: "c0".to_owned(),
        netns: text("netns"),
        ifname: "eth0".to_owned(),
        ..Env::default()
    };
    let kind = asked["config"]["type"].as_str().unwrap();
    let _ = trine_cni::call_built_in(kind, &env, asked["config"].clone());
}

fn named(config: &Value) -> Value {
    let mut config = config.clone();
    config["cniVersion"] = json!("1.1.0");
    config["name"] = json!("net");
    config
}

fn nothing_is_left(world: &World, here: &str) {
    for config in chain(world) {
        world.gc(&config, &[]);
    }
    assert_eq!(world.reservations(), [""; 0], "{here}");
    assert!(!world.tables().contains("table"), "{here}: {}", world.tables());
    let begin = std::time::Instant::now();
    while world.links() != ["br7"] && !world.links().is_empty() {
        assert!(begin.elapsed().as_secs() < 5, "{here}: {:?}", world.links());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let kept = std::fs::read_dir(world.data().join("tuning")).into_iter().flatten().flatten();
    let kept: Vec<_> =
        kept.map(|e| e.file_name()).filter(|n| n.to_string_lossy().ends_with(".json")).collect();
    assert!(kept.is_empty(), "{here}: {kept:?}");
}

#[test]
fn whoever_is_killed_between_two_steps_leaves_nothing_that_gc_does_not_find() {
    let test = "whoever_is_killed_between_two_steps_leaves_nothing_that_gc_does_not_find";
    let Some(world) = World::new(test) else { return };
    if !testing::program(test, "nsenter") || !cfg!(debug_assertions) {
        return;
    }
    let plugins = chain(&world);
    let mut deaths = 0;
    for command in ["ADD", "DEL"] {
        for cut in 0..plugins.len() {
            for place in 0.. {
                let here = format!("{command} of {} at {place}", plugins[cut]["type"]);
                let mut last = Value::Null;
                let before = if command == "ADD" { cut } else { plugins.len() };
                for plugin in &plugins[..before] {
                    let config = if last.is_null() { plugin.clone() } else { World::chained(plugin, &last) };
                    last = world.call("ADD", &config).unwrap_or_else(|e| panic!("{here}, before: {e}"));
                }
                let config =
                    if last.is_null() { plugins[cut].clone() } else { World::chained(&plugins[cut], &last) };
                let died = killed(&world, command, &named(&config), place);
                nothing_is_left(&world, &here);
                // What is in the container goes with it; here the next one is the same.
                let _ = world.pod(0).del_link("eth0");
                if !died {
                    break;
                }
                deaths += 1;
            }
        }
    }
    println!("{deaths} deaths");
    assert!(deaths > 15, "{deaths}");
}

#[test]
fn many_that_come_and_go_at_once_leave_nothing() {
    let pods = 32;
    let Some(world) = World::with_pods("many_that_come_and_go_at_once_leave_nothing", pods) else { return };
    let rounds: usize = std::env::var("TRINE_CNI_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let ipam = world.host_local();
    let given = std::sync::Mutex::new(std::collections::BTreeSet::new());
    std::thread::scope(|scope| {
        for pod in 0..pods {
            let (world, given, ipam) = (&world, &given, &ipam);
            scope.spawn(move || {
                let config = json!({"type": "bridge", "bridge": "br7", "isGateway": true, "ipMasq": true, "ipam": ipam});
                let ports = json!({"type": "portmap", "runtimeConfig": {"portMappings": [
                    {"hostPort": 9000 + pod, "containerPort": 80, "protocol": "tcp"}]}});
                for _ in 0..rounds {
                    let answer = world.call_for("ADD", pod, &config).unwrap();
                    let address = answer["ips"][0]["address"].to_string();
                    assert!(given.lock().unwrap().insert(address.clone()), "{address} is given twice");
                    let behind = World::chained(&ports, &answer);
                    world.call_for("ADD", pod, &behind).unwrap();
                    world.call_for("DEL", pod, &behind).unwrap();
                    given.lock().unwrap().remove(&address);
                    world.call_for("DEL", pod, &World::chained(&config, &answer)).unwrap();
                }
            });
        }
    });
    assert_eq!(world.reservations(), [""; 0]);
    assert!(!world.tables().contains("table"), "{}", world.tables());
    let begin = std::time::Instant::now();
    while world.links() != ["br7"] {
        assert!(begin.elapsed().as_secs() < 20, "{:?}", world.links());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Random numbers (xorshift) from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (limit.max(1) as u64)).unwrap()
    }
}

#[test]
fn odd_configurations_and_results_are_refused_or_read_and_never_stop_the_process() {
    let seeds = [
        r#"{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"bridge","capabilities":{"mac":true},"ipam":{"type":"host-local"}}],"disableGC":"true"}"#,
        r#"{"cniVersion":"1.0.0","interfaces":[{"name":"a","mac":"02:00:00:00:00:01","sandbox":"/n"}],"ips":[{"interface":0,"address":"10.1.0.5/24","gateway":"10.1.0.1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.1","mtu":9}],"dns":{"nameservers":["10.1.1.1"]}}"#,
        r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.5/24","routes":[{"dst":"::/0"}]},"ip6":{"ip":"fd00::1/64"}}"#,
        r#"{"cniVersion":"1.1.0","name":"n","type":"bridge","prevResult":{"ips":[]},"cni.dev/valid-attachments":[{"containerID":"c","ifname":"e"}]}"#,
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut read = 0;
    for round in 0..20_000 {
        let mut bytes = seeds[round % seeds.len()].as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            match random.below(5) {
                0 => bytes.truncate(at),
                1 if at < bytes.len() => bytes[at] = u8::try_from(random.below(256)).unwrap(),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 => bytes.insert(at, b"0123456789{}[]\",:/.-e"[random.below(21)]),
                _ => {
                    let end = (at + random.below(20)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        let _ = NetworkList::parse(&bytes);
        let Ok(value) = serde_json::from_slice::<Value>(&bytes) else { continue };
        if let Ok(result) = CniResult::from_json(&value) {
            for version in trine_cni::spec::ALL_VERSIONS {
                let wire = result.to_json(version);
                let back = CniResult::from_json(&wire).unwrap();
                assert_eq!(back.to_json(version), wire, "{value}");
            }
            read += 1;
        }
        if let Ok(request) = Request::new(&Env::default(), value) {
            let _ = (request.valid_attachments(), request.dns());
        }
    }
    assert!(read > 500, "{read} could be read");
}
