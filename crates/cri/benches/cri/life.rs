//! The calls of a Pod's life, timed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tonic::transport::Channel;
use trine_contracts::cri::runtime_service_client::RuntimeServiceClient;
use trine_contracts::cri::*;

use crate::Outcome;
use crate::peers::{Peer, container, pod};

/// Durations by call.
#[derive(Debug, Default)]
pub struct Times(pub BTreeMap<&'static str, Vec<Duration>>);

impl Times {
    /// Notes one.
    pub fn add(&mut self, call: &'static str, took: Duration) {
        self.0.entry(call).or_default().push(took);
    }

    /// Takes those of another.
    pub fn join(&mut self, other: Self) {
        for (call, times) in other.0 {
            self.0.entry(call).or_default().extend(times);
        }
    }
}

/// A Pod that runs.
#[derive(Debug)]
pub struct Running {
    sandbox: String,
    container: String,
}

/// From RunPodSandbox to StartContainer; their sum is `start`.
///
/// # Errors
/// The runtime's.
pub async fn start(peer: &Peer, name: &str, times: &mut Times) -> Outcome<Running> {
    let mut client = peer.client();
    let begun = Instant::now();
    let config = pod(peer, name);
    let request =
        RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: peer.handler.to_owned() };
    let sandbox = client.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
    let made = Instant::now();
    times.add("RunPodSandbox", made - begun);
    let request = CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(container()),
        sandbox_config: Some(config),
    };
    let container = client.create_container(request).await?.into_inner().container_id;
    let created = Instant::now();
    times.add("CreateContainer", created - made);
    client.start_container(StartContainerRequest { container_id: container.clone() }).await?;
    times.add("StartContainer", created.elapsed());
    times.add("start", begun.elapsed());
    Ok(Running { sandbox, container })
}

/// From StopContainer to RemovePodSandbox; their sum is `stop`. The container is killed: as process 1 of its namespace it would
/// have to ask for any other signal, and a grace would be measured.
///
/// # Errors
/// The runtime's.
pub async fn stop(peer: &Peer, running: Running, times: &mut Times) -> Outcome<()> {
    let mut client = peer.client();
    let begun = Instant::now();
    client.stop_container(StopContainerRequest { container_id: running.container, timeout: 0 }).await?;
    let stopped = Instant::now();
    times.add("StopContainer", stopped - begun);
    client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: running.sandbox.clone() }).await?;
    let down = Instant::now();
    times.add("StopPodSandbox", down - stopped);
    client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: running.sandbox }).await?;
    times.add("RemovePodSandbox", down.elapsed());
    times.add("stop", begun.elapsed());
    Ok(())
}

/// ListContainers, with all that a kubelet asks for.
///
/// # Errors
/// The runtime's, or if it does not list as many.
pub async fn list(
    client: &mut RuntimeServiceClient<Channel>,
    wanted: usize,
    times: &mut Times,
) -> Outcome<()> {
    let begun = Instant::now();
    let listed = client.list_containers(ListContainersRequest { filter: None }).await?.into_inner();
    times.add("ListContainers", begun.elapsed());
    let running = listed.containers.iter().filter(|c| c.state() == ContainerState::ContainerRunning).count();
    if running < wanted {
        return Err(format!("{running} containers run, not {wanted}").into());
    }
    Ok(())
}
