//! Sandboxes and containers of one Pod, as plain values for the plan and the status.

use std::collections::BTreeMap;

use trine_contracts::cri;

use super::labels;
use crate::resize::Numbers;

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxView {
    /// The runtime's id.
    pub id: String,
    /// How many sandboxes the Pod had before.
    pub attempt: u32,
    /// Whether it is ready.
    pub ready: bool,
    /// Creation, nanoseconds since the epoch.
    pub created_at: i64,
    /// Addresses, the first one first; empty on the host network.
    pub ips: Vec<String>,
    /// Whether it shares the node's network.
    pub host_network: bool,
}

/// What a container does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunState {
    /// Made, never started.
    Created,
    /// Running.
    Running,
    /// Ended.
    Exited,
    /// The runtime does not know.
    #[default]
    Unknown,
}

/// A container, of any attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerView {
    /// The runtime's id.
    pub id: String,
    /// Name in the Pod's spec.
    pub name: String,
    /// Its sandbox.
    pub sandbox: String,
    /// How often a container of this name was started before.
    pub attempt: u32,
    /// What it does.
    pub state: RunState,
    /// Nanoseconds since the epoch.
    pub created_at: i64,
    /// Nanoseconds since the epoch, 0 if it never started.
    pub started_at: i64,
    /// Nanoseconds since the epoch, 0 if it has not ended.
    pub finished_at: i64,
    /// Exit code.
    pub exit_code: i32,
    /// The image as it was asked for.
    pub image: String,
    /// The image as the runtime resolved it.
    pub image_id: String,
    /// Why it ended, in one word (`Completed`, `Error`, `OOMKilled`).
    pub reason: String,
    /// Why it ended, in the runtime's or its own words.
    pub message: String,
    /// [`labels::hash`] of the spec that it was made from.
    pub hash: String,
    /// Its log file, absolute.
    pub log_path: String,
    /// Mounts and annotations that the termination message needs.
    pub termination_file: Option<String>,
    /// What its group has, if the runtime says so.
    pub numbers: Option<Numbers>,
    /// Whether the log's tail stands in for an empty message after an error.
    pub termination_from_log: bool,
}

/// All that the runtime has of one Pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// Newest first.
    pub sandboxes: Vec<SandboxView>,
    /// Newest first.
    pub containers: Vec<ContainerView>,
}

impl Observed {
    /// The newest sandbox.
    #[must_use]
    pub fn sandbox(&self) -> Option<&SandboxView> {
        self.sandboxes.first()
    }

    /// The newest container called `name`.
    #[must_use]
    pub fn latest(&self, name: &str) -> Option<&ContainerView> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// The newest container called `name` in `sandbox`.
    #[must_use]
    pub fn latest_in(&self, sandbox: &str, name: &str) -> Option<&ContainerView> {
        self.containers.iter().find(|c| c.name == name && c.sandbox == sandbox)
    }

    /// The container before the newest one called `name`.
    #[must_use]
    pub fn previous(&self, name: &str) -> Option<&ContainerView> {
        self.containers.iter().filter(|c| c.name == name).nth(1)
    }

    /// Whether a container may still have processes.
    #[must_use]
    pub fn anything_runs(&self) -> bool {
        self.containers.iter().any(|c| matches!(c.state, RunState::Running | RunState::Unknown))
    }

    /// Sorts newest first.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by_key(|s| std::cmp::Reverse((s.attempt, s.created_at)));
        self.containers.sort_by_key(|c| std::cmp::Reverse((c.attempt, c.created_at)));
    }
}

/// From the CRI's sandbox status.
#[must_use]
pub fn sandbox(status: &cri::PodSandboxStatus) -> SandboxView {
    let network = status.network.as_ref();
    let mut ips: Vec<String> =
        network.map(|n| n.ip.clone()).filter(|ip| !ip.is_empty()).into_iter().collect();
    ips.extend(network.into_iter().flat_map(|n| n.additional_ips.iter().map(|ip| ip.ip.clone())));
    let namespaces =
        status.linux.as_ref().and_then(|l| l.namespaces.as_ref()).and_then(|n| n.options.as_ref());
    SandboxView {
        id: status.id.clone(),
        attempt: status.metadata.as_ref().map(|m| m.attempt).unwrap_or_default(),
        ready: status.state == cri::PodSandboxState::SandboxReady as i32,
        created_at: status.created_at,
        ips,
        host_network: namespaces.is_some_and(|n| n.network == cri::NamespaceMode::Node as i32),
    }
}

/// From the CRI's container status; `sandbox` is not in it.
#[must_use]
pub fn container(status: &cri::ContainerStatus, sandbox: &str) -> ContainerView {
    let get = |map: &std::collections::HashMap<String, String>, key: &str| map.get(key).cloned();
    let metadata = status.metadata.as_ref();
    let attempt = get(&status.annotations, labels::RESTART_COUNT)
        .and_then(|n| n.parse().ok())
        .or_else(|| metadata.map(|m| m.attempt));
    let path = get(&status.annotations, labels::TERMINATION_PATH).unwrap_or_default();
    let mounts: BTreeMap<_, _> =
        status.mounts.iter().map(|m| (m.container_path.as_str(), m.host_path.as_str())).collect();
    let asked = status.image.as_ref().map(|i| {
        if i.user_specified_image.is_empty() { i.image.clone() } else { i.user_specified_image.clone() }
    });
    ContainerView {
        id: status.id.clone(),
        name: get(&status.labels, labels::CONTAINER_NAME)
            .or_else(|| metadata.map(|m| m.name.clone()))
            .unwrap_or_default(),
        sandbox: sandbox.to_owned(),
        attempt: attempt.unwrap_or_default(),
        state: run_state(status.state),
        created_at: status.created_at,
        started_at: status.started_at,
        finished_at: status.finished_at,
        exit_code: status.exit_code,
        image: asked.unwrap_or_default(),
        image_id: if status.image_ref.is_empty() {
            status.image_id.clone()
        } else {
            status.image_ref.clone()
        },
        reason: status.reason.clone(),
        message: status.message.clone(),
        hash: get(&status.annotations, labels::HASH).unwrap_or_default(),
        log_path: status.log_path.clone(),
        numbers: status.resources.as_ref().and_then(|r| r.linux.as_ref()).map(Numbers::from),
        termination_file: mounts.get(path.as_str()).map(|host| (*host).to_owned()),
        termination_from_log: get(&status.annotations, labels::TERMINATION_POLICY).as_deref()
            == Some("FallbackToLogsOnError"),
    }
}

/// From the CRI's enum.
#[must_use]
pub fn run_state(state: i32) -> RunState {
    match cri::ContainerState::try_from(state) {
        Ok(cri::ContainerState::ContainerCreated) => RunState::Created,
        Ok(cri::ContainerState::ContainerRunning) => RunState::Running,
        Ok(cri::ContainerState::ContainerExited) => RunState::Exited,
        _ => RunState::Unknown,
    }
}
