//! What the kubelet is told, and the numbers that it takes from upstream.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::eviction::Thresholds;
use crate::log_rotation::Limits;
use crate::networks::PodNetworks;

/// Pods per node (upstream: `maxPods`).
pub const MAX_PODS: u32 = 110;
/// First port tried for the HTTPS server (upstream: 10250).
pub const DEFAULT_PORT: u16 = 10250;
/// How many ports above the first are probed when it is taken.
pub const PORT_PROBES: u16 = 200;
/// Lifetime of the node lease (upstream: `nodeLeaseDurationSeconds`).
pub const LEASE_DURATION: Duration = Duration::from_secs(40);
/// Renewal period of the node lease (upstream: a quarter of the lifetime).
pub const LEASE_RENEW: Duration = Duration::from_secs(10);
/// How often the node status is computed (upstream: `nodeStatusUpdateFrequency`).
pub const NODE_STATUS_CHECK: Duration = Duration::from_secs(10);
/// How often it is sent although nothing changed (upstream: `nodeStatusReportFrequency`).
pub const NODE_STATUS_REPORT: Duration = Duration::from_secs(300);
/// Relist of the runtime when it has no event stream (upstream: generic PLEG).
pub const RELIST: Duration = Duration::from_secs(1);
/// Relist as a safety net behind the event stream.
pub const RELIST_WITH_EVENTS: Duration = Duration::from_secs(15);
/// Re-sync of a Pod although nothing happened (upstream: `syncFrequency`).
pub const RESYNC: Duration = Duration::from_secs(60);
/// Deadline of a CRI call that has no deadline of its own (upstream: `runtimeRequestTimeout`).
pub const CRI_TIMEOUT: Duration = Duration::from_secs(120);
/// Deadline of an image pull; the runtime gives up earlier when nothing moves.
pub const PULL_TIMEOUT: Duration = Duration::from_secs(1800);
/// Deadline of one CSI call (upstream: `csiTimeout`).
pub const CSI_TIMEOUT: Duration = Duration::from_secs(120);
/// Deadline of one API call.
pub const API_TIMEOUT: Duration = Duration::from_secs(15);
/// First and longest crash-loop and image pull back-off (upstream).
pub const BACKOFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// First and longest back-off of sandbox creation (upstream's longest is its only one).
pub const SANDBOX_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// First and longest back-off of a volume operation (upstream).
pub const VOLUME_BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(120));
/// Least time that a container gets between the signal and the kill (upstream: `minimumGracePeriodInSeconds`).
pub const MINIMUM_GRACE: i64 = 2;
/// Default `terminationGracePeriodSeconds` (upstream).
pub const DEFAULT_GRACE: i64 = 30;

/// Everything that the kubelet needs to know at start.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the Node object.
    pub node_name: String,
    /// Address under which the API server reaches this node.
    pub node_ip: IpAddr,
    /// One of the other family, if the cluster has both. Default: none.
    pub other_node_ip: Option<IpAddr>,
    /// Root folder, usually `/var/lib/kubelet`: `pods/`, `plugins/`, `plugins_registry/`.
    pub root: PathBuf,
    /// Container logs, usually `/var/log/pods`.
    pub log_root: PathBuf,
    /// The runtime's socket.
    pub cri_socket: PathBuf,
    /// First port to try for the HTTPS server; 0 takes any.
    pub port: u16,
    /// Serving certificate (chain) of the HTTPS server.
    pub serving_cert_pem: String,
    /// Its private key.
    pub serving_key_pem: String,
    /// The next certificates and keys, when they are exchanged before they end.
    pub serving_next: Option<tokio::sync::watch::Receiver<(String, String)>>,
    /// Who signs client certificates.
    pub client_ca_pem: String,
    /// Resolvers for Pods with dnsPolicy `ClusterFirst`; without any they get the node's own.
    pub cluster_dns: Vec<IpAddr>,
    /// Search domain of the cluster (default `cluster.local`).
    pub cluster_domain: String,
    /// Tell the runtime the Node's Pod range by `UpdateRuntimeConfig`, as upstream does; else its network is left alone.
    pub tell_pod_range: bool,
    /// The node's resolver configuration (default `/etc/resolv.conf`).
    pub resolv_conf: PathBuf,
    /// Parent cgroup named to the runtime; empty leaves it to the runtime.
    pub cgroup_parent: String,
    /// What must be left of the node (upstream: `evictionHard`).
    pub eviction_hard: Thresholds,
    /// How much of containers' output is kept.
    pub logs: Limits,
    /// Who looks after networks that Pods ask for beside their default one.
    pub pod_networks: PodNetworks,
    /// Labels for the Node beside the well-known ones.
    pub node_labels: Vec<(String, String)>,
}

impl Config {
    /// The node's addresses, the primary one first.
    pub fn node_ips(&self) -> impl Iterator<Item = IpAddr> {
        [self.node_ip].into_iter().chain(self.other_node_ip)
    }

    /// A configuration with defaults for all but what has none.
    #[must_use]
    pub fn new(node_name: &str, node_ip: IpAddr, root: PathBuf, cri_socket: PathBuf) -> Self {
        Self {
            node_name: node_name.to_owned(),
            node_ip,
            other_node_ip: None,
            log_root: root.join("logs"),
            root,
            cri_socket,
            port: DEFAULT_PORT,
            serving_cert_pem: String::new(),
            serving_key_pem: String::new(),
            serving_next: None,
            client_ca_pem: String::new(),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            tell_pod_range: false,
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            cgroup_parent: String::new(),
            eviction_hard: Thresholds::default(),
            logs: Limits::default(),
            pod_networks: PodNetworks::default(),
            node_labels: Vec::new(),
        }
    }
}
