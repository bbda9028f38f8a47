//! The words of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::alone_args::{
    CniCommand, ControllersArgs, CriArgs, CsiControllersArgs, CsiDriverArgs, DnsArgs, KubeletArgs,
    PolicyArgs, ProxyArgs, SchedulerArgs,
};
use super::api_args::ApiArgs;
use super::node_args::{AgentArgs, NetworkArgs, Place, ServerArgs, TokenCommand};
use crate::layout::DEFAULT_DATA_DIR;
use crate::node_words::NodeWords;
use crate::registries::RegistryArgs;
use crate::storage::StoreArgs;
use crate::web::WebArgs;

/// Kubernetes in one binary.
#[derive(Debug, Parser)]
#[command(name = "trine", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What Trine can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// A one-node cluster in a temporary place, a web app with a volume and a Service, its trace
    Demo(DemoArgs),
    /// All in one: API server, scheduler, controllers, kubelet, runtime, network, storage
    Up(UpArgs),
    /// The control plane alone: API server, scheduler, controllers
    Server(ServerArgs),
    /// A node alone, of a cluster whose server is elsewhere
    Agent(AgentArgs),
    /// Tokens with which nodes join
    #[command(subcommand)]
    Token(TokenCommand),
    /// Stop, Pods included; works without a running daemon, and twice
    Down(DownArgs),
    /// The runtime alone, for somebody else's kubelet
    Cri(CriArgs),
    /// The kubelet alone, for somebody else's API server and runtime
    Kubelet(KubeletArgs),
    /// The Service proxy alone, for somebody else's cluster
    Proxy(ProxyArgs),
    /// The enforcer of NetworkPolicies alone, for somebody else's cluster
    Policy(PolicyArgs),
    /// The name server alone, for somebody else's cluster
    Dns(DnsArgs),
    /// The scheduler alone, for somebody else's API server
    Scheduler(SchedulerArgs),
    /// The controllers alone, for somebody else's API server
    Controllers(ControllersArgs),
    /// The CSI driver alone, for somebody else's kubelet and sidecars
    CsiDriver(CsiDriverArgs),
    /// The CSI sidecars alone: they provision and attach with anybody's driver
    CsiControllers(CsiControllersArgs),
    /// The network plugins, for somebody else's runtime
    #[command(subcommand)]
    Cni(CniCommand),
    /// Health of every plane, one line each
    Status(DataDir),
    /// Show objects
    Get(GetArgs),
    /// Show one object with what belongs to it
    Describe(DescribeArgs),
    /// Make the cluster be as files say
    Apply(ApplyArgs),
    /// Delete objects
    Delete(DeleteArgs),
    /// Print a container's log
    Logs(LogsArgs),
    /// Run a command in a container
    Exec(ExecArgs),
    /// Print the kubeconfig
    Kubeconfig(DataDir),
    /// Images of the node
    #[command(subcommand)]
    Image(ImageCommand),
    /// The embedded store in a file
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// The timeline of a Pod over the planes
    Trace(TraceArgs),
    /// Which plane holds a Pod up, with the proof and the next command
    Why(WhyArgs),
    /// Hollow nodes for tests of scale: they register, stay alive and play the life of their Pods; nothing runs
    Sim(SimArgs),
    /// The demo's web server
    #[command(hide = true)]
    Web(WebArgs),
}

/// Where the cluster's files are.
#[derive(Debug, Clone, Args)]
pub struct DataDir {
    /// The data dir
    #[arg(long, default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
}

/// Which cluster, which namespace.
#[derive(Debug, Clone, Args)]
pub struct Target {
    /// Namespace
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// Another cluster's kubeconfig
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Where the cluster's files are
    #[command(flatten)]
    pub data_dir: DataDir,
}

/// Words of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Keep the cluster's files and say where they are
    #[arg(long)]
    pub keep: bool,
}

