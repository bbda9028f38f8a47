//! The words of a plane that runs alone, with somebody else on the other side of its contract. What upstream has, too, has
//! upstream's name.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::args::DataDir;
use super::node_args::JoinArgs;
use crate::node_words::KubeletWords;
use crate::registries::RegistryArgs;

/// Words of `cri`.
#[derive(Debug, Clone, Args)]
pub struct CriArgs {
    /// The socket, `unix:///...`; D/run/cri.sock when left out
    #[arg(long)]
    pub endpoint: Option<String>,
    /// Where images come from
    #[command(flatten)]
    pub registries: RegistryArgs,
    /// Where the runtime's files are
    #[command(flatten)]
    pub data_dir: DataDir,
}

/// Words of `csi-driver`.
#[derive(Debug, Clone, Args)]
pub struct CsiDriverArgs {
    /// The socket, `unix:///...`; plugins/disk.csi.trine.dev/csi.sock in the kubelet's root when left out
    #[arg(long)]
    pub endpoint: Option<String>,
    /// Where it announces itself to the kubelet; plugins_registry in the kubelet's root when left out
    #[arg(long, value_name = "DIR")]
    pub registration_dir: Option<PathBuf>,
    /// The name of the node that the volumes lie on; the machine's when left out
    #[arg(long)]
    pub node_id: Option<String>,
    /// Volumes that the node takes at once
    #[arg(long, default_value_t = trine_csi_driver::DEFAULT_MAX_VOLUMES)]
    pub max_volumes: u32,
    /// What the volumes lie on: files on the host's file system, or a disk of its own, where copies are instant; auto takes
    /// the disk where the host's files cannot share their blocks and mkfs.xfs is installed
    #[arg(long, value_name = "auto|files|disk", default_value = "auto")]
    pub pool: trine_csi_driver::PoolKind,
    /// Where the driver's files are
    #[command(flatten)]
    pub data_dir: DataDir,
}

/// Words of `csi-controllers`.
#[derive(Debug, Clone, Args)]
pub struct CsiControllersArgs {
    /// The cluster whose claims are served
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// The driver's socket, `unix:///...`; that of `trine csi-driver` when left out
    #[arg(long)]
    pub endpoint: Option<String>,
    /// Serve only this node's volumes: its driver is one of several
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Tell the driver the claim's name with each new volume
    #[arg(long)]
    pub extra_create_metadata: bool,
    /// Make the driver's CSIDriver, and for Trine's driver its StorageClass, if they are missing
    #[arg(long)]
    pub create_objects: bool,
    /// Where the driver's files are
    #[command(flatten)]
    pub data_dir: DataDir,
}

/// Words of `dns`.
#[derive(Debug, Clone, Args)]
pub struct DnsArgs {
    /// The cluster whose names are answered
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// The address to answer on
    #[arg(long, default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// The port to answer on, UDP and TCP; the first free one from 10053 when left out
    #[arg(long)]
    pub port: Option<u16>,
    /// The cluster's domain
    #[arg(long, default_value = "cluster.local")]
    pub domain: String,
    /// The name servers for all other names
    #[arg(long, default_value = "/etc/resolv.conf")]
    pub resolv_conf: PathBuf,
    /// The node of this server, to join the endpoints of the Service kube-system/kube-dns
    #[arg(long)]
    pub announce: Option<String>,
}

/// Words of `scheduler`.
#[derive(Debug, Clone, Args)]
pub struct SchedulerArgs {
    /// The cluster whose Pods are placed
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Place only Pods with this schedulerName: another scheduler's stay its own
    #[arg(long, value_name = "NAME", default_value = "default-scheduler")]
    pub scheduler_name: String,
    /// Profiles and settings: upstream's KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1), YAML or JSON
    #[arg(long, value_name = "FILE", conflicts_with = "scheduler_name")]
    pub config: Option<PathBuf>,
    /// Work only while holding the Lease kube-system/trine-scheduler (for another schedulerName, -NAME behind it), so that
    /// several may run
    #[arg(long)]
    pub leader_elect: bool,
}

