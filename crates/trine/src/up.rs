//! `trine up`: starts every plane in one process, each behind its published seam.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use trine_apiserver::{ApiServer, AuditConfig};
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::kube::{Api, Client};

use crate::cli::args::UpArgs;
use crate::identity::{self, Identity, Reservation};
use crate::layout::Layout;
use crate::once::once;
use crate::planes::{Plane, Planes};
use crate::registries::RegistryArgs;
use crate::storage::StoreArgs;
use crate::{builtin, daemon};

/// How long the node may take to become Ready before `up` gives up saying so.
const READY_DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// A running cluster of one node.
pub struct Cluster {
    /// Talks to its API server as the cluster's admin.
    pub client: Client,
    /// Its files.
    pub layout: Layout,
    /// Its names and ranges.
    pub identity: Identity,
    api: ApiServer,
    planes: Vec<Plane>,
    stop: CancellationToken,
    _lock: daemon::DaemonLock,
    _reservations: Vec<Reservation>,
}

impl Cluster {
    /// Starts all planes; returns before the node is Ready.
    ///
    /// # Errors
    /// If the data dir is in use, or the API server cannot start. The other planes are supervised.
    pub async fn start(
        layout: Layout,
        audit: AuditConfig,
        store: &StoreArgs,
        registries: &RegistryArgs,
    ) -> anyhow::Result<Self> {
        let lock = daemon::claim(&layout)?;
        let (mut identity, mut reservations) = Identity::claim(&layout)?;
        let node_ip = identity::node_ip()?;
        let stop = CancellationToken::new();
        let (api, port) = start_api(&layout, &mut identity, node_ip, audit, store).await?;
        reservations.push(port);
        write_private(&layout.kubeconfig(), &api.kubeconfig())?;
        tokio::spawn(keep_kubeconfig(layout.kubeconfig(), api.kubeconfigs()));
        let admin = Client::new(api.service("kubernetes-admin", &["system:masters"]), "default");
        let planes = Planes::new(layout.run().join("planes.json"), stop.clone());
        let mut cluster = Self {
            client: admin,
            layout,
            identity,
            api,
            planes: Vec::new(),
            stop,
            _lock: lock,
            _reservations: reservations,
        };
        builtin::write_network(&cluster.layout, &cluster.identity)?;
        cluster.start_node(&planes, node_ip, registries)?;
        cluster.start_control(&planes, node_ip, !store.embedded())?;
        builtin::apply_objects(&cluster.client).await?;
        Ok(cluster)
    }

    /// `shared`: other servers write to the same store, and one of them leads.
    fn start_control(&mut self, planes: &Planes, node_ip: IpAddr, shared: bool) -> anyhow::Result<()> {
        let me = shared.then(|| format!("{}_{}", self.identity.node, self.identity.instance));
        // Who leads is written by the admin: the names are Trine's own, and no role of upstream knows them.
        let elect = self.client.clone();
        let (clients, leader) = (self.controller_clients(), me.clone());
        let config = trine_controllers::Config {
            ca_pem: self.api.ca_pem().to_owned(),
            pod_cidr: self.identity.pod_cidr.clone(),
            node_prefix: builtin::NODE_PREFIX,
            signer: Some(trine_controllers::SigningKey { key_pem: self.api.ca_key_pem() }),
        };
        let admin = elect.clone();
        self.planes.push(planes.run("controllers", move |stop| {
            let (api, config) = (clients.clone(), config.clone());
            let work = |stop| trine_controllers::run(api, config, stop);
            once(admin.clone(), "trine-controllers", leader.clone(), stop, work)
        }));
        let (client, admin, leader) =
            (self.client_as("system:kube-scheduler", &[]), elect.clone(), me.clone());
        self.planes.push(planes.run("scheduler", move |stop| {
            let api = client.clone();
            let work = |stop| trine_scheduler::run(api, trine_scheduler::Config::default(), stop);
            once(admin.clone(), "trine-scheduler", leader.clone(), stop, work)
        }));
        let client = Client::new(self.api.accounts().service("kube-system", "csi-controllers"), "default");
        let leader = me;
        let config = trine_csi_controllers::Config {
            socket: self.layout.csi_socket(),
            node_name: None,
            tell_claims: true,
            create_driver_object: false,
        };
        self.planes.push(planes.run("csi-controllers", move |stop| {
            let (api, config) = (client.clone(), config.clone());
            let work = |stop| trine_csi_controllers::run(api, config, stop);
            once(elect.clone(), "trine-csi-controllers", leader.clone(), stop, work)
        }));
        let client = self.client_as("system:kube-proxy", &[]);
        let config = trine_proxy::Config {
            node_name: self.identity.node.clone(),
            instance: self.identity.instance.clone(),
            pod_cidr: self.identity.pod_cidr.parse().context("the Pod range")?,
            node_pod_cidr: None,
            service_cidr: self.identity.service_cidr.parse().context("the Service range")?,
            node_ips: vec![node_ip],
            netns: None,
        };
        self.planes
            .push(planes.run("proxy", move |stop| trine_proxy::run(client.clone(), config.clone(), stop)));
        Ok(())
    }

