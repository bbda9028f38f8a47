//! A cluster of one node in a temporary folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trine_kernel::netlink::{LinkChange, Route};
use trine_typed::k8s_openapi::api::core::v1::{Event, Node, PersistentVolumeClaim, Pod};
use trine_typed::k8s_openapi::api::storage::v1::StorageClass;
use trine_typed::kube::api::{DeleteParams, ListParams, PostParams};
use trine_typed::kube::{Api, Client};

/// The node's address, on the loopback link of this namespace.
pub const NODE_IP: &str = "192.0.2.1";
/// The image of all Pods.
pub const IMAGE: &str = "localhost/busybox:1";

/// All parts, each as it would run in the program.
pub struct Cluster {
    pub dir: tempfile::TempDir,
    pub client: Client,
    api: Option<trine_apiserver::ApiServer>,
    cri: trine_cri::Config,
    csi: trine_csi_driver::Config,
    kubelet: trine_kubelet::Config,
    stop: CancellationToken,
    parts: Vec<JoinHandle<()>>,
    kubelet_stop: CancellationToken,
    kubelet_task: Option<JoinHandle<()>>,
}

fn part<E: std::fmt::Debug>(
    name: &'static str,
    work: impl Future<Output = Result<(), E>> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = work.await {
            eprintln!("{name}: {error:?}");
        }
    })
}

impl Cluster {
    pub async fn start() -> Self {
        let mut route = Route::open().unwrap();
        route.set_link("lo", &LinkChange { up: Some(true), ..Default::default() }).unwrap();
        let lo = route.link("lo").unwrap().index;
        route.add_address(lo, format!("{NODE_IP}/32").parse().unwrap()).unwrap();
        let dir = tempfile::Builder::new().prefix("trine-kubelet-").tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let instance = format!("{:06x}", std::process::id() & 0xff_ffff);
        let store =
            trine_store::redb::RedbStore::open(&at("store"), trine_store::redb::Limits::default()).unwrap();
        let api = trine_apiserver::start(
            trine_apiserver::Config {
                data_dir: at("api"),
                bind: format!("{NODE_IP}:0").parse().unwrap(),
                advertise: NODE_IP.parse().unwrap(),
                service_cidr: "10.96.0.0/16".to_owned(),
                audit: trine_apiserver::AuditConfig::default(),
                runtime_config: trine_apiserver::RuntimeConfig::default(),
            },
            Arc::new(store),
        )
        .await
        .unwrap();
        let client = Client::new(api.service("admin", &["system:masters"]), "default");
        let root = at("kubelet");
        let cri = trine_cri::Config {
            socket: at("cri.sock"),
            state_dir: at("cri"),
            images_dir: at("images"),
            cni_conf_dir: at("net.d"),
            cni_bin_dirs: vec![at("bin")],
            cdi_dirs: vec![at("cdi")],
            cni_state_dir: at("cni"),
            instance: instance.clone(),
            ..Default::default()
        };
        std::fs::create_dir_all(&cri.cni_conf_dir).unwrap();
        let network = trine_cni::default_network(&trine_cni::DefaultNetwork {
            instance: &instance,
            pod_cidrs: &["10.77.0.0/24".parse().unwrap()],
            data_dir: &cri.cni_state_dir,
            mtu: None,
        });
        std::fs::write(cri.cni_conf_dir.join("90-trine.conflist"), network.to_string()).unwrap();
        make_image(&cri);
        let csi = trine_csi_driver::Config {
            socket: root.join("plugins/disk.csi.trine.dev/csi.sock"),
            registration_dir: Some(root.join("plugins_registry")),
            pool_dir: at("pool"),
            pool: trine_csi_driver::PoolKind::Files,
            node_id: "node".to_owned(),
            max_volumes: 8,
            pool_bytes: None,
        };
        let mut kubelet =
            trine_kubelet::Config::new("node", NODE_IP.parse().unwrap(), root, cri.socket.clone());
        (kubelet.serving_cert_pem, kubelet.serving_key_pem) =
            api.issue("system:node:node", &["system:nodes"], &[NODE_IP.to_owned()]).unwrap();
        kubelet.logs = trine_kubelet::log_rotation::Limits { max_bytes: 64 * 1024, max_files: 3 };
        kubelet.client_ca_pem = api.ca_pem().to_owned();
        let mut cluster = Self {
            dir,
            client,
            api: Some(api),
            cri,
            csi,
            kubelet,
            stop: CancellationToken::new(),
            parts: Vec::new(),
            kubelet_stop: CancellationToken::new(),
            kubelet_task: None,
        };
        let objects = trine_csi_controllers::objects(trine_csi_driver::DRIVER_NAME);
        let classes: Api<StorageClass> = Api::all(cluster.client.clone());
        classes.create(&PostParams::default(), &objects.class).await.unwrap();
        cluster.start_parts();
        cluster.start_kubelet();
        cluster
    }

