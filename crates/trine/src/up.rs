//! `trine up`: a control plane and a node in one process, and further nodes of this machine beside it.

use std::net::IpAddr;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use trine_apiserver::ApiServer;
use trine_typed::k8s_openapi::api::core::v1::Node as NodeObject;
use trine_typed::kube::{Api, Client};

use crate::cli::api_args::ApiArgs;
use crate::cli::args::UpArgs;
use crate::cli::node_args::NetworkArgs;
use crate::control::{Control, Start, ended};
use crate::families::NodeIps;
use crate::identity::{Identity, Reservation};
use crate::layout::Layout;
use crate::node::{self, Node, Pair, Ways};
use crate::node_words::NodeWords;
use crate::planes::{Plane, Planes};
use crate::settings::Settings;
use crate::storage::StoreArgs;
use crate::{builtin, daemon, nodes};

/// How long the nodes may take to become Ready before `up` gives up saying so.
const READY_DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// A running cluster on this machine.
pub struct Cluster {
    /// Talks to its API server as the cluster's admin.
    pub client: Client,
    /// Its files.
    pub layout: Layout,
    /// Its names and ranges.
    pub identity: Identity,
    control: Control,
    planes: Vec<Plane>,
    stop: CancellationToken,
    _lock: daemon::DaemonLock,
    _reservations: Vec<Reservation>,
}

/// What a cluster is started with.
#[derive(Default)]
pub struct Wanted {
    /// What the API server notes and serves.
    pub api: ApiArgs,
    /// Where its objects are.
    pub store: StoreArgs,
    /// How the nodes run.
    pub words: NodeWords,
    /// How many nodes; as many as last time if none is said.
    pub nodes: Option<u8>,
    /// Over how many links; as last time if none is said.
    pub node_links: Option<u8>,
    /// Which addresses there are and how other nodes are reached, as far as it is said.
    pub network: NetworkArgs,
}

impl Cluster {
    /// Starts all planes; returns before the nodes are Ready.
    ///
    /// # Errors
    /// If the data dir is in use, or the API server cannot start. The other planes are supervised.
    pub async fn start(layout: Layout, wanted: Wanted) -> anyhow::Result<Self> {
        let lock = daemon::claim(&layout)?;
        let (mut identity, mut reservations) = Identity::claim(&layout)?;
        identity.set_network(&layout, &wanted.network)?;
        let count = nodes::count(identity.nodes, wanted.nodes)?;
        let links = nodes::links(identity.node_links, wanted.node_links)?;
        if (count, links) != (identity.nodes, identity.node_links) {
            reservations.extend(identity.set_nodes(&layout, count, links)?);
        }
        let ips = match nodes::network::prepare(&identity)? {
            Some(own) => own.into(),
            None => NodeIps::of_machine()?,
        };
        let stop = CancellationToken::new();
        let planes = Planes::new(layout.run().join("planes.json"), stop.clone());
        let start = Start { layout: &layout, advertise: ips.primary, api: &wanted.api, store: &wanted.store };
        let control = Control::start(start, &mut identity, &planes).await?;
        let settings = Settings::of(&identity)?;
        let mut own = own_node(&layout, &identity, &control.api, ips, settings.clone())?;
        own.words = wanted.words.clone();
        let user = format!("system:node:{}", identity.node);
        let ways = Ways {
            kubelet: control.client_as(&user, &["system:nodes"]),
            network: control.client_as("system:kube-proxy", &[]),
            policies: control.client_of("network-policy"),
            names: control.client_of("kube-dns"),
            volumes: control.client_of("csi-controllers"),
        };
        let mut started = node::start(&planes, own, ways)?;
        control.publish(&settings).await?;
        let server = nodes::Server {
            url: control.url(),
            admin: control.admin.clone(),
            ca_pem: control.api.ca_pem().to_owned(),
            words: wanted.words,
        };
        started.extend(nodes::start(&planes, &layout, &identity, &server));
        let client = control.admin.clone();
        Ok(Self {
            client,
            layout,
            identity,
            control,
            planes: started,
            stop,
            _lock: lock,
            _reservations: reservations,
        })
    }

    /// Waits until all nodes of this machine are Ready.
    ///
    /// # Errors
    /// If they are not after a minute, with the condition of the first that is not.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let since = Instant::now();
        let names = std::iter::once(self.identity.node.clone());
        for name in names.chain(nodes::members(&self.identity).into_iter().map(|m| m.name)) {
            self.node_ready(&name, since).await?;
        }
        daemon::record(&self.layout, true)
    }

    async fn node_ready(&self, name: &str, since: Instant) -> anyhow::Result<()> {
        let nodes: Api<NodeObject> = Api::all(self.client.clone());
        let mut last = "not registered".to_owned();
        while since.elapsed() < READY_DEADLINE {
            if let Some(node) = nodes.get_opt(name).await? {
                let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
                match conditions.into_iter().find(|c| c.type_ == "Ready") {
                    Some(ready) if ready.status == "True" => return Ok(()),
                    Some(ready) => last = ready.message.unwrap_or_default(),
                    None => {}
                }
            }
            tokio::time::sleep(POLL).await;
        }
        anyhow::bail!("node {name} is not Ready after {READY_DEADLINE:?}: {last}")
    }

    /// The URL of the API server.
    #[must_use]
    pub fn url(&self) -> String {
        self.control.url()
    }

    /// Ends all planes. Pods go on.
    pub async fn stop(self) {
        self.stop.cancel();
        for plane in self.planes {
            plane.ended().await;
        }
        self.control.stop(&self.stop).await;
        let _ = std::fs::remove_file(self.layout.pid_file());
    }
}

