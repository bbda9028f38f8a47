//! Hollow nodes, and the scheduler with many of them: a server alone, no machine, no root.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use trine_tests::until;
use trine_typed::k8s_openapi::api::coordination::v1::Lease;
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod};
use trine_typed::kube::api::{DeleteParams, ListParams};
use trine_typed::kube::{Api, Client};

const NODES: usize = 50;
const PODS: usize = 300;

/// A process that is ended with the test.
struct Process(Child);

impl Process {
    fn start(dir: &str, words: &[&str]) -> Self {
        let mut command = Command::new(trine_tests::program());
        command.args(words).args(["--data-dir", dir]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("trine starts"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// How many Pods of which phase each node has.
fn placed(pods: &[Pod]) -> BTreeMap<String, usize> {
    let mut placed = BTreeMap::new();
    let running = |pod: &&Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
    for node in pods.iter().filter(running).filter_map(|pod| pod.spec.as_ref()?.node_name.clone()) {
        *placed.entry(node).or_default() += 1;
    }
    placed
}

#[test]
fn pods_are_spread_evenly_over_hollow_nodes_where_they_run_until_they_are_to_go() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let parent = tempfile::Builder::new().prefix("trine-test-").tempdir().unwrap();
    let dir = parent.path().join("d").display().to_string();
    let _server = Process::start(&dir, &["server"]);
    until("the server is there", || {
        let record = std::fs::read_to_string(parent.path().join("d/run/daemon.json")).unwrap_or_default();
        if record.contains("\"ready\":true") { Ok(()) } else { Err(record) }
    });
    let (nodes, pods) = (NODES.to_string(), PODS.to_string());
    let sim = Process::start(&dir, &["sim", "--nodes", &nodes, "--pods", &pods]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kubeconfig = parent.path().join("d/kubeconfig");
    let client: Client = runtime.block_on(trine_typed::client::from_kubeconfig(&kubeconfig)).unwrap();
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let all = ListParams::default();
    // A list of all is much work for a debug build, and it would be asked for all the time.
    let list = || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        runtime.block_on(api.list(&all)).unwrap().items
    };

    let placed = until("all Pods run", || {
        let placed = placed(&list());
        if placed.values().sum::<usize>() == PODS { Ok(placed) } else { Err(format!("{placed:?}")) }
    });
    let (fewest, most) = (placed.values().min().unwrap(), placed.values().max().unwrap());
    // Nodes that fit alike are taken in turn; a node may have been seen later than the others.
    assert!(placed.len() == NODES && most - fewest <= PODS / NODES, "{placed:?}");
    let addresses = list().into_iter().filter_map(|pod| pod.status?.pod_ip);
    assert_eq!(addresses.collect::<std::collections::BTreeSet<_>>().len(), PODS, "each has its own address");

    let nodes = runtime.block_on(Api::<Node>::all(client.clone()).list(&all)).unwrap().items;
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    assert_eq!(nodes.len(), NODES);
    let renewed =
        |name: &str| runtime.block_on(leases.get(name)).unwrap().spec.unwrap().renew_time.unwrap().0;
    let before = renewed("hollow-00007");
    until("the lease is renewed", || match renewed("hollow-00007") {
        now if now > before => Ok(()),
        now => Err(now.to_string()),
    });

    runtime.block_on(api.delete_collection(&DeleteParams::default(), &all)).unwrap();
    until("all Pods are gone", || match list().len() {
        0 => Ok(()),
        left => Err(left.to_string()),
    });
    drop(sim);
}