/// Words of `up`.
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Where the cluster's files are
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Nodes on this machine: the further ones are network namespaces [default: as many as last time, at first 1]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u8>,
    /// Links between which this machine routes and over which the nodes are spread, to have some that are not neighbours [default: as
    /// last time, at first 1]
    #[arg(long, value_name = "N")]
    pub node_links: Option<u8>,
    /// Its addresses, and how other nodes are reached
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Return when the nodes are Ready; the daemon goes on
    #[arg(long)]
    pub detach: bool,
    /// What the API server notes and serves
    #[command(flatten)]
    pub api: ApiArgs,
    /// How its nodes run
    #[command(flatten)]
    pub node: NodeWords,
    /// Which store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Words of `down`.
#[derive(Debug, Clone, Args)]
pub struct DownArgs {
    /// Where it is
    #[command(flatten)]
    pub place: Place,
    /// Remove every trace, the data included
    #[arg(long)]
    pub purge: bool,
}

/// Words of `get`.
#[derive(Debug, Clone, Args)]
pub struct GetArgs {
    /// Kind, kind/name, or kind and names
    #[arg(required = true)]
    pub what: Vec<String>,
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// wide, yaml, json or name
    #[arg(short, long)]
    pub output: Option<String>,
    /// Label selector
    #[arg(short = 'l', long)]
    pub selector: Option<String>,
    /// Field selector
    #[arg(long)]
    pub field_selector: Option<String>,
    /// Go on with changes
    #[arg(short, long)]
    pub watch: bool,
    /// Which cluster
    #[command(flatten)]
    pub target: Target,
}

/// Words of `describe`.
#[derive(Debug, Clone, Args)]
pub struct DescribeArgs {
    /// kind/name, or kind and name
    #[arg(required = true)]
    pub what: Vec<String>,
    /// Which cluster
    #[command(flatten)]
    pub target: Target,
}

/// Words of `apply`.
#[derive(Debug, Clone, Args)]
pub struct ApplyArgs {
    /// A file, a folder, or - for standard input
    #[arg(short, long, required = true)]
    pub filename: Vec<String>,
    /// Which cluster
    #[command(flatten)]
    pub target: Target,
}

/// Words of `delete`.
#[derive(Debug, Clone, Args)]
pub struct DeleteArgs {
    /// kind/name, or kind and names
    pub what: Vec<String>,
    /// Delete what files name
    #[arg(short, long)]
    pub filename: Vec<String>,
    /// Label selector
    #[arg(short = 'l', long)]
    pub selector: Option<String>,
    /// Seconds that Pods are given to end
    #[arg(long)]
    pub grace_period: Option<u32>,
    /// Return at once, not when the objects are gone
    #[arg(long)]
    pub no_wait: bool,
    /// Which cluster
    #[command(flatten)]
    pub target: Target,
}

/// Words of `logs`.
#[derive(Debug, Clone, Args)]
pub struct LogsArgs {
    /// The Pod
    pub pod: String,
    /// The container, if there are several
    #[arg(short, long)]
    pub container: Option<String>,
    /// Go on with new lines
    #[arg(short, long)]
    pub follow: bool,
    /// The container before the last restart
    #[arg(short, long)]
    pub previous: bool,
    /// Only the last lines
    #[arg(long)]
    pub tail: Option<i64>,
    /// With times
    #[arg(long)]
    pub timestamps: bool,
    /// Which cluster
    #[command(flatten)]
    pub target: Target,
}

