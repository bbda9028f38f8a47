//! A Deployment whose rollout and whose node's drain its clients do not notice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use trine_tests::until;

use super::Stage;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(20);

/// Clients that ask all the time.
pub struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(u32, Vec<String>)>>,
}

impl Clients {
    /// So many, of a Service's address and a path.
    pub fn start(number: usize, address: &str, path: &'static str) -> Self {
        let address: SocketAddr = format!("{}:80", address.trim()).parse().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let one = |_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let (mut answers, mut failures) = (0, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    match ask(address, path) {
                        Ok(answer) if answer.starts_with("HTTP/1.1 200") => answers += 1,
                        other => failures.push(format!("{other:?}")),
                    }
                    std::thread::sleep(PAUSE);
                }
                (answers, failures)
            })
        };
        let threads = (0..number).map(one).collect();
        Self { stop, threads }
    }

    /// Ends them; gives the number of answers, and what failed.
    pub fn end(self) -> (u32, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let each = self.threads.into_iter().map(|thread| thread.join().unwrap());
        each.fold((0, Vec::new()), |(sum, mut all), (answers, failures)| {
            all.extend(failures);
            (sum + answers, all)
        })
    }
}

fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE * 4))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The address of a Service.
pub fn address(stage: &Stage, service: &str) -> String {
    stage.said(&["get", "service", service, "-o", "jsonpath={.spec.clusterIP}"])
}

fn roll_out(stage: &Stage) {
    let _ = stage.said(&["rollout", "status", "deployment/web", "--timeout=90s"]);
}

#[test]
fn clients_notice_neither_a_rollout_nor_the_drain_of_a_node() {
    let Some(stage) = Stage::set("clients_notice_neither_a_rollout_nor_the_drain_of_a_node") else { return };
    stage.apply("web/web.yaml", &[]);
    roll_out(&stage);
    until("the budget is counted", || {
        let allowed = stage.said(&["get", "pdb", "web", "-o", "jsonpath={.status.disruptionsAllowed}"]);
        if allowed == "1" { Ok(()) } else { Err(allowed) }
    });
    let clients = Clients::start(3, &address(&stage, "web"), "/");
    let _ = stage.said(&["set", "env", "deployment/web", "VERSION=2"]);
    roll_out(&stage);
    let node = stage.said(&["get", "pod", "-l", "app=web", "-o", "jsonpath={.items[0].spec.nodeName}"]);
    let words = ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s"];
    let mut drain = stage.spawn(&words);
    // At no time are fewer there than the budget keeps.
    let mut fewest = usize::MAX;
    let drained = loop {
        let ready = stage.said(&[
            "get",
            "pod",
            "-l",
            "app=web",
            "-o",
            "jsonpath={range .items[*]}{.metadata.deletionTimestamp}/{.status.conditions[?(@.type==\"Ready\")].status} {end}",
        ]);
        fewest = fewest.min(ready.split_whitespace().filter(|pod| *pod == "/True").count());
        if let Some(status) = drain.try_wait().unwrap() {
            break status;
        }
    };
    assert!(drained.success(), "{words:?}");
    assert!(fewest >= 2, "{fewest} were ready");
    let left = stage.said(&[
        "get",
        "pod",
        "-l",
        "app=web",
        "--field-selector",
        &format!("spec.nodeName={node}"),
        "-o",
        "name",
    ]);
    assert_eq!(left, "", "all have left");
    let (answers, failures) = clients.end();
    assert!(
        failures.is_empty() && answers > 100,
        "{answers} answers, {} failures: {:?}",
        failures.len(),
        failures.first()
    );
    let _ = stage.said(&["uncordon", &node]);
}