/// Words of `controllers`.
#[derive(Debug, Clone, Args)]
pub struct ControllersArgs {
    /// The cluster that is kept as it should be; its user needs an administrator's rights
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// The range that the nodes' Pod ranges are cut from; of each family one, with a comma between them
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: String,
    /// The authority that every namespace is told, PEM [default: the kubeconfig's]
    #[arg(long, value_name = "FILE")]
    pub root_ca_file: Option<PathBuf>,
    /// The authority's key, PEM, to sign certificates that are asked for; without it nobody does
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_key_file: Option<PathBuf>,
    /// Work only while holding the Lease kube-system/trine-controllers, so that several may run
    #[arg(long)]
    pub leader_elect: bool,
}

/// Words of `kubelet`.
#[derive(Debug, Clone, Args)]
pub struct KubeletArgs {
    /// The cluster that the node belongs to, and how it may; without it the node joins by a token
    #[arg(long, conflicts_with_all = ["server", "token", "token_file", "ca_file"])]
    pub kubeconfig: Option<PathBuf>,
    /// How it joins
    #[command(flatten)]
    pub join: JoinArgs,
    /// The runtime's socket, `unix:///...`; that of `trine cri` when left out
    #[arg(long, value_name = "ENDPOINT")]
    pub container_runtime_endpoint: Option<String>,
    /// The node's name [default: this machine's]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// The address at which the API server and other nodes reach it, and one of the other family [default: the one by which this
    /// machine is reached]
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// Resolvers for Pods; the node's own when left out
    #[arg(long, value_name = "IP")]
    pub cluster_dns: Vec<IpAddr>,
    /// The domain of Services' names
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// The group of all Pods, told to the runtime, as it writes groups; left to it when left out
    #[arg(long, value_name = "GROUP", default_value = "")]
    pub cgroup_root: String,
    /// How it runs
    #[command(flatten)]
    pub words: KubeletWords,
    /// Who signs the certificates of those that may call it, PEM [default: the cluster's authority]
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// The certificate that it shows, PEM; without one the cluster signs one if the node has joined by a token, nobody else
    #[arg(long, value_name = "FILE", requires_all = ["tls_private_key_file", "kubeconfig"])]
    pub tls_cert_file: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Where its files are
    #[command(flatten)]
    pub data_dir: DataDir,
}

/// Words of `proxy`.
#[derive(Debug, Clone, Args)]
pub struct ProxyArgs {
    /// The cluster whose Services are found
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// The Pod addresses of the whole cluster; of each family one, with a comma between them
    #[arg(long, value_name = "RANGE")]
    pub cluster_cidr: String,
    /// The virtual addresses of Services; of each family one
    #[arg(long, value_name = "RANGE")]
    pub service_cidr: String,
    /// The node's name [default: this machine's]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// The node's address, and one of the other family [default: those by which this machine is reached]
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// Where its files are
    #[command(flatten)]
    pub data_dir: DataDir,
}

/// Words of `policy`.
#[derive(Debug, Clone, Args)]
pub struct PolicyArgs {
    /// The cluster whose NetworkPolicies are enforced
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// The node's name [default: this machine's]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Where its files are
    #[command(flatten)]
    pub data_dir: DataDir,
}

/// Words of `cni`.
#[derive(Debug, Clone, Subcommand)]
pub enum CniCommand {
    /// Put the plugins where somebody else's runtime looks for them: one program, a link for each
    Install {
        /// The folder of plugins
        #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
        dir: PathBuf,
        /// Write the configuration of the built-in network into this folder, too
        #[arg(long, value_name = "DIR", requires = "pod_cidr")]
        conf_dir: Option<PathBuf>,
        /// The Pod addresses of this node, for that configuration; of each family one
        #[arg(long, value_name = "RANGE", requires = "conf_dir")]
        pod_cidr: Option<String>,
        /// Where that network keeps its addresses
        #[command(flatten)]
        data_dir: DataDir,
    },
}