    fn start_parts(&mut self) {
        let (client, stop) = (self.client.clone(), self.stop.clone());
        let controllers = trine_controllers::Config {
            ca_pem: self.kubelet.client_ca_pem.clone(),
            pod_cidr: "10.77.0.0/16".to_owned(),
            node_prefix: (24, 64),
            signer: None,
        };
        let csi = trine_csi_controllers::Config {
            socket: self.csi.socket.clone(),
            create_driver_object: true,
            ..Default::default()
        };
        self.parts = vec![
            part("cri", trine_cri::serve(self.cri.clone(), stop.clone())),
            part("csi", trine_csi_driver::serve(self.csi.clone(), stop.clone())),
            part(
                "scheduler",
                trine_scheduler::run(
                    client.clone(),
                    client.clone().into(),
                    trine_scheduler::Config::default(),
                    stop.clone(),
                ),
            ),
            part("controllers", trine_controllers::run(client.clone(), controllers, stop.clone())),
            part("csi controllers", trine_csi_controllers::run(client, csi, stop)),
        ];
    }

    pub fn start_kubelet(&mut self) {
        self.kubelet_stop = CancellationToken::new();
        let work = trine_kubelet::run(self.kubelet.clone(), self.client.clone(), self.kubelet_stop.clone());
        self.kubelet_task = Some(part("kubelet", work));
    }

    pub async fn stop_kubelet(&mut self) {
        self.kubelet_stop.cancel();
        self.kubelet_task.take().unwrap().await.unwrap();
    }

    /// Starts the kubelet again with other thresholds.
    pub async fn restart_kubelet_with(&mut self, thresholds: trine_kubelet::eviction::Thresholds) {
        self.stop_kubelet().await;
        self.kubelet.eviction_hard = thresholds;
        self.start_kubelet();
    }

