//! `trine up --nodes 2`: what works between machines works between the nodes of one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use trine_tests::{Cluster, kubectl, until};

/// Pods that answer with their name on port 9000, one on each node, behind Services; the second one has a volume.
fn manifests(first: &str, second: &str) -> String {
    let pod = |name: &str, node: &str, mounts: &str, volumes: &str| {
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
    command: [/bin/busybox, sh, -c, "echo {name} begins; exec /bin/busybox nc -ll -p 9000 -e /bin/busybox echo {name}"]
    readinessProbe: {{tcpSocket: {{port: 9000}}, periodSeconds: 1}}
{mounts}
{volumes}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  type: NodePort
  ipFamilyPolicy: PreferDualStack
  selector: {{app: {name}}}
  ports: [{{port: 80, targetPort: 9000}}]
---
"#
        )
    };
    let mounts = "    volumeMounts: [{name: data, mountPath: /data}]";
    let volumes = "  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]";
    let claim = r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 320Mi}}
";
    [pod("one", first, "", ""), pod("two", second, mounts, volumes), claim.to_owned()].concat()
}

/// A cluster of two nodes with the Pods of [`manifests`]; gives the nodes' names, too.
fn two_nodes(test: &str) -> Option<(Cluster, [String; 2])> {
    two_nodes_of(test, &[])
}

/// The same, with more words for `up`.
fn two_nodes_of(test: &str, words: &[&str]) -> Option<(Cluster, [String; 2])> {
    if !trine_kernel::testing::root(test) || !trine_kernel::testing::program(test, "busybox") {
        return None;
    }
    let cluster = Cluster::prepared();
    let since = Instant::now();
    let _ = cluster.trine(&[&["up", "--detach", "--nodes", "2"], words].concat()).expect_ok();
    println!("two nodes Ready after {:.2?}", since.elapsed());
    let nodes = cluster.get("nodes");
    let mut names: Vec<String> = nodes["items"].as_array().into_iter().flatten().map(name_of).collect();
    names.sort_by_key(String::len);
    let names: [String; 2] = names.try_into().expect("two nodes");
    assert_eq!(names[1], format!("{}-2", names[0]));
    cluster.build_busybox();
    let _ = cluster.apply(&manifests(&names[0], &names[1])).expect_ok();
    for pod in ["one", "two"] {
        cluster.wait_running(pod);
    }
    Some((cluster, names))
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().expect("a name").to_owned()
}

fn text(object: &Value, path: &str) -> String {
    object.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("no {path}")).to_owned()
}

/// What a server says to the host, once it does.
fn heard(ip: &str, port: u16) -> String {
    until(&format!("{ip}:{port} answers the host"), || {
        let address = SocketAddr::new(ip.parse().map_err(|e| format!("{e}"))?, port);
        let mut stream =
            TcpStream::connect_timeout(&address, Duration::from_secs(2)).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).map_err(|e| e.to_string())?;
        let mut said = String::new();
        stream.read_to_string(&mut said).map_err(|e| e.to_string())?;
        if said.is_empty() { Err("nothing".to_owned()) } else { Ok(said.trim().to_owned()) }
    })
}

/// What a server says to a Pod, once it does.
fn heard_by(cluster: &Cluster, pod: &str, ip: &str, port: u16) -> String {
    until(&format!("{ip}:{port} answers Pod {pod}"), || {
        let words = format!("/bin/busybox nc -w 2 {ip} {port} </dev/null");
        let outcome = cluster.trine(&["exec", pod, "--", "/bin/busybox", "sh", "-c", &words]);
        let said = outcome.out.trim().to_owned();
        if said.is_empty() { Err(outcome.err) } else { Ok(said) }
    })
}

fn inside(cluster: &Cluster, pod: &str, words: &str) -> String {
    cluster.trine(&["exec", pod, "--", "/bin/busybox", "sh", "-c", words]).expect_ok().trim().to_owned()
}

/// The texts at `path` in each of a list.
fn texts(list: &Value, path: &str) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|one| text(one, path)).collect()
}

