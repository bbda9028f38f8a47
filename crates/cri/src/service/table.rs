//! `RuntimeService`, call by call.

use std::pin::Pin;

use futures::Stream;
use tonic::{Request, Response, Status, async_trait};
use trine_contracts::cri::runtime_service_server::RuntimeService;
use trine_contracts::cri::*;

use super::{Service, metrics};

type Answer<T> = Result<Response<T>, Status>;
type Many<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A list in one piece; the clients that ask for a stream fall back to the list, and here they need not.
fn one<T: Send + 'static>(item: T) -> Answer<Many<T>> {
    Ok(Response::new(Box::pin(futures::stream::iter([Ok(item)]))))
}

fn not_yet<T>(call: &str) -> Answer<T> {
    Err(Status::unimplemented(format!("{call} is not served by this runtime")))
}

#[async_trait]
impl RuntimeService for Service {
    type StreamPodSandboxesStream = Many<StreamPodSandboxesResponse>;
    type StreamContainersStream = Many<StreamContainersResponse>;
    type StreamContainerStatsStream = Many<StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = Many<StreamPodSandboxStatsResponse>;
    type StreamPodSandboxMetricsStream = Many<StreamPodSandboxMetricsResponse>;
    type GetContainerEventsStream = Many<ContainerEventResponse>;

    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        Ok(Response::new(super::node::version()))
    }

    async fn status(&self, request: Request<StatusRequest>) -> Answer<StatusResponse> {
        Ok(Response::new(self.node_status(request.into_inner().verbose).await))
    }

    async fn runtime_config(&self, _: Request<RuntimeConfigRequest>) -> Answer<RuntimeConfigResponse> {
        Ok(Response::new(super::node::runtime_config()))
    }

    async fn update_runtime_config(
        &self,
        request: Request<UpdateRuntimeConfigRequest>,
    ) -> Answer<UpdateRuntimeConfigResponse> {
        let network = request.into_inner().runtime_config.and_then(|config| config.network_config);
        self.set_pod_range(&network.unwrap_or_default().pod_cidr)?;
        Ok(Response::new(UpdateRuntimeConfigResponse {}))
    }

    async fn run_pod_sandbox(&self, request: Request<RunPodSandboxRequest>) -> Answer<RunPodSandboxResponse> {
        let request = request.into_inner();
        let config = request.config.ok_or_else(|| Status::invalid_argument("RunPodSandbox: no config"))?;
        let pod_sandbox_id = self.0.run_sandbox(config, request.runtime_handler).await?;
        Ok(Response::new(RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        self.0.stop_sandbox(&request.into_inner().pod_sandbox_id).await?;
        Ok(Response::new(StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        self.0.remove_sandbox(&request.into_inner().pod_sandbox_id).await?;
        Ok(Response::new(RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        Ok(Response::new(self.sandbox_status(&request.into_inner())?))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        Ok(Response::new(ListPodSandboxResponse {
            items: self.list_sandboxes(request.into_inner().filter.as_ref()),
        }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        let pod_sandboxes = self.list_sandboxes(request.into_inner().filter.as_ref());
        one(StreamPodSandboxesResponse { pod_sandboxes })
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        let request = request.into_inner();
        let config = request.config.ok_or_else(|| Status::invalid_argument("CreateContainer: no config"))?;
        let container_id = self.0.create_container(&request.pod_sandbox_id, config).await?;
        Ok(Response::new(CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        self.0.start_container(&request.into_inner().container_id).await?;
        Ok(Response::new(StartContainerResponse {}))
    }

    async fn stop_container(&self, request: Request<StopContainerRequest>) -> Answer<StopContainerResponse> {
        let request = request.into_inner();
        self.0.stop_container(&request.container_id, request.timeout).await?;
        Ok(Response::new(StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        self.0.remove_container(&request.into_inner().container_id).await?;
        Ok(Response::new(RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let containers = self.list_of_containers(request.into_inner().filter.as_ref());
        Ok(Response::new(ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        let containers = self.list_of_containers(request.into_inner().filter.as_ref());
        one(StreamContainersResponse { containers })
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        Ok(Response::new(self.status_of_container(&request.into_inner())?))
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Answer<UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        if let Some(linux) = request.linux {
            self.0.update_resources(&request.container_id, linux).await?;
        }
        Ok(Response::new(UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        self.0.reopen_log(&request.into_inner().container_id).await?;
        Ok(Response::new(ReopenContainerLogResponse {}))
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        let request = request.into_inner();
        Ok(Response::new(self.0.exec_sync(&request.container_id, request.cmd, request.timeout).await?))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Answer<ExecResponse> {
        Ok(Response::new(self.open_exec(request.into_inner())?))
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Answer<AttachResponse> {
        Ok(Response::new(self.open_attach(request.into_inner())?))
    }

    async fn port_forward(&self, request: Request<PortForwardRequest>) -> Answer<PortForwardResponse> {
        Ok(Response::new(self.open_forward(request.into_inner())?))
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> Answer<ContainerStatsResponse> {
        let id = request.into_inner().container_id;
        let stats = self.counted("ContainerStats", move |s| s.stats_of_container(&id)).await??;
        Ok(Response::new(ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        let filter = request.into_inner().filter;
        let stats =
            self.counted("ListContainerStats", move |s| s.all_container_stats(filter.as_ref())).await?;
        Ok(Response::new(ListContainerStatsResponse { stats }))
    }

    async fn stream_container_stats(
        &self,
        request: Request<StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        let filter = request.into_inner().filter;
        let read = self.counted("StreamContainerStats", move |s| s.all_container_stats(filter.as_ref()));
        let container_stats = read.await?;
        one(StreamContainerStatsResponse { container_stats })
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<PodSandboxStatsRequest>,
    ) -> Answer<PodSandboxStatsResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let stats = self.counted("PodSandboxStats", move |s| s.stats_of_sandbox(&id)).await??;
        Ok(Response::new(PodSandboxStatsResponse { stats: Some(stats) }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<ListPodSandboxStatsRequest>,
    ) -> Answer<ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter;
        let stats =
            self.counted("ListPodSandboxStats", move |s| s.all_sandbox_stats(filter.as_ref())).await?;
        Ok(Response::new(ListPodSandboxStatsResponse { stats }))
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        let filter = request.into_inner().filter;
        let read = self.counted("StreamPodSandboxStats", move |s| s.all_sandbox_stats(filter.as_ref()));
        let pod_sandbox_stats = read.await?;
        one(StreamPodSandboxStatsResponse { pod_sandbox_stats })
    }

    async fn checkpoint_container(
        &self,
        _: Request<CheckpointContainerRequest>,
    ) -> Answer<CheckpointContainerResponse> {
        not_yet("CheckpointContainer")
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        Ok(Response::new(Box::pin(self.container_events())))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<ListMetricDescriptorsRequest>,
    ) -> Answer<ListMetricDescriptorsResponse> {
        Ok(Response::new(ListMetricDescriptorsResponse { descriptors: metrics::descriptors() }))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<ListPodSandboxMetricsRequest>,
    ) -> Answer<ListPodSandboxMetricsResponse> {
        Ok(Response::new(ListPodSandboxMetricsResponse { pod_metrics: self.all_sandbox_metrics().await? }))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        one(StreamPodSandboxMetricsResponse { pod_sandbox_metrics: self.all_sandbox_metrics().await? })
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Answer<UpdatePodSandboxResourcesResponse> {
        // The kubelet has changed the Pod's group by itself; there is nothing else that depends on it.
        self.0.sandbox(&request.into_inner().pod_sandbox_id)?;
        Ok(Response::new(UpdatePodSandboxResourcesResponse {}))
    }
}