    pub fn root(&self) -> PathBuf {
        self.kubelet.root.clone()
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// A client over TLS: streams need a connection of their own.
    pub async fn over_tls(&self) -> Api<Pod> {
        let path = self.dir.path().join("kubeconfig");
        std::fs::write(&path, self.api.as_ref().unwrap().kubeconfig()).unwrap();
        let client = trine_typed::client::from_kubeconfig(&path).await.unwrap();
        Api::namespaced(client, "default")
    }

    pub async fn create<K>(&self, object: Value)
    where
        K: trine_typed::kube::Resource<
                Scope = trine_typed::k8s_openapi::NamespaceResourceScope,
                DynamicType = (),
            > + serde::Serialize
            + serde::de::DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).unwrap();
        let api: Api<K> = Api::namespaced(self.client.clone(), "default");
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// A Pod of the image with fields of its own.
    pub async fn pod(&self, name: &str, spec: Value) {
        let mut all = json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 5, "enableServiceLinks": true});
        for (key, value) in spec.as_object().unwrap() {
            all[key] = value.clone();
        }
        for container in all["containers"].as_array_mut().unwrap() {
            if container["image"].is_null() {
                container["image"] = json!(IMAGE);
            }
        }
        self.create::<Pod>(json!({"metadata": {"name": name}, "spec": all})).await;
    }

    /// Waits until the Pod is as it should be; shows it and its events otherwise.
    pub async fn until(&self, name: &str, what: &str, check: impl Fn(&Pod) -> bool) -> Pod {
        let started = Instant::now();
        loop {
            let pod = self.pods().get_opt(name).await.unwrap();
            if let Some(pod) = pod.clone().filter(|p| check(p)) {
                return pod;
            }
            if started.elapsed() > Duration::from_secs(30) {
                let status = pod.map(|p| serde_json::to_string_pretty(&p.status).unwrap());
                panic!("{name} is not {what}: {}\n{}", status.unwrap_or_default(), self.events(name).await);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub async fn events(&self, name: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let all = events.list(&ListParams::default()).await.unwrap();
        let of_pod = all.items.into_iter().filter(|e| e.involved_object.name.as_deref() == Some(name));
        let line = |e: Event| format!("{} {}", e.reason.unwrap_or_default(), e.message.unwrap_or_default());
        of_pod.map(line).collect::<Vec<_>>().join("\n")
    }

    pub async fn delete(&self, name: &str) -> Duration {
        let started = Instant::now();
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
        while self.pods().get_opt(name).await.unwrap().is_some() {
            assert!(started.elapsed() < Duration::from_secs(30), "{name} stays\n{}", self.events(name).await);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        started.elapsed()
    }

    pub async fn delete_claim(&self, name: &str) {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), "default");
        claims.delete(name, &DeleteParams::default()).await.unwrap();
        let started = Instant::now();
        while std::fs::read_dir(self.dir.path().join("pool"))
            .unwrap()
            .flatten()
            .any(|e| e.path().extension().is_some_and(|x| x == "img"))
        {
            assert!(started.elapsed() < Duration::from_secs(30), "the volume stays");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn node_ready(&self) -> Duration {
        let started = Instant::now();
        let nodes: Api<Node> = Api::all(self.client.clone());
        loop {
            let node = nodes.get_opt("node").await.unwrap();
            let conditions = node.and_then(|n| n.status).and_then(|s| s.conditions).unwrap_or_default();
            if conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True") {
                return started.elapsed();
            }
            assert!(started.elapsed() < Duration::from_secs(20), "the node is not ready: {conditions:#?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until nothing keeps Pods away from the node.
    pub async fn untainted(&self) {
        let started = Instant::now();
        let nodes: Api<Node> = Api::all(self.client.clone());
        while nodes.get("node").await.unwrap().spec.and_then(|s| s.taints).is_some_and(|t| !t.is_empty()) {
            assert!(started.elapsed() < Duration::from_secs(30), "the node keeps its taints");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What is mounted below the temporary folder.
    pub fn mounts(&self) -> Vec<PathBuf> {
        let all = trine_kernel::mountpoint::mounted().unwrap();
        all.into_iter().map(|m| m.target).filter(|t| t.starts_with(self.dir.path())).collect()
    }

    /// Ends everything.
    pub async fn finish(mut self) {
        self.stop_kubelet().await;
        self.stop.cancel();
        for part in std::mem::take(&mut self.parts) {
            part.await.unwrap();
        }
        trine_cri::teardown(&self.cri).await.unwrap();
        let csi = self.csi.clone();
        tokio::task::spawn_blocking(move || trine_csi_driver::teardown(&csi.pool_dir))
            .await
            .unwrap()
            .unwrap();
        if let Some(api) = self.api.take() {
            api.stop().await;
        }
        // The kubelet leaves running Pods as they are, their tokens in memory included.
        self.unmount();
    }

    fn unmount(&self) {
        for mount in self.mounts().iter().rev() {
            let _ = trine_kernel::mountpoint::unmount_all(mount, true);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        self.kubelet_stop.cancel();
        self.stop.cancel();
        let (cri, csi) = (self.cri.clone(), self.csi.clone());
        let clean = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let cri = runtime.block_on(trine_cri::teardown(&cri));
            (cri.is_ok(), trine_csi_driver::teardown(&csi.pool_dir).is_ok())
        });
        self.unmount();
        eprintln!("cleaned up: {:?}", clean.join());
    }
}

fn make_image(config: &trine_cri::Config) {
    let store = trine_images::ImageStore::open(&config.images_dir, config.images.clone()).unwrap();
    let applets = [
        "sh", "echo", "sleep", "cat", "ls", "env", "mkdir", "true", "false", "httpd", "wget", "hostname",
        "sync",
    ];
    let busybox = PathBuf::from("/bin/busybox");
    let files = applets.iter().map(|a| (busybox.clone(), format!("/bin/{a}"))).collect();
    store
        .build(&trine_images::BuildSpec {
            reference: IMAGE.to_owned(),
            files,
            dirs: vec![("/tmp".to_owned(), 0o1777)],
            cmd: vec!["sleep".to_owned(), "1000".to_owned()],
            ..Default::default()
        })
        .unwrap();
}
