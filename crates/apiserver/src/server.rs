//! A running API server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trine_store::{Store, StoreError};

use crate::access::audit::{AuditError, Auditor};
use crate::access::gate::Gate;
use crate::access::rbac::reconcile::reconcile;
use crate::access::token::{Tokens, keys::Key};
use crate::admission::policies::typed;
use crate::aggregation::register::register;
use crate::aggregation::{self, Aggregation};
use crate::bootstrap::{FRONT_PROXY, bootstrap};
use crate::claims;
use crate::custom::establish;
use crate::http::route::Server;
use crate::http::serve::{InProcess, ServeError, accept, acceptor, bind};
use crate::http::stream::Kubelets;
use crate::kinds::Allocators;
use crate::metrics::Metrics;
use crate::openapi::OpenApi;
use crate::pki::{Authority, Identity, PkiError};
use crate::protection;
use crate::registry::{Issuing, Registry};
use crate::rotation::{LIFETIME, Rotation};
use crate::runtime_config::RuntimeConfig;
use crate::service_addresses;
use crate::status::ApiError;
use crate::user::User;

/// Who makes tokens of ServiceAccounts; kubeadm's name.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Certificates lie in `pki/` below it.
    pub data_dir: PathBuf,
    /// Where to listen; port 0 takes any.
    pub bind: SocketAddr,
    /// The address at which Pods and nodes reach the server.
    pub advertise: IpAddr,
    /// Services' addresses are given from it, `10.96.0.0/16`.
    pub service_cidr: String,
    /// Where and what is noted of requests.
    pub audit: AuditConfig,
    /// Which versions are served that are off by default.
    pub runtime_config: RuntimeConfig,
}

/// The audit log. Default: none.
#[derive(Debug, Clone, Default)]
pub struct AuditConfig {
    /// The file to which notes are added; `None` for no notes.
    pub log: Option<PathBuf>,
    /// What is noted (`audit.k8s.io/v1` Policy); without it who, what and when of everything.
    pub policy: Option<PathBuf>,
}

/// Why the API server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// It cannot listen.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The store does not answer.
    #[error("api: the store cannot be read")]
    Store(#[from] StoreError),
    /// The first objects cannot be written.
    #[error("api: the first objects cannot be written")]
    Bootstrap(#[from] ApiError),
    /// There is no audit log.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The range for Services is none.
    #[error("api: {0:?} is no range for Services")]
    ServiceRange(String),
}

/// A running API server.
pub struct ApiServer {
    server: Arc<Server>,
    authority: Arc<Authority>,
    rotation: Arc<Rotation>,
    admin: watch::Receiver<Identity>,
    advertised: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
    background: TaskTracker,
}

/// Gives clients in this process the ways of ServiceAccounts.
#[derive(Clone)]
pub struct Accounts {
    server: Arc<Server>,
}

impl Accounts {
    /// The server as a tower service of a ServiceAccount, which need not exist as an object.
    #[must_use]
    pub fn service(&self, namespace: &str, name: &str) -> InProcess {
        InProcess::new(Arc::clone(&self.server), User::account(namespace, name, ""))
    }
}

/// Starts the server: certificates, objects, the first namespaces, then the listener.
///
/// # Errors
/// [`StartError`].
pub async fn start(config: Config, store: Arc<dyn Store>) -> Result<ApiServer, StartError> {
    let allocators = Allocators::new(&config.service_cidr)
        .ok_or_else(|| StartError::ServiceRange(config.service_cidr.clone()))?;
    let authority = Arc::new(Authority::load_or_make(&config.data_dir.join("pki"))?);
    let first = allocators.first().to_string();
    let names: Vec<String> = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
        "::1",
        &first,
        &config.advertise.to_string(),
    ]
    .map(str::to_owned)
    .to_vec();
    let rotation = Arc::new(Rotation::new(Arc::clone(&authority), LIFETIME));
    let serving = rotation.keep("kube-apiserver", &[], &names)?;
    let admin = rotation.keep("kubernetes-admin", &["system:masters"], &[])?;
    let to_kubelets = rotation.keep("kube-apiserver-kubelet-client", &["system:masters"], &[])?;
    let front = Arc::new(Authority::of_front_proxy(&config.data_dir.join("pki"))?);
    let front_rotation = Arc::new(Rotation::new(Arc::clone(&front), LIFETIME));
    let as_front = front_rotation.keep(FRONT_PROXY, &[], &[])?;
    let acceptor = acceptor(serving, authority.ca_pem())?;
    let listener = bind(config.bind).await?;
    let port = listener.local_addr().map_or(config.bind.port(), |a| a.port());
    let advertised = SocketAddr::new(config.advertise, port);
    let key = Key::load_or_make(&config.data_dir.join("pki"))?;
    let tokens = Arc::new(Tokens::new(key, ISSUER));
    let issuing = Issuing {
        tokens: Arc::clone(&tokens),
        ca_pem: authority.ca_pem().to_owned(),
        front_proxy_pem: front.ca_pem().to_owned(),
    };
    let metrics = Metrics::default();
    let registry =
        Registry::start(Arc::new(metrics.timed(store)), allocators, config.runtime_config.clone()).await?;
    let registry = Arc::new(registry.with_tokens(issuing));
    bootstrap(&registry, advertised).await?;
    reconcile(&registry).await?;
    let audit = &config.audit;
    let auditor = audit.log.as_ref().map(|log| Auditor::open(log, audit.policy.as_deref())).transpose()?;
    let stop = CancellationToken::new();
    // What holds on to the store has to be done before somebody else opens it.
    let background = TaskTracker::new();
    establish(&registry, &background, stop.clone()).await?;
    typed::follow(&registry, &background, stop.clone())?;
    let aggregation = Arc::new(Aggregation::start(Arc::clone(&registry), as_front)?);
    let server = Arc::new(Server {
        aggregation: Arc::clone(&aggregation),
        gate: Gate::new(Arc::clone(&registry), tokens, auditor),
        registry,
        openapi: OpenApi::new(),
        kubelets: Kubelets::new(to_kubelets, authority.ca_pem())?,
        address: advertised.to_string(),
        metrics,
        stop: stop.clone(),
    });
    if server.registry.shared() {
        background.spawn(claims::follow(Arc::clone(&server.registry), stop.clone()));
    }
    for rotation in [&rotation, &front_rotation] {
        tokio::spawn(Arc::clone(rotation).run(stop.clone()));
    }
    // Their first objects together, so that the disk is waited for once.
    let registry = || Arc::clone(&server.registry);
    let (services, addresses, flows) = tokio::try_join!(
        register(registry(), stop.clone()),
        service_addresses::follow(registry(), stop.clone()),
        protection::follow(registry(), stop.clone()),
    )?;
    background.spawn(services);
    background.spawn(addresses);
    background.spawn(flows);
    background.spawn(aggregation::follow(aggregation, stop.clone()));
    background.close();
    let task = tokio::spawn(accept(listener, acceptor, Arc::clone(&server), stop.clone()));
    Ok(ApiServer { server, authority, rotation, admin, advertised, stop, task, background })
}