    fn start_node(
        &mut self,
        planes: &Planes,
        node_ip: IpAddr,
        registries: &RegistryArgs,
    ) -> anyhow::Result<()> {
        let config = cri_config(&self.layout, &self.identity, registries);
        self.planes.push(planes.run("cri", move |stop| trine_cri::serve(config.clone(), stop)));
        let config = csi_driver_config(&self.layout, &self.identity);
        self.planes.push(planes.run("csi-driver", move |stop| trine_csi_driver::serve(config.clone(), stop)));
        let user = format!("system:node:{}", self.identity.node);
        let client = self.client_as(&user, &["system:nodes"]);
        let config = kubelet_config(&self.layout, &self.identity, &self.api, node_ip)?;
        self.planes.push(
            planes.run("kubelet", move |stop| trine_kubelet::run(config.clone(), client.clone(), stop)),
        );
        Ok(())
    }

    /// The way to the API server as somebody, within this process.
    fn client_as(&self, user: &str, groups: &[&str]) -> Client {
        Client::new(self.api.service(user, groups), "default")
    }

    /// Each controller writes as its own ServiceAccount.
    fn controller_clients(&self) -> trine_controllers::Clients {
        let accounts = self.api.accounts();
        let account = move |name: &str| Client::new(accounts.service("kube-system", name), "default");
        trine_controllers::Clients::new(self.client_as("system:kube-controller-manager", &[]), account)
    }

    /// Waits until the node is Ready.
    ///
    /// # Errors
    /// If it is not after a minute, with its condition.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let since = Instant::now();
        let mut last = "not registered".to_owned();
        while since.elapsed() < READY_DEADLINE {
            if let Some(node) = nodes.get_opt(&self.identity.node).await? {
                let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
                match conditions.into_iter().find(|c| c.type_ == "Ready") {
                    Some(ready) if ready.status == "True" => {
                        daemon::record(&self.layout, true)?;
                        return Ok(());
                    }
                    Some(ready) => last = ready.message.unwrap_or_default(),
                    None => {}
                }
            }
            tokio::time::sleep(POLL).await;
        }
        anyhow::bail!("node {} is not Ready after {READY_DEADLINE:?}: {last}", self.identity.node)
    }

    /// The URL of the API server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.api.addr())
    }

    /// Ends all planes. Pods go on.
    pub async fn stop(self) {
        self.stop.cancel();
        for plane in self.planes {
            plane.ended().await;
        }
        self.api.stop().await;
        let _ = std::fs::remove_file(self.layout.pid_file());
    }
}

async fn start_api(
    layout: &Layout,
    identity: &mut Identity,
    node_ip: IpAddr,
    audit: AuditConfig,
    store: &StoreArgs,
) -> anyhow::Result<(ApiServer, Reservation)> {
    let store = store.open(layout).await?;
    let (port, held) = identity::free_port(identity.api_port)?;
    if port != identity.api_port {
        identity.api_port = port;
        identity.save(layout)?;
    }
    let config = trine_apiserver::Config {
        data_dir: layout.root().to_owned(),
        bind: SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        advertise: node_ip,
        service_cidr: identity.service_cidr.clone(),
        audit,
    };
    let api = trine_apiserver::start(config, store).await.context("the API server cannot start")?;
    Ok((api, held))
}

/// The runtime's settings for a data dir.
#[must_use]
pub fn cri_config(layout: &Layout, identity: &Identity, registries: &RegistryArgs) -> trine_cri::Config {
    trine_cri::Config {
        socket: layout.cri_socket(),
        state_dir: layout.cri_state(),
        images_dir: layout.images(),
        cni_conf_dir: layout.cni_conf(),
        cni_bin_dirs: vec![layout.cni_bin()],
        cni_state_dir: layout.cni_state(),
        instance: identity.instance.clone(),
        images: registries.options(layout),
        ..trine_cri::Config::default()
    }
}