/// Everybody hears everybody: by address, through the Service, and through its port on each node, the own one and the other; by as many
/// families as the cluster has.
fn all_hear_all(cluster: &Cluster, families: usize) {
    let nodes = cluster.get("nodes")["items"].as_array().cloned().unwrap_or_default();
    let own = |node: &Value| texts(&node["status"]["addresses"], "/address")[..families].to_vec();
    let addresses: Vec<String> = nodes.iter().flat_map(own).collect();
    for to in ["one", "two"] {
        let pods = texts(&cluster.get(&format!("pod/{to}"))["status"]["podIPs"], "/ip");
        let services = texts(&cluster.get(&format!("service/{to}"))["spec"]["clusterIPs"], "");
        assert_eq!((pods.len(), services.len()), (families, families));
        let pods = pods.iter().map(|ip| (ip, 9000));
        for (ip, port) in pods.chain(services.iter().map(|ip| (ip, 80))) {
            assert_eq!(heard(ip, port), to);
            for from in ["one", "two"] {
                assert_eq!(heard_by(cluster, from, ip, port), to, "from {from}");
            }
        }
        let port = &cluster.get(&format!("service/{to}"))["spec"]["ports"][0]["nodePort"];
        let port = port.as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port of the node");
        for node in &addresses {
            for from in ["one", "two"] {
                assert_eq!(heard_by(cluster, from, node, port), to, "from {from} through {node}");
            }
        }
    }
}

#[test]
fn nodes_of_both_families_reach_each_other_by_both() {
    const TEST: &str = "nodes_of_both_families_reach_each_other_by_both";
    // On one link by routes, on two by tunnels.
    for links in ["1", "2"] {
        let words = ["--ip-family", "dual", "--node-links", links];
        let Some((cluster, nodes)) = two_nodes_of(TEST, &words) else { return };
        let given = |node: &String| texts(&cluster.get(&format!("node/{node}"))["spec"]["podCIDRs"], "");
        assert!(nodes.iter().all(|node| given(node).len() == 2), "{:?}", nodes.each_ref().map(given));
        all_hear_all(&cluster, 2);
        if links == "1" {
            // What was chosen at first stays.
            let _ = cluster.trine(&["down"]).expect_ok();
            let other = cluster.trine(&["up", "--detach", "--ip-family", "ipv4"]).expect_failure();
            assert!(other.contains("was made with --ip-family dual"), "{other}");
            cluster.start();
            cluster.wait_running("one");
            cluster.wait_running("two");
            all_hear_all(&cluster, 2);
        }
    }
}

fn container(cluster: &Cluster, pod: &str) -> Value {
    cluster.wait_running(pod)["status"]["containerStatuses"][0].clone()
}

#[test]
fn nodes_on_one_machine_work_as_machines_do() {
    let Some((cluster, nodes)) = two_nodes("nodes_on_one_machine_work_as_machines_do") else { return };
    for (pod, node) in [("one", &nodes[0]), ("two", &nodes[1])] {
        assert_eq!(text(&cluster.get(&format!("pod/{pod}")), "/spec/nodeName"), **node);
    }
    all_hear_all(&cluster, 1);

    // The API server reaches the second node's kubelet.
    assert_eq!(cluster.trine(&["logs", "two"]).expect_ok().trim(), "two begins");
    assert_eq!(inside(&cluster, "two", "hostname"), "two");
    let trace = cluster.trine(&["trace", "pod/two"]).expect_ok();
    assert!(trace.contains("RunPodSandbox") && trace.contains("NodeStageVolume"), "{trace}");
    let status = cluster.trine(&["status"]).expect_ok();
    assert!(status.contains(&format!("node {}", nodes[1])), "{status}");

    // A Pod of the second node reaches the API server through the Service.
    let api = text(&cluster.get("service/kubernetes"), "/spec/clusterIP");
    let greeting = inside(&cluster, "two", &format!("echo | /bin/busybox nc -w 3 {api} 443 | wc -c"));
    assert_ne!(greeting, "0", "TLS answers nonsense with an alert");

    // Its volume is a file of its own, of the size that was asked for.
    let volumes = cluster.dir().join("nodes").join(&nodes[1]).join("volumes");
    assert!(std::fs::read_dir(&volumes).expect("volumes").count() > 0);
    assert!(inside(&cluster, "two", "df /data").contains("/dev/loop"));
    println!("memory, KiB: {}", memory(&cluster));
}

