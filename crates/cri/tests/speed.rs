//! How long the calls of a Pod's life take, printed; `--nocapture` shows it.

#![allow(clippy::unwrap_used)]

mod harness;

use std::time::{Duration, Instant};

use harness::{Node, container};
use trine_contracts::cri::*;

const ROUNDS: usize = 20;

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_a_pods_life_are_measured() {
    let Some(node) = Node::start("the_calls_of_a_pods_life_are_measured").await else { return };
    let mut client = node.client();
    let mut times: [Vec<Duration>; 5] = Default::default();
    for round in 0..ROUNDS {
        let mut begun = Instant::now();
        let mut lap = |step: usize| {
            times[step].push(begun.elapsed());
            begun = Instant::now();
        };
        let pod = node.run_pod(&node.pod(&format!("p{round}"))).await;
        lap(0);
        let id = node.create(&pod, container("main", &[])).await.unwrap();
        lap(1);
        node.start_container(&id).await.unwrap();
        lap(2);
        client.stop_container(StopContainerRequest { container_id: id, timeout: 0 }).await.unwrap();
        lap(3);
        client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod }).await.unwrap();
        lap(4);
    }
    let names = ["RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox"];
    for (name, times) in names.iter().zip(&mut times) {
        println!("{name}: p50 {:.1} ms", median(times));
    }
    node.finish().await;
}
