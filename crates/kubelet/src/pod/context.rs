//! What all workers share.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use trine_typed::k8s_openapi::api::core::v1::{Pod, Service};
use trine_typed::kube::Client;
use trine_typed::mirror::Mirror;

use super::spec;
use crate::config::Config;
use crate::container::fields::NodeFacts;
use crate::container::service_env::service_environment;
use crate::devices::Devices;
use crate::events::Events;
use crate::eviction::{Orders, Pressures};
use crate::node::NodeStatusManager;
use crate::probes::Probes;
use crate::runtime::{Observed, Runtime};
use crate::users::Users;
use crate::volumes::VolumeManager;
use crate::wake::Wakers;

/// Shared by all workers.
pub struct Context {
    /// What the kubelet was told.
    pub config: Arc<Config>,
    /// The API.
    pub client: Client,
    /// The runtime.
    pub runtime: Runtime,
    /// The volumes.
    pub volumes: Arc<VolumeManager>,
    /// The devices.
    pub devices: Arc<Devices>,
    /// Which ids Pods with users of their own have.
    pub users: Users,
    /// The probes.
    pub probes: Arc<Probes>,
    /// Events.
    pub events: Events,
    /// The node's status.
    pub node: Arc<NodeStatusManager>,
    /// What the node is short of.
    pub pressures: Arc<Pressures>,
    /// Pods that have to leave.
    pub evictions: Orders,
    /// Bells of the workers.
    pub wakers: Wakers,
    /// Services, for environment variables.
    pub services: Mirror<Service>,
    /// Whether Pods with a network of their own may start.
    pub network_ready: watch::Receiver<bool>,
    /// What Pods may know of the node.
    pub facts: NodeFacts,
    /// The node's memory, bytes.
    pub memory: u64,
    /// Whether the node has cgroup version 2 alone.
    pub cgroup_2: bool,
}

impl Context {
    /// The node's facts with the addresses of a Pod.
    #[must_use]
    pub fn facts_for(&self, pod: &Pod, ips: &[String]) -> NodeFacts {
        let pod_ips = if spec::host_network(pod) { self.facts.host_ips.clone() } else { ips.to_vec() };
        NodeFacts { pod_ips, ..self.facts.clone() }
    }

    /// Where the Pod is reached from this node.
    #[must_use]
    pub fn address(&self, pod: &Pod, observed: &Observed) -> String {
        let own = observed.sandbox().and_then(|s| s.ips.first()).filter(|_| !spec::host_network(pod));
        own.cloned().unwrap_or_else(|| self.config.node_ip.to_string())
    }

    /// Environment variables of the Services that `pod` sees.
    #[must_use]
    pub fn service_environment(&self, pod: &Pod) -> BTreeMap<String, String> {
        let all = self.services.all();
        service_environment(pod, all.iter().map(AsRef::as_ref))
    }

    /// The node's resolver configuration.
    #[must_use]
    pub fn resolv_conf(&self) -> String {
        std::fs::read_to_string(&self.config.resolv_conf).unwrap_or_default()
    }
}