impl ApiServer {
    /// Where it is reached.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.advertised
    }

    /// The authority's certificate, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.authority.ca_pem()
    }

    /// The authority's key, PEM, for those who sign in its name.
    #[must_use]
    pub fn ca_key_pem(&self) -> String {
        self.authority.key_pem()
    }

    /// Signs a certificate; gives it with its key, both PEM.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn issue(&self, cn: &str, orgs: &[&str], names: &[String]) -> Result<(String, String), PkiError> {
        let identity = self.authority.issue(cn, orgs, names)?;
        Ok((identity.cert_pem, identity.key_pem))
    }

    /// Signs a certificate, and the next ones before each ends, as long as the receiver is looked at.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn issue_rotating(
        &self,
        cn: &str,
        orgs: &[&str],
        names: &[String],
    ) -> Result<watch::Receiver<Identity>, PkiError> {
        self.rotation.keep(cn, orgs, names)
    }

    /// [`ApiServer::kubeconfig`], and the next ones: the admin's certificate is exchanged before it ends.
    #[must_use]
    pub fn kubeconfigs(&self) -> watch::Receiver<String> {
        let (ca_pem, advertised, mut admin) =
            (self.authority.ca_pem().to_owned(), self.advertised, self.admin.clone());
        let first = kubeconfig(&ca_pem, advertised, &admin.borrow_and_update());
        let (sender, receiver) = watch::channel(first);
        tokio::spawn(async move {
            while admin.changed().await.is_ok() {
                let next = kubeconfig(&ca_pem, advertised, &admin.borrow_and_update());
                if sender.send(next).is_err() {
                    return;
                }
            }
        });
        receiver
    }

    /// The server as a tower service of one user, for clients in this process.
    #[must_use]
    pub fn service(&self, user: &str, groups: &[&str]) -> InProcess {
        InProcess::new(Arc::clone(&self.server), User::new(user, groups))
    }

    /// The server as ServiceAccounts' tower services, for clients in this process.
    #[must_use]
    pub fn accounts(&self) -> Accounts {
        Accounts { server: Arc::clone(&self.server) }
    }

    /// A kubeconfig of the cluster's admin, with its certificates in it.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        kubeconfig(self.authority.ca_pem(), self.advertised, &self.admin.borrow())
    }

    /// Ends watches and connections.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
        self.background.wait().await;
        self.server.registry.cache().close();
    }
}

fn kubeconfig(ca_pem: &str, server: SocketAddr, admin: &Identity) -> String {
    let encode = |text: &str| STANDARD.encode(text);
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: trine\nclusters:\n- name: trine\n  cluster:\n    server: \
         https://{server}\n    certificate-authority-data: {}\nusers:\n- name: admin\n  user:\n    \
         client-certificate-data: {}\n    client-key-data: {}\ncontexts:\n- name: trine\n  context: {{cluster: trine, \
         user: admin}}\n",
        encode(ca_pem),
        encode(&admin.cert_pem),
        encode(&admin.key_pem),
    )
}
