//! An API server with the controllers.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trine_apiserver::ApiServer;
use trine_store::redb::{Limits, RedbStore};
use trine_typed::k8s_openapi::NamespaceResourceScope;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::events::v1::Event;
use trine_typed::kube::api::{ListParams, Patch, PatchParams, PostParams};
use trine_typed::kube::{Api, Client, Resource};

/// How long anything may take.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A running API server with the controllers, each as its own ServiceAccount.
pub struct Cluster {
    /// A way for everything.
    pub client: Client,
    /// Ends it.
    pub stop: CancellationToken,
    _server: ApiServer,
    _dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts one.
    pub async fn start() -> Self {
        Self::start_after(async |_| {}).await
    }

    /// Starts one whose controllers begin after something is prepared.
    pub async fn start_after(prepare: impl AsyncFn(&Client)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = RedbStore::open(&dir.path().join("store.redb"), Limits::default()).unwrap();
        let config = trine_apiserver::Config {
            data_dir: dir.path().to_owned(),
            bind: "127.0.0.1:0".parse().unwrap(),
            advertise: "127.0.0.1".parse().unwrap(),
            service_cidr: "10.96.0.0/16".to_owned(),
            audit: trine_apiserver::AuditConfig::default(),
            runtime_config: trine_apiserver::RuntimeConfig::default(),
        };
        let server = trine_apiserver::start(config, Arc::new(store)).await.unwrap();
        let client = Client::new(server.service("admin", &["system:masters"]), "default");
        prepare(&client).await;
        let stop = CancellationToken::new();
        let config = trine_controllers::Config {
            ca_pem: "ca".to_owned(),
            pod_cidr: "10.244.0.0/16".to_owned(),
            node_prefix: (24, 64),
            signer: None,
        };
        let accounts = server.accounts();
        let manager = server.service("system:kube-controller-manager", &[]);
        let clients = trine_controllers::Clients::new(Client::new(manager, "default"), move |name: &str| {
            Client::new(accounts.service("kube-system", name), "default")
        });
        tokio::spawn(trine_controllers::run(clients, config, stop.clone()));
        Self { client, stop, _server: server, _dir: dir }
    }

    /// The objects of a kind in the namespace `default`.
    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::default_namespaced(self.client.clone())
    }

    /// Makes an object.
    pub async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Serialize + DeserializeOwned + Clone + Debug,
    {
        self.api().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// Changes an object by a merge patch.
    pub async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug,
    {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// An object as it is now; null if it is not there.
    pub async fn get<K>(&self, name: &str) -> Value
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Serialize + DeserializeOwned + Clone + Debug,
    {
        json!(self.api::<K>().get_opt(name).await.unwrap())
    }

    /// All objects of a kind, as selected.
    pub async fn list<K>(&self, selector: &str) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: DeserializeOwned + Clone + Debug,
    {
        self.api().list(&ListParams::default().labels(selector)).await.unwrap().items
    }

    /// The Pods that are not on their way out, as selected.
    pub async fn pods(&self, selector: &str) -> Vec<Pod> {
        let mut pods: Vec<Pod> = self.list(selector).await;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        pods
    }

    /// What was told of an object: reasons and notes.
    pub async fn told(&self, name: &str) -> Vec<String> {
        let events: Vec<Event> = self.list("").await;
        let of_it = |e: &&Event| e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(name);
        let one = |e: &Event| {
            format!("{}: {}", e.reason.as_deref().unwrap_or_default(), e.note.as_deref().unwrap_or_default())
        };
        events.iter().filter(of_it).map(one).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Waits until something holds.
pub async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < DEADLINE, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
