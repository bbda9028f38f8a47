//! A daemon that ends, or finds what another left: Pods go on, ends are not lost, what is half made goes.

#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Node, container, script};
use trine_contracts::cri::*;

async fn sandbox_state(node: &Node, pod: &str) -> PodSandboxState {
    let request = PodSandboxStatusRequest { pod_sandbox_id: pod.into(), verbose: false };
    node.client().pod_sandbox_status(request).await.unwrap().into_inner().status.unwrap().state()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_outlive_the_daemon_and_ends_meanwhile_are_known_to_the_next() {
    let test = "pods_outlive_the_daemon_and_ends_meanwhile_are_known_to_the_next";
    let Some(mut node) = Node::start(test).await else { return };
    let config = node.pod("outlive");
    let pod = node.run_pod(&config).await;
    let stays = node.run(&pod, script("stays", "while true; do echo tick; sleep 0.05; done")).await;
    let ends = node.run(&pod, script("ends", "sleep 0.3; exit 5")).await;
    let waits = node.create(&pod, container("waits", &[])).await.unwrap();
    let before = node.status(&stays).await;
    let process = node.stdout(&stays, "cat /proc/1/stat").await;
    node.end_daemon().await;
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    let log = std::fs::read_to_string(&before.log_path).unwrap().lines().count();
    assert!(log > 8, "the log went on without a daemon: {log} lines");
    node.serve().await;
    assert_eq!(node.run_pod(&config).await, pod, "the same sandbox");
    let after = node.status(&stays).await;
    assert_eq!((after.state(), after.started_at), (ContainerState::ContainerRunning, before.started_at));
    let start = |stat: &str| stat.split(' ').nth(21).unwrap().to_owned();
    assert_eq!(start(&node.stdout(&stays, "cat /proc/1/stat").await), start(&process), "the same process");
    let ended = node.status(&ends).await;
    assert_eq!((ended.state(), ended.exit_code), (ContainerState::ContainerExited, 5));
    assert!(ended.started_at > 0 && ended.finished_at > ended.started_at);
    node.start_container(&waits).await.unwrap();
    assert_eq!(node.stdout(&waits, "echo hi").await, "hi");
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_keeper_leaves_a_sandbox_that_is_not_ready_and_no_process() {
    let Some(mut node) = Node::start("a_dead_keeper_leaves_a_sandbox_that_is_not_ready_and_no_process").await
    else {
        return;
    };
    let pods = [node.run_pod(&node.pod("one")).await, node.run_pod(&node.pod("two")).await];
    let mut ids = Vec::new();
    for pod in &pods {
        ids.push(node.run(pod, container("main", &[])).await);
    }
    let kill = |pod: &str| {
        let folder = node.config.state_dir.join("sandboxes").join(pod);
        let process = trine_cri::keeper::spawn::recorded(&folder).unwrap();
        trine_kernel::proc::signal_pidfd(process.open().unwrap(), 9).unwrap();
    };
    kill(&pods[0]);
    assert_eq!(node.ended(&ids[0]).await.exit_code, 255);
    assert_eq!(sandbox_state(&node, &pods[0]).await, PodSandboxState::SandboxNotready);
    // The other one dies while there is no daemon.
    node.end_daemon().await;
    let folder = node.config.state_dir.join("sandboxes").join(&pods[1]);
    let process = trine_cri::keeper::spawn::recorded(&folder).unwrap();
    trine_kernel::proc::signal_pidfd(process.open().unwrap(), 9).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    node.serve().await;
    assert_eq!(sandbox_state(&node, &pods[1]).await, PodSandboxState::SandboxNotready);
    assert_eq!(node.status(&ids[1]).await.state(), ContainerState::ContainerExited);
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_was_being_made_and_a_broken_record_are_removed() {
    let Some(mut node) = Node::start("a_sandbox_that_was_being_made_and_a_broken_record_are_removed").await
    else {
        return;
    };
    let pods = [node.run_pod(&node.pod("half")).await, node.run_pod(&node.pod("broken")).await];
    node.run(&pods[0], container("main", &[])).await;
    node.end_daemon().await;
    let record = |pod: &str| node.config.state_dir.join("sandboxes").join(pod).join("record.json");
    let text = std::fs::read_to_string(record(&pods[0])).unwrap();
    std::fs::write(record(&pods[0]), text.replace("\"Ready\"", "\"Making\"")).unwrap();
    std::fs::write(record(&pods[1]), "{").unwrap();
    node.serve().await;
    let listed = node.client().list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner();
    assert!(listed.items.is_empty());
    node.finish().await;
}
