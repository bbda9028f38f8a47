//! The API server and its controllers in this process, reached over TLS like any other: what needs no node.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use trine_apiserver::ApiServer;
use trine_store::redb::{Limits, RedbStore};
use trine_typed::kube::Client;

/// A running API server in a folder of its own; both are gone when it is dropped.
pub struct Api {
    server: Option<ApiServer>,
    runtime: Runtime,
    stop: CancellationToken,
    kubeconfig: PathBuf,
    dir: tempfile::TempDir,
}

impl Api {
    /// Starts one.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("trine-api-").tempdir().expect("a temporary folder");
        let runtime = Runtime::new().expect("a runtime");
        let stop = CancellationToken::new();
        let server = runtime.block_on(serve(dir.path(), stop.clone()));
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig()).expect("the kubeconfig is written");
        Self { server: Some(server), runtime, stop, kubeconfig, dir }
    }

    /// The admin's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client of the admin, over TLS.
    ///
    /// # Panics
    /// If none can be made.
    #[must_use]
    pub fn client(&self) -> Client {
        // Several providers may be linked into a test.
        let _ = rustls::crypto::ring::default_provider().install_default();
        self.run(trine_typed::client::from_kubeconfig(&self.kubeconfig)).expect("a client")
    }

    /// Runs something to its end.
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// A folder that goes with the server.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

async fn serve(dir: &Path, stop: CancellationToken) -> ApiServer {
    let store = RedbStore::open(&dir.join("store.redb"), Limits::default()).expect("a store");
    let config = trine_apiserver::Config {
        data_dir: dir.to_owned(),
        bind: ([127, 0, 0, 1], 0).into(),
        advertise: [127, 0, 0, 1].into(),
        service_cidr: "10.96.0.0/16".to_owned(),
        audit: trine_apiserver::AuditConfig::default(),
        runtime_config: trine_apiserver::RuntimeConfig::default(),
    };
    let server = trine_apiserver::start(config, Arc::new(store)).await.expect("the API server starts");
    let accounts = server.accounts();
    let manager = server.service("system:kube-controller-manager", &[]);
    let clients = trine_controllers::Clients::new(Client::new(manager, "default"), move |name: &str| {
        Client::new(accounts.service("kube-system", name), "default")
    });
    let config = trine_controllers::Config {
        ca_pem: server.ca_pem().to_owned(),
        pod_cidr: "10.244.0.0/16".to_owned(),
        node_prefix: (24, 64),
        signer: Some(trine_controllers::SigningKey { key_pem: server.ca_key_pem() }),
    };
    tokio::spawn(trine_controllers::run(clients, config, stop));
    server
}

impl Drop for Api {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }
}
