//! The control plane of a cluster: API server, controllers, scheduler. In `up` beside a node, in `server` alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use trine_apiserver::ApiServer;
use trine_typed::kube::Client;
use trine_typed::mirror::Mirrors;

use crate::builtin;
use crate::cli::api_args::ApiArgs;
use crate::identity::{self, Identity, Reservation};
use crate::layout::Layout;
use crate::once::once;
use crate::planes::{Plane, Planes};
use crate::settings::Settings;
use crate::storage::StoreArgs;

/// A running control plane.
pub struct Control {
    /// The API server.
    pub api: ApiServer,
    /// Talks to it as the cluster's admin.
    pub admin: Client,
    planes: Vec<Plane>,
    _port: Reservation,
}

/// What a control plane is started with.
pub struct Start<'a> {
    /// Its files.
    pub layout: &'a Layout,
    /// Where Pods and nodes reach it.
    pub advertise: IpAddr,
    /// What it notes and serves.
    pub api: &'a ApiArgs,
    /// Where its objects are.
    pub store: &'a StoreArgs,
}

impl Control {
    /// Starts the API server, then the rest. The API answers when this returns; what is built in is not there yet: see
    /// [`Control::publish`].
    ///
    /// # Errors
    /// If the API server cannot start.
    pub async fn start(start: Start<'_>, identity: &mut Identity, planes: &Planes) -> anyhow::Result<Self> {
        let shared = !start.store.embedded();
        let layout = start.layout;
        let (api, port) = start_api(start, identity).await?;
        write_private(&layout.kubeconfig(), &api.kubeconfig())?;
        tokio::spawn(keep_kubeconfig(layout.kubeconfig(), api.kubeconfigs()));
        let admin = Client::new(api.service("kubernetes-admin", &["system:masters"]), "default");
        let mut control = Self { api, admin, planes: Vec::new(), _port: port };
        // Other servers write to the same store, and one of them leads.
        let me = shared.then(|| format!("{}_{}", identity.node, identity.instance));
        // Controllers and scheduler read what they know of the cluster once.
        let read = Mirrors::from(control.client_as("system:kube-controller-manager", &[]));
        control.start_controllers(identity, planes, read.clone(), me.clone());
        control.start_scheduler(planes, read, me);
        Ok(control)
    }

    fn start_controllers(
        &mut self,
        identity: &Identity,
        planes: &Planes,
        read: Mirrors,
        leader: Option<String>,
    ) {
        // Who leads is written by the admin: the names are Trine's own, and no role of upstream knows them.
        let (clients, admin) = (self.controller_clients(read), self.admin.clone());
        let config = trine_controllers::Config {
            ca_pem: self.api.ca_pem().to_owned(),
            pod_cidr: identity.pod_cidr.clone(),
            node_prefix: builtin::NODE_PREFIX,
            signer: Some(trine_controllers::SigningKey { key_pem: self.api.ca_key_pem() }),
        };
        self.planes.push(planes.run("controllers", move |stop| {
            let (api, config) = (clients.clone(), config.clone());
            let work = |stop| trine_controllers::run(api, config, stop);
            once(admin.clone(), "trine-controllers", leader.clone(), stop, work)
        }));
    }

    fn start_scheduler(&mut self, planes: &Planes, read: Mirrors, leader: Option<String>) {
        let (client, admin) = (self.client_as("system:kube-scheduler", &[]), self.admin.clone());
        self.planes.push(planes.run("scheduler", move |stop| {
            let (api, read) = (client.clone(), read.clone());
            let work = |stop| trine_scheduler::run(api, read, trine_scheduler::Config::default(), stop);
            once(admin.clone(), "trine-scheduler", leader.clone(), stop, work)
        }));
    }

    /// The way to the API server as somebody, within this process.
    #[must_use]
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Client {
        Client::new(self.api.service(user, groups), "default")
    }

    /// The way to the API server as a ServiceAccount of `kube-system`, within this process.
    #[must_use]
    pub fn client_of(&self, account: &str) -> Client {
        Client::new(self.api.accounts().service("kube-system", account), "default")
    }

    /// Each controller writes as its own ServiceAccount.
    fn controller_clients(&self, read: Mirrors) -> trine_controllers::Clients {
        let accounts = self.api.accounts();
        let account = move |name: &str| Client::new(accounts.service("kube-system", name), "default");
        trine_controllers::Clients::new(read, account)
    }

    /// Creates what is built in, and tells nodes what they must know.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn publish(&self, settings: &Settings) -> anyhow::Result<()> {
        builtin::apply_objects(&self.admin, settings).await
    }

    /// The URL of the API server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.api.addr())
    }

    /// Ends it; to be called when its planes were told to stop.
    pub async fn stop(self, stop: &CancellationToken) {
        stop.cancel();
        for plane in self.planes {
            plane.ended().await;
        }
        self.api.stop().await;
    }
}

async fn start_api(start: Start<'_>, identity: &mut Identity) -> anyhow::Result<(ApiServer, Reservation)> {
    let store = start.store.open(start.layout).await?;
    let (port, held) = identity::free_port(identity.api_port)?;
    if port != identity.api_port {
        identity.api_port = port;
        identity.save(start.layout)?;
    }
    let config = trine_apiserver::Config {
        data_dir: start.layout.root().to_owned(),
        bind: SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        advertise: start.advertise,
        service_cidr: identity.service_cidr.clone(),
        audit: start.api.audit(),
        runtime_config: start.api.runtime_config.clone().unwrap_or_default(),
    };
    let api = trine_apiserver::start(config, store).await.context("the API server cannot start")?;
    Ok((api, held))
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

/// Writes a file that only its owner reads, whole or not at all.
///
/// # Errors
/// What the file system says.
pub fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let fresh = path.with_extension("new");
    let mut file =
        std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&fresh, path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// Until SIGINT or SIGTERM.
///
/// # Errors
/// If signals cannot be waited for.
pub async fn ended() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