/// Words of `exec`.
#[derive(Debug, Clone, Args)]
pub struct ExecArgs {
    /// The Pod
    pub pod: String,
    /// The container, if there are several
    #[arg(short, long)]
    pub container: Option<String>,
    /// Pass standard input on
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Give the command a terminal
    #[arg(short, long)]
    pub tty: bool,
    /// Which cluster
    #[command(flatten)]
    pub target: Target,
    /// The command, after --
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

/// Words of `image`.
#[derive(Debug, Clone, Subcommand)]
pub enum ImageCommand {
    /// Fetch from a registry
    Pull {
        /// name:tag or name@digest
        reference: String,
        /// Where images come from
        #[command(flatten)]
        registries: RegistryArgs,
        /// Where the cluster's files are
        #[command(flatten)]
        data_dir: DataDir,
    },
    /// Take over a docker archive or an OCI layout
    Import {
        /// The archive or folder
        file: PathBuf,
        /// Where the cluster's files are
        #[command(flatten)]
        data_dir: DataDir,
    },
    /// List
    Ls {
        /// Where the cluster's files are
        #[command(flatten)]
        data_dir: DataDir,
    },
    /// Remove
    Rm {
        /// Name or id
        image: String,
        /// Where the cluster's files are
        #[command(flatten)]
        data_dir: DataDir,
    },
    /// Make an image of one layer, the same each time: of a folder, or of programs with the shared libraries that they need
    Build(BuildArgs),
}

/// Words of `image build`.
#[derive(Debug, Clone, Args)]
pub struct BuildArgs {
    /// The image's name
    #[arg(short, long)]
    pub tag: String,
    /// A folder that becomes the root, or programs: source, or source:target
    #[arg(required = true, value_name = "DIR|FILE")]
    pub sources: Vec<String>,
    /// Settings of a folder's image: the JSON of OCI's config section, with Paths for owners and modes
    #[arg(long, value_name = "FILE", conflicts_with = "entrypoint")]
    pub config: Option<PathBuf>,
    /// The command of its containers; the first file when left out
    #[arg(long)]
    pub entrypoint: Vec<String>,
    /// Write an OCI archive instead of putting the image among the node's
    #[arg(short, long, value_name = "ARCHIVE")]
    pub output: Option<PathBuf>,
    /// Where the cluster's files are
    #[command(flatten)]
    pub data_dir: DataDir,
}

/// Words of `snapshot`.
#[derive(Debug, Clone, Subcommand)]
pub enum SnapshotCommand {
    /// Save everything at one revision, checksummed; works while the cluster runs
    Save {
        /// The file; an older one is replaced
        file: PathBuf,
        /// Where the cluster's files are
        #[command(flatten)]
        data_dir: DataDir,
    },
    /// Make the store of a cluster that has none; refuses to overwrite one
    Restore {
        /// The file
        file: PathBuf,
        /// Where the cluster's files are
        #[command(flatten)]
        data_dir: DataDir,
    },
}

/// Words of `trace`.
#[derive(Debug, Clone, Args)]
pub struct TraceArgs {
    /// pod/NAME
    pub what: String,
    /// text or json
    #[arg(short, long, default_value = "text")]
    pub output: String,
    /// Which cluster
    #[command(flatten)]
    pub target: Target,
}

/// Words of `why`.
#[derive(Debug, Clone, Args)]
pub struct WhyArgs {
    /// pod/NAME
    pub what: String,
    /// text or json
    #[arg(short, long, default_value = "text")]
    pub output: String,
    /// Which cluster
    #[command(flatten)]
    pub target: Target,
}

/// Words of `sim`.
#[derive(Debug, Clone, Args)]
pub struct SimArgs {
    /// How many nodes
    #[arg(long, value_name = "N")]
    pub nodes: u32,
    /// Create so many plain Pods in the namespace, too
    #[arg(long, value_name = "M", default_value_t = 0)]
    pub pods: u32,
    /// What the nodes' names begin with
    #[arg(long, default_value = "hollow")]
    pub prefix: String,
    /// Zones that they are spread over
    #[arg(long, default_value_t = 3)]
    pub zones: u32,
    /// Processors of each
    #[arg(long, default_value_t = 4)]
    pub cpus: u32,
    /// Memory of each, GiB
    #[arg(long, default_value_t = 32)]
    pub memory: u32,
    /// Pods that each takes
    #[arg(long, default_value_t = 110)]
    pub pods_per_node: u32,
    /// Which cluster
    #[command(flatten)]
    pub target: Target,
}
