//! What containers and sandboxes use, from their groups.

use std::path::Path;

use trine_contracts::cri::{
    ContainerAttributes, ContainerStats, ContainerStatsFilter, CpuUsage, FilesystemIdentifier,
    FilesystemUsage, LinuxPodSandboxStats, MemoryUsage, NetworkInterfaceUsage, NetworkUsage,
    PodSandboxAttributes, PodSandboxStats, PodSandboxStatsFilter, ProcessUsage, UInt64Value,
};
use trine_kernel::cgroup::Usage;

use super::Service;
use super::metrics::interfaces_in;
use super::sandboxes::matches;
use crate::container::{Container, State};
use crate::error::CriError;
use crate::runtime::now;
use crate::sandbox::{Sandbox, SandboxState};
use trine_contracts::networks::attachments::DEFAULT_LINK;

impl Service {
    /// Reads what is used beside the calls: it takes a walk over what containers wrote.
    pub(super) async fn counted<T: Send + 'static>(
        &self,
        call: &'static str,
        read: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, CriError> {
        let service = self.clone();
        tokio::task::spawn_blocking(move || read(&service)).await.map_err(CriError::joined(call))
    }

    pub(super) fn stats_of_container(&self, id: &str) -> Result<ContainerStats, CriError> {
        Ok(self.container_use(&*self.0.container(id)?))
    }

    pub(super) fn all_container_stats(&self, filter: Option<&ContainerStatsFilter>) -> Vec<ContainerStats> {
        let none = ContainerStatsFilter::default();
        let filter = filter.unwrap_or(&none);
        let containers: Vec<_> = self.0.containers().values().cloned().collect();
        containers
            .into_iter()
            .filter(|c| c.state() == State::Running)
            .filter(|c| c.id.starts_with(&filter.id) && c.sandbox.starts_with(&filter.pod_sandbox_id))
            .filter(|c| matches(&filter.label_selector, &c.record().config.labels))
            .map(|c| self.container_use(&c))
            .collect()
    }

    pub(super) fn stats_of_sandbox(&self, id: &str) -> Result<PodSandboxStats, CriError> {
        Ok(self.sandbox_use(&*self.0.sandbox(id)?))
    }

    pub(super) fn all_sandbox_stats(&self, filter: Option<&PodSandboxStatsFilter>) -> Vec<PodSandboxStats> {
        let none = PodSandboxStatsFilter::default();
        let filter = filter.unwrap_or(&none);
        let sandboxes: Vec<_> = self.0.sandboxes().values().cloned().collect();
        sandboxes
            .into_iter()
            .filter(|s| s.record().state == SandboxState::Ready && s.id.starts_with(&filter.id))
            .filter(|s| matches(&filter.label_selector, &s.record().config.labels))
            .map(|s| self.sandbox_use(&s))
            .collect()
    }

    fn container_use(&self, container: &Container) -> ContainerStats {
        let record = container.record();
        let config = &record.config;
        let usage = self.0.group(&record.cgroup).usage();
        ContainerStats {
            attributes: Some(ContainerAttributes {
                id: record.id.clone(),
                metadata: config.metadata.clone(),
                labels: config.labels.clone(),
                annotations: config.annotations.clone(),
            }),
            cpu: Some(cpu(&usage)),
            memory: Some(memory(&usage)),
            writable_layer: self.written(&record.id),
            swap: None,
            io: None,
        }
    }

    /// What the container wrote into its root; it takes a walk over all of it.
    fn written(&self, id: &str) -> Option<FilesystemUsage> {
        let used = self.0.inner.images.snapshot_usage(id).ok()?;
        let mountpoint = self.0.config().images_dir.to_string_lossy().into_owned();
        Some(FilesystemUsage {
            timestamp: now(),
            fs_id: Some(FilesystemIdentifier { mountpoint }),
            used_bytes: number(used.bytes),
            inodes_used: number(used.inodes),
        })
    }

    fn sandbox_use(&self, sandbox: &Sandbox) -> PodSandboxStats {
        let record = sandbox.record();
        let config = &record.config;
        let usage = self.0.group(&record.cgroup).usage();
        let running = self.0.containers_of(&sandbox.id).into_iter().filter(|c| c.state() == State::Running);
        PodSandboxStats {
            attributes: Some(PodSandboxAttributes {
                id: record.id.clone(),
                metadata: config.metadata.clone(),
                labels: config.labels.clone(),
                annotations: config.annotations.clone(),
            }),
            linux: Some(LinuxPodSandboxStats {
                cpu: Some(cpu(&usage)),
                memory: Some(memory(&usage)),
                network: record.netns.as_deref().map(network),
                process: Some(ProcessUsage { timestamp: now(), process_count: number(usage.tasks) }),
                containers: running.map(|c| self.container_use(&c)).collect(),
                io: None,
            }),
            windows: None,
        }
    }
}

/// The interfaces of a sandbox; `eth0` is the one that its address is on, as every network has it here.
fn network(netns: &Path) -> NetworkUsage {
    let interfaces = interfaces_in(netns).into_iter().map(|interface| NetworkInterfaceUsage {
        name: interface.name,
        rx_bytes: number(interface.received.bytes),
        rx_errors: number(interface.received.errors),
        tx_bytes: number(interface.sent.bytes),
        tx_errors: number(interface.sent.errors),
    });
    let (mut default, others): (Vec<_>, Vec<_>) =
        interfaces.partition(|interface| interface.name == DEFAULT_LINK);
    NetworkUsage { timestamp: now(), default_interface: default.pop(), interfaces: others }
}

fn number(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

fn cpu(usage: &Usage) -> CpuUsage {
    CpuUsage {
        timestamp: now(),
        usage_core_nano_seconds: number(usage.cpu),
        usage_nano_cores: None,
        psi: None,
    }
}

fn memory(usage: &Usage) -> MemoryUsage {
    let memory = usage.memory;
    MemoryUsage {
        timestamp: now(),
        working_set_bytes: number(memory.working_set),
        available_bytes: memory
            .limit
            .map(|limit| UInt64Value { value: limit.saturating_sub(memory.working_set) }),
        usage_bytes: number(memory.usage),
        rss_bytes: number(memory.rss),
        page_faults: number(memory.faults),
        major_page_faults: number(memory.major_faults),
        psi: None,
    }
}
