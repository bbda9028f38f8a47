//! Every CRI call with a deadline, and an error that names call and object.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tonic::transport::Channel;
use tonic::{Response, Status};
use trine_contracts::cri::image_service_client::ImageServiceClient;
use trine_contracts::cri::runtime_service_client::RuntimeServiceClient;
use trine_contracts::networks::Attached;
use trine_contracts::networks::attachments::INFO;
use trine_contracts::{cri, socket};

use super::labels;
use super::observed::{self, Observed};
use crate::config::{CRI_TIMEOUT, PULL_TIMEOUT};
use crate::error::{KubeletError, answered};

/// How long the event stream may take to open.
const EVENTS_SILENCE: Duration = Duration::from_secs(3600);

/// The runtime's two services on one socket.
#[derive(Clone)]
pub struct Runtime {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    name: Arc<OnceLock<String>>,
}

async fn call<T>(
    call: &'static str,
    object: &str,
    deadline: Duration,
    future: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, KubeletError> {
    let of = |source| KubeletError::Cri { call, object: object.to_owned(), source };
    answered(deadline, future).await.map_err(of)
}

/// Absent is success on the way down.
fn absent_is_fine(result: Result<(), KubeletError>) -> Result<(), KubeletError> {
    match result {
        Err(error) if error.grpc_code() == Some(tonic::Code::NotFound) => Ok(()),
        other => other,
    }
}

impl Runtime {
    /// A client that connects at its first call, and again when the runtime was restarted.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        let channel = socket::connect(socket);
        Self {
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(socket::MAX_MESSAGE)
                .max_encoding_message_size(socket::MAX_MESSAGE),
            images: ImageServiceClient::new(channel)
                .max_decoding_message_size(socket::MAX_MESSAGE)
                .max_encoding_message_size(socket::MAX_MESSAGE),
            name: Arc::default(),
        }
    }

    /// The runtime's name, as in `containerID: <name>://...`; empty before the first [`Runtime::version`].
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.get().map_or("", String::as_str)
    }

    /// Name and version of the runtime.
    ///
    /// # Errors
    /// [`KubeletError::Cri`], as every call here.
    pub async fn version(&self) -> Result<cri::VersionResponse, KubeletError> {
        let request = cri::VersionRequest { version: "v1".into() };
        let mut client = self.runtime.clone();
        let version = call("Version", "runtime", Duration::from_secs(5), client.version(request)).await?;
        let _ = self.name.set(version.runtime_name.clone());
        Ok(version)
    }

    /// Whether runtime and network are ready.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn status(&self) -> Result<cri::StatusResponse, KubeletError> {
        let mut client = self.runtime.clone();
        let request = cri::StatusRequest { verbose: false };
        call("Status", "runtime", Duration::from_secs(10), client.status(request)).await
    }

    /// Tells the runtime this node's Pod range.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn set_pod_cidr(&self, cidr: &str) -> Result<(), KubeletError> {
        let network_config = Some(cri::NetworkConfig { pod_cidr: cidr.to_owned() });
        let request =
            cri::UpdateRuntimeConfigRequest { runtime_config: Some(cri::RuntimeConfig { network_config }) };
        let mut client = self.runtime.clone();
        call("UpdateRuntimeConfig", cidr, CRI_TIMEOUT, client.update_runtime_config(request)).await.map(drop)
    }

    /// Makes and starts a sandbox.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn run_sandbox(
        &self,
        config: cri::PodSandboxConfig,
        handler: &str,
    ) -> Result<String, KubeletError> {
        let object =
            config.metadata.as_ref().map(|m| format!("{}/{}", m.namespace, m.name)).unwrap_or_default();
        let request = cri::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        let mut client = self.runtime.clone();
        // Four minutes, as upstream: the network may need them.
        let deadline = CRI_TIMEOUT * 2;
        Ok(call("RunPodSandbox", &object, deadline, client.run_pod_sandbox(request)).await?.pod_sandbox_id)
    }

    /// How a sandbox is attached to its networks; nothing if the runtime was not told of any beside the default one.
    ///
    /// # Errors
    /// [`KubeletError::Cri`]; what it says cannot be read.
    pub async fn networks(&self, id: &str) -> Result<Vec<Attached>, KubeletError> {
        let request = cri::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        let mut client = self.runtime.clone();
        let info = call("PodSandboxStatus", id, CRI_TIMEOUT, client.pod_sandbox_status(request)).await?.info;
        let Some(text) = info.get(INFO) else { return Ok(Vec::new()) };
        let unread =
            |e| KubeletError::Invalid(format!("what the runtime says of networks cannot be read: {e}"));
        serde_json::from_str(text).map_err(unread)
    }

    /// Stops a sandbox and all that runs in it.
    ///
    /// # Errors
    /// [`KubeletError::Cri`]; an absent one is stopped.
    pub async fn stop_sandbox(&self, id: &str) -> Result<(), KubeletError> {
        let request = cri::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let mut client = self.runtime.clone();
        absent_is_fine(
            call("StopPodSandbox", id, CRI_TIMEOUT, client.stop_pod_sandbox(request)).await.map(drop),
        )
    }

    /// Removes a sandbox and its containers.
    ///
    /// # Errors
    /// [`KubeletError::Cri`]; an absent one is removed.
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), KubeletError> {
        let request = cri::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let mut client = self.runtime.clone();
        absent_is_fine(
            call("RemovePodSandbox", id, CRI_TIMEOUT, client.remove_pod_sandbox(request)).await.map(drop),
        )
    }

    /// Makes a container.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn create_container(
        &self,
        sandbox: &str,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Result<String, KubeletError> {
        let object = config.metadata.as_ref().map(|m| m.name.clone()).unwrap_or_default();
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let mut client = self.runtime.clone();
        Ok(call("CreateContainer", &object, CRI_TIMEOUT, client.create_container(request))
            .await?
            .container_id)
    }

    /// Starts a container.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn start_container(&self, id: &str) -> Result<(), KubeletError> {
        let request = cri::StartContainerRequest { container_id: id.to_owned() };
        let mut client = self.runtime.clone();
        call("StartContainer", id, CRI_TIMEOUT, client.start_container(request)).await.map(drop)
    }

    /// Signals a container, and kills it after `grace` seconds.
    ///
    /// # Errors
    /// [`KubeletError::Cri`]; an absent one is stopped.
    pub async fn stop_container(&self, id: &str, grace: i64) -> Result<(), KubeletError> {
        let request = cri::StopContainerRequest { container_id: id.to_owned(), timeout: grace };
        let mut client = self.runtime.clone();
        let deadline = CRI_TIMEOUT + Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        absent_is_fine(call("StopContainer", id, deadline, client.stop_container(request)).await.map(drop))
    }

    /// Removes a container.
    ///
    /// # Errors
    /// [`KubeletError::Cri`]; an absent one is removed.
    pub async fn remove_container(&self, id: &str) -> Result<(), KubeletError> {
        let request = cri::RemoveContainerRequest { container_id: id.to_owned() };
        let mut client = self.runtime.clone();
        absent_is_fine(
            call("RemoveContainer", id, CRI_TIMEOUT, client.remove_container(request)).await.map(drop),
        )
    }

    /// Sandboxes, of one Pod or of all.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn sandboxes(&self, uid: Option<&str>) -> Result<Vec<cri::PodSandbox>, KubeletError> {
        let filter =
            uid.map(|uid| cri::PodSandboxFilter { label_selector: of_pod(uid), ..Default::default() });
        let mut client = self.runtime.clone();
        let request = cri::ListPodSandboxRequest { filter };
        let object = uid.unwrap_or("all Pods");
        Ok(call("ListPodSandbox", object, CRI_TIMEOUT, client.list_pod_sandbox(request)).await?.items)
    }

    /// Containers, of one Pod or of all.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn containers(&self, uid: Option<&str>) -> Result<Vec<cri::Container>, KubeletError> {
        let filter =
            uid.map(|uid| cri::ContainerFilter { label_selector: of_pod(uid), ..Default::default() });
        let mut client = self.runtime.clone();
        let request = cri::ListContainersRequest { filter };
        let object = uid.unwrap_or("all Pods");
        Ok(call("ListContainers", object, CRI_TIMEOUT, client.list_containers(request)).await?.containers)
    }

    /// One sandbox; `None` if it is gone.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn sandbox_status(&self, id: &str) -> Result<Option<cri::PodSandboxStatus>, KubeletError> {
        let request = cri::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let mut client = self.runtime.clone();
        match call("PodSandboxStatus", id, CRI_TIMEOUT, client.pod_sandbox_status(request)).await {
            Ok(response) => Ok(response.status),
            Err(error) if error.grpc_code() == Some(tonic::Code::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One container; `None` if it is gone.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn container_status(&self, id: &str) -> Result<Option<cri::ContainerStatus>, KubeletError> {
        let request = cri::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let mut client = self.runtime.clone();
        match call("ContainerStatus", id, CRI_TIMEOUT, client.container_status(request)).await {
            Ok(response) => Ok(response.status),
            Err(error) if error.grpc_code() == Some(tonic::Code::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All that the runtime has of the Pod `uid`.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn observe(&self, uid: &str) -> Result<Observed, KubeletError> {
        let (sandboxes, containers) =
            tokio::try_join!(self.sandboxes(Some(uid)), self.containers(Some(uid)))?;
        let mut observed = Observed::default();
        for item in sandboxes {
            if let Some(status) = self.sandbox_status(&item.id).await? {
                observed.sandboxes.push(observed::sandbox(&status));
            }
        }
        for item in containers {
            if let Some(status) = self.container_status(&item.id).await? {
                observed.containers.push(observed::container(&status, &item.pod_sandbox_id));
            }
        }
        observed.sort();
        Ok(observed)
    }

    /// The image as the runtime has it; `None` if it does not.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn image(&self, image: cri::ImageSpec) -> Result<Option<cri::Image>, KubeletError> {
        let object = image.image.clone();
        let request = cri::ImageStatusRequest { image: Some(image), verbose: false };
        let mut client = self.images.clone();
        Ok(call("ImageStatus", &object, CRI_TIMEOUT, client.image_status(request)).await?.image)
    }

    /// Pulls an image; returns its reference.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn pull(
        &self,
        image: cri::ImageSpec,
        auth: Option<cri::AuthConfig>,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Result<String, KubeletError> {
        let object = image.image.clone();
        let request =
            cri::PullImageRequest { image: Some(image), auth, sandbox_config: Some(sandbox_config) };
        let mut client = self.images.clone();
        Ok(call("PullImage", &object, PULL_TIMEOUT, client.pull_image(request)).await?.image_ref)
    }

    /// Images on this node.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn images(&self) -> Result<Vec<cri::Image>, KubeletError> {
        let mut client = self.images.clone();
        let request = cri::ListImagesRequest { filter: None };
        Ok(call("ListImages", "all", Duration::from_secs(20), client.list_images(request)).await?.images)
    }

    /// Removes an image with all its names; one that is gone is removed.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn remove_image(&self, id: &str) -> Result<(), KubeletError> {
        let image = cri::ImageSpec { image: id.to_owned(), ..Default::default() };
        let mut client = self.images.clone();
        let removed = client.remove_image(cri::RemoveImageRequest { image: Some(image) });
        call("RemoveImage", id, CRI_TIMEOUT, removed).await.map(|_| ())
    }

    /// Runs a command and waits for its end.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn exec_sync(
        &self,
        id: &str,
        cmd: Vec<String>,
        timeout: Duration,
    ) -> Result<cri::ExecSyncResponse, KubeletError> {
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let request = cri::ExecSyncRequest { container_id: id.to_owned(), cmd, timeout: seconds };
        let mut client = self.runtime.clone();
        call("ExecSync", id, timeout + Duration::from_secs(5), client.exec_sync(request)).await
    }

    /// The URL to stream a command's input and output over.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn exec(&self, request: cri::ExecRequest) -> Result<String, KubeletError> {
        let id = request.container_id.clone();
        let mut client = self.runtime.clone();
        Ok(call("Exec", &id, Duration::from_secs(30), client.exec(request)).await?.url)
    }

    /// The URL to stream a container's input and output over.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn attach(&self, request: cri::AttachRequest) -> Result<String, KubeletError> {
        let id = request.container_id.clone();
        let mut client = self.runtime.clone();
        Ok(call("Attach", &id, Duration::from_secs(30), client.attach(request)).await?.url)
    }

    /// The URL to forward ports of a sandbox over.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn port_forward(&self, sandbox: &str, port: Vec<i32>) -> Result<String, KubeletError> {
        let request = cri::PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port };
        let mut client = self.runtime.clone();
        let forward = client.port_forward(request);
        Ok(call("PortForward", sandbox, Duration::from_secs(30), forward).await?.url)
    }

    /// Makes the runtime open a new log file after a rotation.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn reopen_log(&self, id: &str) -> Result<(), KubeletError> {
        let request = cri::ReopenContainerLogRequest { container_id: id.to_owned() };
        let mut client = self.runtime.clone();
        call("ReopenContainerLog", id, CRI_TIMEOUT, client.reopen_container_log(request)).await.map(drop)
    }

    /// Usage of all containers.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn container_stats(&self) -> Result<Vec<cri::ContainerStats>, KubeletError> {
        let mut client = self.runtime.clone();
        let request = cri::ListContainerStatsRequest { filter: None };
        let stats = client.list_container_stats(request);
        Ok(call("ListContainerStats", "all", Duration::from_secs(20), stats).await?.stats)
    }

    /// Changes what a container's group has.
    ///
    /// # Errors
    /// [`KubeletError::Cri`].
    pub async fn update_resources(
        &self,
        id: &str,
        linux: cri::LinuxContainerResources,
    ) -> Result<(), KubeletError> {
        let request = cri::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(linux),
            ..Default::default()
        };
        let mut client = self.runtime.clone();
        let update = client.update_container_resources(request);
        call("UpdateContainerResources", id, CRI_TIMEOUT, update).await.map(drop)
    }

    /// The runtime's event stream.
    ///
    /// # Errors
    /// [`KubeletError::Cri`], with `Unimplemented` if it has none.
    pub async fn events(&self) -> Result<tonic::Streaming<cri::ContainerEventResponse>, KubeletError> {
        let mut client = self.runtime.clone();
        let events = client.get_container_events(cri::GetEventsRequest {});
        // Some runtimes answer with the first event only, so this waits as long as a connection may be silent.
        call("GetContainerEvents", "all", EVENTS_SILENCE, events).await
    }
}

fn of_pod(uid: &str) -> HashMap<String, String> {
    HashMap::from([(labels::POD_UID.to_owned(), uid.to_owned())])
}
