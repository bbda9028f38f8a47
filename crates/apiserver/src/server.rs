//! A running API server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trine_store::{Store, StoreError};

use crate::bootstrap::bootstrap;
use crate::claims;
use crate::http::route::Server;
use crate::http::serve::{InProcess, ServeError, accept, acceptor, bind};
use crate::http::stream::Kubelets;
use crate::kinds::Allocators;
use crate::metrics::Metrics;
use crate::openapi::OpenApi;
use crate::pki::{Authority, Identity, PkiError};
use crate::registry::Registry;
use crate::status::ApiError;
use crate::user::User;

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
    /// The range for Services is none.
    #[error("api: {0:?} is no range for Services")]
    ServiceRange(String),
}

/// A running API server.
pub struct ApiServer {
    server: Arc<Server>,
    authority: Authority,
    admin: Identity,
    advertised: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Starts the server: certificates, objects, the first namespaces, then the listener.
///
/// # Errors
/// [`StartError`].
pub async fn start(config: Config, store: Arc<dyn Store>) -> Result<ApiServer, StartError> {
    let allocators = Allocators::new(&config.service_cidr)
        .ok_or_else(|| StartError::ServiceRange(config.service_cidr.clone()))?;
    let authority = Authority::load_or_make(&config.data_dir.join("pki"))?;
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
    let serving = authority.issue("kube-apiserver", &[], &names)?;
    let admin = authority.issue("kubernetes-admin", &["system:masters"], &[])?;
    let to_kubelets = authority.issue("kube-apiserver-kubelet-client", &["system:masters"], &[])?;
    let acceptor = acceptor(&serving, authority.ca_pem())?;
    let listener = bind(config.bind).await?;
    let port = listener.local_addr().map_or(config.bind.port(), |a| a.port());
    let advertised = SocketAddr::new(config.advertise, port);
    let metrics = Metrics::default();
    let registry = Arc::new(Registry::start(Arc::new(metrics.timed(store)), allocators).await?);
    bootstrap(&registry, advertised).await?;
    let stop = CancellationToken::new();
    let server = Arc::new(Server {
        registry,
        openapi: OpenApi::new(),
        kubelets: Kubelets::new(&to_kubelets, authority.ca_pem())?,
        address: advertised.to_string(),
        metrics,
        stop: stop.clone(),
    });
    if server.registry.shared() {
        tokio::spawn(claims::follow(Arc::clone(&server.registry), stop.clone()));
    }
    let task = tokio::spawn(accept(listener, acceptor, Arc::clone(&server), stop.clone()));
    Ok(ApiServer { server, authority, admin, advertised, stop, task })
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

    /// Signs a certificate; gives it with its key, both PEM.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn issue(&self, cn: &str, orgs: &[&str], names: &[String]) -> Result<(String, String), PkiError> {
        let identity = self.authority.issue(cn, orgs, names)?;
        Ok((identity.cert_pem, identity.key_pem))
    }

    /// The server as a tower service of one user, for clients in this process.
    #[must_use]
    pub fn service(&self, user: &str, groups: &[&str]) -> InProcess {
        InProcess::new(Arc::clone(&self.server), User::new(user, groups))
    }

    /// A kubeconfig of the cluster's admin, with its certificates in it.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let encode = |text: &str| STANDARD.encode(text);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: trine\nclusters:\n- name: trine\n  cluster:\n    server: \
             https://{}\n    certificate-authority-data: {}\nusers:\n- name: admin\n  user:\n    \
             client-certificate-data: {}\n    client-key-data: {}\ncontexts:\n- name: trine\n  context: {{cluster: \
             trine, user: admin}}\n",
            self.advertised,
            encode(self.authority.ca_pem()),
            encode(&self.admin.cert_pem),
            encode(&self.admin.key_pem),
        )
    }

    /// Ends watches and connections.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
        self.server.registry.cache().close();
    }
}