/// The built-in driver's settings for a data dir.
#[must_use]
pub fn csi_driver_config(layout: &Layout, identity: &Identity) -> trine_csi_driver::Config {
    trine_csi_driver::Config {
        socket: layout.csi_socket(),
        registration_dir: Some(layout.plugins_registry()),
        pool_dir: layout.pool(),
        node_id: identity.node.clone(),
        max_volumes: trine_csi_driver::DEFAULT_MAX_VOLUMES,
        pool_bytes: None,
    }
}

fn kubelet_config(
    layout: &Layout,
    identity: &Identity,
    api: &ApiServer,
    node_ip: IpAddr,
) -> anyhow::Result<trine_kubelet::Config> {
    let names = [identity.node.clone(), node_ip.to_string(), "127.0.0.1".to_owned()];
    let user = format!("system:node:{}", identity.node);
    let mut serving = api.issue_rotating(&user, &["system:nodes"], &names)?;
    let first = serving.borrow_and_update().clone();
    let (sender, serving_next) = watch::channel((first.cert_pem.clone(), first.key_pem.clone()));
    tokio::spawn(async move {
        while serving.changed().await.is_ok() {
            let next = serving.borrow_and_update().clone();
            if sender.send((next.cert_pem, next.key_pem)).is_err() {
                return;
            }
        }
    });
    Ok(trine_kubelet::Config {
        node_name: identity.node.clone(),
        node_ip,
        root: layout.kubelet(),
        log_root: layout.pod_logs(),
        cri_socket: layout.cri_socket(),
        serving_cert_pem: first.cert_pem,
        serving_key_pem: first.key_pem,
        serving_next: Some(serving_next),
        client_ca_pem: api.ca_pem().to_owned(),
        port: trine_kubelet::config::DEFAULT_PORT,
        cluster_dns: Vec::new(),
        cluster_domain: "cluster.local".to_owned(),
        pod_cidr: None,
        resolv_conf: PathBuf::from("/etc/resolv.conf"),
        cgroup_parent: String::new(),
        node_labels: Vec::new(),
    })
}

/// Writes the kubeconfig anew whenever the admin's certificate is exchanged.
async fn keep_kubeconfig(path: PathBuf, mut texts: watch::Receiver<String>) {
    while texts.changed().await.is_ok() {
        let text = texts.borrow_and_update().clone();
        if let Err(error) = write_private(&path, &text) {
            tracing::error!(%error, "cannot write {}", path.display());
        }
    }
}

fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let fresh = path.with_extension("new");
    let mut file =
        std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&fresh, path)?;
    Ok(())
}

/// The audit log that the words ask for.
fn audit(args: &UpArgs) -> AuditConfig {
    AuditConfig { log: args.audit_log.clone(), policy: args.audit_policy.clone() }
}

/// `trine up`, in the foreground: until SIGINT or SIGTERM.
///
/// # Errors
/// If the cluster cannot start.
pub async fn run(args: &UpArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.data_dir.data_dir)?;
    let since = Instant::now();
    let cluster = Cluster::start(layout, audit(args), &args.store, &args.registries).await?;
    eprintln!("API server {} after {:.2?}", cluster.url(), since.elapsed());
    match cluster.ready().await {
        Ok(()) => eprintln!("node {} Ready after {:.2?}", cluster.identity.node, since.elapsed()),
        Err(error) => tracing::error!("{error:#}"),
    }
    eprintln!("kubeconfig: {}", cluster.layout.kubeconfig().display());
    ended().await?;
    let root = cluster.layout.root().display().to_string();
    cluster.stop().await;
    eprintln!("Trine has stopped; its Pods run on. `trine down --data-dir {root}` stops them.");
    Ok(())
}

/// Waits for SIGINT or SIGTERM.
///
/// # Errors
/// If the process cannot listen for signals.
pub async fn ended() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// `trine up --detach`: starts the daemon as a process of its own and returns when the node is Ready.
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
    command.args(args.registries.words());
    // The daemon's own folder is another one.
    for (word, file) in [("--audit-log", &args.audit_log), ("--audit-policy", &args.audit_policy)] {
        if let Some(file) = file {
            command.arg(word).arg(std::path::absolute(file)?);
        }
    }
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
            eprintln!(
                "node Ready after {:.2?}; kubeconfig: {}",
                since.elapsed(),
                layout.kubeconfig().display()
            );
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(POLL);
    }
    anyhow::bail!("the node is not Ready after {READY_DEADLINE:?}; see {}", log_path.display())
}