/// Private memory of the daemon and of each agent.
fn memory(cluster: &Cluster) -> String {
    let of = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find(|l| l.starts_with(name)).unwrap_or_default().to_owned();
            line.split_whitespace().nth(1).unwrap_or("?").to_owned()
        };
        format!("RSS {} of it private {}", field("VmRSS"), field("RssAnon"))
    };
    let agents = std::fs::read_dir(cluster.dir().join("nodes")).expect("nodes").flatten();
    let agents = agents.map(|node| {
        let pid = std::fs::read_to_string(node.path().join("run/trine.pid")).unwrap_or_default();
        format!("agent {}", of(pid.trim().parse().unwrap_or(0)))
    });
    std::iter::once(format!("up {}", of(cluster.pid()))).chain(agents).collect::<Vec<_>>().join(", ")
}

#[test]
fn pods_of_all_nodes_outlive_a_killed_daemon_and_data_outlive_a_stop() {
    let Some((cluster, nodes)) =
        two_nodes("pods_of_all_nodes_outlive_a_killed_daemon_and_data_outlive_a_stop")
    else {
        return;
    };
    inside(&cluster, "two", "echo kept > /data/note && sync");
    let before: Vec<Value> = ["one", "two"].iter().map(|pod| container(&cluster, pod)).collect();
    let address = text(&cluster.get("pod/two"), "/status/podIP");

    cluster.kill();
    assert_eq!(heard(&address, 9000), "two", "no process of Trine is needed for that");
    cluster.start();
    all_hear_all(&cluster, 1);
    for (pod, before) in ["one", "two"].into_iter().zip(&before) {
        let after = container(&cluster, pod);
        assert_eq!(after["containerID"], before["containerID"], "{pod} is adopted, not started anew");
        assert_eq!(after["restartCount"], 0, "{pod}");
    }

    // A node's process alone is started again, and takes its Pods back.
    let pid = cluster.dir().join("nodes").join(&nodes[1]).join("run/trine.pid");
    let agent = std::fs::read_to_string(&pid).expect("the agent's pid").trim().to_owned();
    assert!(std::process::Command::new("kill").args(["-9", &agent]).status().is_ok_and(|s| s.success()));
    until("another process is the node", || {
        let now = std::fs::read_to_string(&pid).unwrap_or_default().trim().to_owned();
        if now.is_empty() || now == agent { Err(now) } else { Ok(()) }
    });
    until("it answers for its Pods", || {
        let outcome = cluster.trine(&["exec", "two", "--", "/bin/busybox", "cat", "/data/note"]);
        if outcome.out.trim() == "kept" { Ok(()) } else { Err(outcome.err) }
    });
    assert_eq!(container(&cluster, "two")["containerID"], before[1]["containerID"]);

    // `down` stops all nodes; the next `up` has as many, with their data.
    let _ = cluster.trine(&["down"]).expect_ok();
    assert!(!cluster.trine(&["status"]).ok);
    cluster.start();
    until("the second Pod runs anew and has its volume", || {
        let outcome = cluster.trine(&["exec", "two", "--", "/bin/busybox", "cat", "/data/note"]);
        if outcome.out.trim() == "kept" { Ok(()) } else { Err(outcome.err) }
    });
    all_hear_all(&cluster, 1);
    let _ = cluster.trine(&["down"]).expect_ok();
    let fewer = cluster.trine(&["up", "--detach", "--nodes", "1"]).expect_failure();
    assert!(fewer.contains("whose volumes would be lost"), "{fewer}");
}

#[test]
fn kubectl_forwards_a_port_to_a_pod_on_another_node() {
    const TEST: &str = "kubectl_forwards_a_port_to_a_pod_on_another_node";
    let Some(program) = kubectl::build(TEST) else { return };
    let Some((cluster, _)) = two_nodes(TEST) else { return };
    let mut forward = kubectl::command(&program, &cluster, &["port-forward", "pod/two", ":9000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("kubectl starts");
    let mut said = String::new();
    let mut lines = BufReader::new(forward.stdout.take().expect("its output"));
    lines.read_line(&mut said).expect("it says where");
    let port =
        said.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).expect("a port").to_owned();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = stream.write_all(b"\n");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    let _ = forward.kill();
    let _ = forward.wait();
    assert_eq!(answer.trim(), "two", "{read:?}");
}