/// The node of this very process. It has the first Pod range unless it was given another.
fn own_node(
    layout: &Layout,
    identity: &Identity,
    api: &ApiServer,
    ips: NodeIps,
    settings: Settings,
) -> anyhow::Result<Node> {
    let mut identity = identity.clone();
    if identity.node_range.is_none() {
        identity.node_range = Some(builtin::first_node_range(&settings.pod_cidr).to_string());
    }
    let serving = serving(api, &identity.node, ips.primary)?;
    Ok(Node {
        layout: layout.clone(),
        identity,
        ips: ips.within(&settings.pod_cidr),
        settings,
        serving,
        ca_pem: api.ca_pem().to_owned(),
        words: NodeWords::default(),
    })
}

/// What its kubelet shows, and shows next.
fn serving(api: &ApiServer, node: &str, ip: IpAddr) -> anyhow::Result<watch::Receiver<Pair>> {
    let names = [node.to_owned(), ip.to_string(), "127.0.0.1".to_owned()];
    let mut issued = api.issue_rotating(&format!("system:node:{node}"), &["system:nodes"], &names)?;
    let first = issued.borrow_and_update().clone();
    let (sender, serving) = watch::channel((first.cert_pem, first.key_pem));
    tokio::spawn(async move {
        while issued.changed().await.is_ok() {
            let next = issued.borrow_and_update().clone();
            if sender.send((next.cert_pem, next.key_pem)).is_err() {
                return;
            }
        }
    });
    Ok(serving)
}

/// `trine up`, in the foreground: until SIGINT or SIGTERM.
///
/// # Errors
/// If the cluster cannot start.
pub async fn run(args: &UpArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.data_dir.data_dir)?;
    let since = Instant::now();
    let (store, words) = (args.store.clone(), args.node.clone());
    let (nodes, node_links, network) = (args.nodes, args.node_links, args.network.clone());
    let wanted = Wanted { api: args.api.clone(), store, words, nodes, node_links, network };
    let cluster = Cluster::start(layout, wanted).await?;
    eprintln!("API server {} after {:.2?}", cluster.url(), since.elapsed());
    match cluster.ready().await {
        Ok(()) => eprintln!("{} Ready after {:.2?}", nodes::words(&cluster.identity), since.elapsed()),
        Err(error) => tracing::error!("{error:#}"),
    }
    eprintln!("kubeconfig: {}", cluster.layout.kubeconfig().display());
    ended().await?;
    let root = cluster.layout.root().display().to_string();
    cluster.stop().await;
    eprintln!("Trine has stopped; its Pods run on. `trine down --data-dir {root}` stops them.");
    Ok(())
}

/// `trine up --detach`: starts the daemon as a process of its own and returns when the nodes are Ready.
///
/// # Errors
/// If the daemon ends early (with the end of its log) or the node does not become Ready.
pub fn detach(args: &UpArgs) -> anyhow::Result<ExitCode> {
    use std::os::unix::process::CommandExt;
    let layout = Layout::new(&args.data_dir.data_dir)?;
    if let Some(record) = daemon::running(&layout) {
        eprintln!("Trine already runs as process {} on {}", record.process.pid, layout.root().display());
        return Ok(ExitCode::SUCCESS);
    }
    let log_path = layout.daemon_log();
    std::fs::create_dir_all(log_path.parent().context("the log has a folder")?)?;
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&log_path)?;
    let since = Instant::now();
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("up").arg("--data-dir").arg(layout.root()).args(args.store.words());
    command.args(args.node.words()).args(args.network.words());
    if let Some(nodes) = args.nodes {
        command.arg("--nodes").arg(nodes.to_string());
    }
    if let Some(links) = args.node_links {
        command.arg("--node-links").arg(links.to_string());
    }
    command.args(args.api.words()?);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).current_dir("/");
    let mut child = command.spawn().context("cannot start the daemon")?;
    while since.elapsed() < READY_DEADLINE {
        if let Some(status) = child.try_wait()? {
            let text = std::fs::read_to_string(&log_path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(10)..].join("\n");
            anyhow::bail!("the daemon ended with {status}; {} says:\n{tail}", log_path.display());
        }
        let ours = daemon::running(&layout).filter(|r| u32::try_from(r.process.pid) == Ok(child.id()));
        if ours.is_some_and(|r| r.ready) {
            let nodes = Identity::load(&layout)?.map(|identity| nodes::words(&identity)).unwrap_or_default();
            eprintln!(
                "{nodes} Ready after {:.2?}; kubeconfig: {}",
                since.elapsed(),
                layout.kubeconfig().display()
            );
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(POLL);
    }
    anyhow::bail!("the node is not Ready after {READY_DEADLINE:?}; see {}", log_path.display())
}
