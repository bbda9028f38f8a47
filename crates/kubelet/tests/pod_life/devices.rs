//! A driver of devices of our own: it registers, offers two devices, and makes them ready as files of the Container Device Interface.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use trine_contracts::dra::dra_plugin_server::{DraPlugin, DraPluginServer};
use trine_contracts::dra_health::dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer};
use trine_contracts::dra_health::{
    DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
};
use trine_contracts::registration::registration_server::{Registration, RegistrationServer};
use trine_contracts::{dra, registration, socket};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use trine_typed::kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use trine_typed::kube::{Api, Client};

use crate::cluster::Cluster;

const DRIVER: &str = "gpu.example.com";

/// What the kubelet has asked of it, one after the other.
type Calls = Arc<Mutex<Vec<String>>>;

#[derive(Clone)]
struct Driver {
    client: Client,
    endpoint: PathBuf,
    cdi: PathBuf,
    calls: Calls,
    /// How its devices are.
    health: watch::Receiver<Vec<DeviceHealth>>,
}

#[tonic::async_trait]
impl Registration for Driver {
    async fn get_info(
        &self,
        _: Request<registration::InfoRequest>,
    ) -> Result<Response<registration::PluginInfo>, Status> {
        Ok(Response::new(registration::PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["v1.DRAPlugin".to_owned(), "v1.DRAResourceHealth".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> Result<Response<registration::RegistrationStatusResponse>, Status> {
        assert!(request.get_ref().plugin_registered, "{}", request.get_ref().error);
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}

impl Driver {
    /// Writes down what a claim's devices are, and tells their names.
    async fn ready(&self, claim: &dra::Claim) -> Vec<dra::Device> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
        let object = claims.get(&claim.name).await.unwrap();
        assert_eq!(object.metadata.uid.as_ref(), Some(&claim.uid));
        let devices = object.status.unwrap().allocation.unwrap().devices.unwrap();
        let device = |result: &trine_typed::k8s_openapi::api::resource::v1::DeviceRequestAllocationResult| {
            let edits = json!({"env": [format!("DEVICE_{}={}", result.request, result.device)]});
            let file = json!({"cdiVersion": "0.6.0", "kind": "example.com/gpu",
                "devices": [{"name": format!("{}-{}", claim.uid, result.device), "containerEdits": edits}]});
            let name = format!("{}-{}.json", claim.uid, result.device);
            std::fs::write(self.cdi.join(name), file.to_string()).unwrap();
            dra::Device {
                request_names: vec![result.request.clone()],
                pool_name: result.pool.clone(),
                device_name: result.device.clone(),
                cdi_device_ids: vec![format!("example.com/gpu={}-{}", claim.uid, result.device)],
                share_id: None,
            }
        };
        devices.results.unwrap().iter().map(device).collect()
    }
}

#[tonic::async_trait]
impl DraPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<dra::NodePrepareResourcesRequest>,
    ) -> Result<Response<dra::NodePrepareResourcesResponse>, Status> {
        let first = {
            let mut calls = self.calls.lock().unwrap();
            calls.push("prepare".to_owned());
            calls.len() == 1
        };
        if first {
            return Err(Status::unavailable("not yet"));
        }
        let mut claims = std::collections::HashMap::new();
        for claim in &request.get_ref().claims {
            let devices = self.ready(claim).await;
            let answer = dra::NodePrepareResourceResponse { devices, error: String::new() };
            claims.insert(claim.uid.clone(), answer);
        }
        Ok(Response::new(dra::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<dra::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<dra::NodeUnprepareResourcesResponse>, Status> {
        self.calls.lock().unwrap().push("unprepare".to_owned());
        let claims = request.get_ref().claims.iter();
        let claims = claims.map(|claim| (claim.uid.clone(), dra::NodeUnprepareResourceResponse::default()));
        Ok(Response::new(dra::NodeUnprepareResourcesResponse { claims: claims.collect() }))
    }
}

#[tonic::async_trait]
impl DraResourceHealth for Driver {
    type NodeWatchResourcesStream = std::pin::Pin<
        Box<dyn tokio_stream::Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>,
    >;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let reports = WatchStream::new(self.health.clone());
        Ok(Response::new(Box::pin(reports.map(|devices| Ok(NodeWatchResourcesResponse { devices })))))
    }
}

/// Serves the driver until the task is ended.
async fn serve(driver: Driver, registration: &Path) -> JoinHandle<()> {
    let endpoint = socket::listen(&driver.endpoint).await.unwrap();
    let registering = socket::listen(registration).await.unwrap();
    let (calls, names) = (driver.clone(), driver);
    tokio::spawn(async move {
        let health = DraResourceHealthServer::new(calls.clone());
        let calls =
            tonic::transport::Server::builder().add_service(DraPluginServer::new(calls)).add_service(health);
        let names = tonic::transport::Server::builder().add_service(RegistrationServer::new(names));
        let (one, other) =
            tokio::join!(calls.serve_with_incoming(endpoint), names.serve_with_incoming(registering));
        one.and(other).unwrap();
    })
}

fn slice() -> Value {
    json!({"metadata": {"name": "gpus"}, "spec": {"driver": DRIVER, "nodeName": "node",
        "pool": {"name": "node", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"fast": {"bool": false}}},
            {"name": "gpu-1", "attributes": {"fast": {"bool": true}}}]}})
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < Duration::from_secs(45), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A Pod gets the device that it asks for; a kubelet that starts again knows it; it is given back when the Pod has gone.
pub async fn a_pod_has_its_device_until_it_is_gone(cluster: &mut Cluster) {
    let client = cluster.client.clone();
    let (root, cdi) = (cluster.root(), cluster.dir.path().join("cdi"));
    std::fs::create_dir_all(&cdi).unwrap();
    std::fs::create_dir_all(root.join("plugins").join(DRIVER)).unwrap();
    let calls = Calls::default();
    let (say, health) = watch::channel(Vec::new());
    let driver = Driver {
        client: client.clone(),
        endpoint: root.join("plugins").join(DRIVER).join("dra.sock"),
        cdi,
        calls: Arc::clone(&calls),
        health,
    };
    let registration = root.join("plugins_registry").join(format!("{DRIVER}-reg.sock"));
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let classes: Api<DeviceClass> = Api::all(client.clone());
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {
        "expression": format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].fast")}}]}});
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    cluster
        .create::<ResourceClaimTemplate>(
            json!({"metadata": {"name": "one-gpu"}, "spec": {"spec": {"devices": {
            "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}}),
        )
        .await;
    let wants = json!({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        "containers": [
            {"name": "with", "command": ["sh", "-c", "echo device $DEVICE_r; exec sleep 1000"], "resources": {"claims": [{"name": "gpu"}]}},
            {"name": "without", "command": ["sh", "-c", "echo device $DEVICE_r; exec sleep 1000"]}]});
    cluster.pod("devices", wants).await;
    let why = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let scheduled = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
        scheduled.and_then(|condition| condition.message.clone()).unwrap_or_default()
    };
    cluster
        .until("devices", "without a device", |pod| {
            why(pod).starts_with("0/1 nodes are available: 1 cannot allocate all claims.")
        })
        .await;
    let made = slices.create(&PostParams::default(), &serde_json::from_value(slice()).unwrap()).await;
    made.unwrap();
    let scheduled = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.is_some();
    cluster.until("devices", "scheduled", scheduled).await;
    let serving = serve(driver.clone(), &registration).await;
    let running = |pod: &Pod| {
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        statuses.into_iter().filter(|status| status.ready).count() == 2
    };
    cluster.until("devices", "running", running).await;
    let said = async |container: &str| {
        let of = LogParams { container: Some(container.to_owned()), ..LogParams::default() };
        cluster.pods().logs("devices", &of).await.unwrap()
    };
    assert_eq!(said("with").await, "device gpu-1\n");
    assert_eq!(said("without").await, "device\n", "it did not ask for it");
    shows_how_its_device_is(cluster, &say).await;
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), "default");
    let all = claims.list(&ListParams::default()).await.unwrap().items;
    let status = all[0].status.clone().unwrap();
    assert_eq!(status.reserved_for.unwrap()[0].name, "devices");
    assert!(all[0].metadata.finalizers.as_ref().unwrap()[0].contains("delete-protection"));

    let before = calls.lock().unwrap().clone();
    assert!(
        before.len() >= 2 && before.iter().all(|call| call == "prepare"),
        "once more after the failure: {before:?}"
    );
    cluster.stop_kubelet().await;
    cluster.start_kubelet();
    until("what is offered goes when the kubelet begins", async || {
        slices.list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
    cluster.delete("devices").await;
    let after = calls.lock().unwrap().clone();
    assert_eq!(after[before.len()..], ["unprepare"], "nothing was made ready again");
    until("the claim goes with its Pod", async || {
        claims.list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
    assert_eq!(records(&root), BTreeMap::new());
    serving.abort();
    std::fs::remove_file(&registration).unwrap();
    classes.delete("gpu", &DeleteParams::default()).await.unwrap();
}

/// The container that has the device shows what the driver says of it, and only that one.
async fn shows_how_its_device_is(cluster: &Cluster, say: &watch::Sender<Vec<DeviceHealth>>) {
    let of_container = |pod: &Pod, name: &str| -> Value {
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let found = statuses.into_iter().find(|status| status.name == name);
        json!(found.and_then(|status| status.allocated_resources_status.clone()))
    };
    let shown = |pod: &Pod| {
        let all = of_container(pod, "with");
        assert!(of_container(pod, "without").is_null());
        let one = &all[0]["resources"][0];
        let id = one["resourceID"].as_str().unwrap_or_default();
        assert!(all.is_null() || (all[0]["name"] == "claim:gpu" && id.ends_with("-gpu-1")), "{all}");
        format!("{} {}", one["health"].as_str().unwrap_or_default(), one["message"].as_str().unwrap_or("-"))
    };
    cluster.until("devices", "nothing was said", |pod| shown(pod) == "Unknown -").await;
    for (health, message, expected) in
        [(HealthStatus::Healthy, "45 °C", "Healthy 45 °C"), (HealthStatus::Unhealthy, "", "Unhealthy -")]
    {
        let device = |name: &str, health: HealthStatus, message: &str| DeviceHealth {
            device: Some(DeviceIdentifier { pool_name: "node".to_owned(), device_name: name.to_owned() }),
            health: health.into(),
            message: message.to_owned(),
            ..DeviceHealth::default()
        };
        let other = device("gpu-0", HealthStatus::Unhealthy, "another");
        say.send(vec![other, device("gpu-1", health, message)]).unwrap();
        cluster.until("devices", expected, |pod| shown(pod) == expected).await;
    }
}

/// What the kubelet has written down of claims.
fn records(root: &Path) -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(root.join("dra_manager.json")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(record["claims"].clone()).unwrap()
}
