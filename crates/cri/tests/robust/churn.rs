//! Pods that come and go, ten at a time, in a runtime that is a process of its own: nothing is left, and it does not grow.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use trine_contracts::cri::*;

use crate::apart::Apart;
use crate::harness::{Node, inside, script};
use crate::scenario::attempt;
use crate::world;

/// At a time.
const AT_ONCE: usize = 10;
/// Before the first look at the memory: threads, buffers and what is kept of an image are there then.
const WARM_UP: usize = 40;
/// How long descriptors may take to be closed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much more memory the runtime may have afterwards, kB.
const GROWTH: u64 = 5 * 1024;

/// One Pod on its own network, with one container, from the beginning to the end.
async fn life(node: &Node, number: usize) {
    let mut config = attempt(node, 0, true);
    let metadata = config.metadata.as_mut().unwrap();
    (metadata.name, metadata.uid) = (format!("pod-{number}"), format!("uid-{number}"));
    config.port_mappings.clear();
    config.log_directory = node.logs().join(format!("{number}")).to_string_lossy().into_owned();
    let (mut client, pod) = (node.client(), node.run_pod(&config).await);
    let id = node.run(&pod, script("main", "echo $$; exec sleep 1000")).await;
    assert_eq!(node.status(&id).await.state(), ContainerState::ContainerRunning);
    client.stop_container(StopContainerRequest { container_id: id.clone(), timeout: 0 }).await.unwrap();
    client.remove_container(RemoveContainerRequest { container_id: id }).await.unwrap();
    let pod_sandbox_id = pod.clone();
    client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id }).await.unwrap();
    client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod }).await.unwrap();
    std::fs::remove_dir_all(&config.log_directory).unwrap();
}

async fn lives(node: &Node, from: usize, count: usize) {
    stream::iter(from..from + count).for_each_concurrent(AT_ONCE, |number| life(node, number)).await;
}

/// Memory that is the process's own, kB, and its open descriptors.
fn weight(daemon: &Apart) -> (u64, usize) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let memory = memory.trim().trim_end_matches(" kB").parse().unwrap();
    (memory, std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count())
}

async fn churn(test: &str, count: usize) {
    if !inside(test) {
        return;
    }
    let Some(node) = Node::new(test) else { return };
    node.with_network("10.88.0.0/22");
    let mut daemon = Apart::serving(&node).await;
    lives(&node, 0, WARM_UP).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let (base, before, begun) = (world::calm(&node).await, weight(&daemon), Instant::now());
    lives(&node, WARM_UP, count).await;
    let took = begun.elapsed();
    world::again(&node, &base).await.unwrap();
    // Connections of the clients, and sockets of links that go a moment later.
    let mut after = weight(&daemon);
    while after.1 > before.1 && begun.elapsed() < took + PATIENCE {
        tokio::time::sleep(Duration::from_millis(50)).await;
        after = weight(&daemon);
    }
    println!(
        "{count} Pods in {took:.1?}; memory {} kB, then {} kB; descriptors {}, then {}",
        before.0, after.0, before.1, after.1
    );
    assert!(after.0 < before.0 + GROWTH, "the runtime grows: {before:?}, {after:?}");
    assert!(after.1 <= before.1, "descriptors stay open: {before:?}, {after:?}");
    daemon.kill();
    drop(daemon);
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_pods_come_and_go_and_nothing_is_left_of_them() {
    churn("churn::a_hundred_pods_come_and_go_and_nothing_is_left_of_them", 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo xtask churn"]
async fn two_thousand_pods_come_and_go_and_nothing_is_left_of_them() {
    churn("churn::two_thousand_pods_come_and_go_and_nothing_is_left_of_them", 2000).await;
}
