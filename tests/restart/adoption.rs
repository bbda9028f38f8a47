//! Line 4: `kill -9` of the daemon harms no Pod. Processes and connections live on; after another start they are
//! adopted, and a Pod deleted meanwhile is cleaned up.

mod etcd;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use trine_tests::{Cluster, until};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: counter}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, nc, -ll, -p, "9000", -e, /bin/busybox, cat]
    readinessProbe: {tcpSocket: {port: 9000}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: doomed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: trine.local/busybox:1
    command: [/bin/busybox, sleep, "100000"]
"#;

struct Counter {
    reader: BufReader<TcpStream>,
    count: u32,
}

impl Counter {
    fn connect(ip: &str) -> Self {
        let stream = TcpStream::connect((ip, 9000)).expect("the Pod listens");
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Self { reader: BufReader::new(stream), count: 0 }
    }

    /// Sends the next number and reads it back on the same connection.
    fn tick(&mut self) {
        self.count += 1;
        writeln!(self.reader.get_mut(), "{}", self.count).expect("the connection lives");
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("the connection answers");
        assert_eq!(line.trim(), self.count.to_string());
    }
}

#[test]
fn pods_outlive_a_killed_daemon_and_are_adopted() {
    const TEST: &str = "pods_outlive_a_killed_daemon_and_are_adopted";
    if !trine_kernel::testing::root(TEST) || !trine_kernel::testing::program(TEST, "busybox") {
        return;
    }
    let cluster = Cluster::up();
    cluster.build_busybox();
    let _ = cluster.apply(PODS).expect_ok();
    let before = cluster.wait_running("counter");
    cluster.wait_running("doomed");
    let ip = before["status"]["podIP"].as_str().expect("an address").to_owned();
    let mut counter = Counter::connect(&ip);
    counter.tick();

    cluster.kill();
    counter.tick();
    cluster.start();
    counter.tick();
    let after = cluster.wait_running("counter");
    let container = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0].clone();
    assert_eq!(
        container(&before)["containerID"],
        container(&after)["containerID"],
        "adopted, not started anew"
    );
    assert_eq!(container(&after)["restartCount"], 0);

    // Deleted in the API, but the daemon dies before it can act: the next one finishes the work.
    let _ = cluster.trine(&["delete", "pod/doomed", "--no-wait"]).expect_ok();
    cluster.kill();
    cluster.start();
    until("the deleted Pod is gone", || {
        let pod = cluster.get("pod/doomed");
        if pod.is_null() { Ok(()) } else { Err(pod["status"].to_string()) }
    });
    counter.tick();
}
