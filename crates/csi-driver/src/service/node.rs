//! `csi.v1.Node`.

use std::collections::HashMap;

use tonic::{Request, Response, Status, async_trait};
use tracing::field::Empty;
use tracing::{Span, info_span};
use trine_contracts::csi;
use trine_contracts::csi::node_server::Node;
use trine_contracts::csi::node_service_capability::rpc::Type as Offer;
use trine_contracts::csi::node_service_capability::{Rpc, Type};

use super::Service;
use super::controller::topology;

const OFFERED: [Offer; 5] = [
    Offer::StageUnstageVolume,
    Offer::GetVolumeStats,
    Offer::ExpandVolume,
    Offer::VolumeCondition,
    Offer::SingleNodeMultiWriter,
];

/// Writes into `step` for which Pod a volume is published, where the caller says so.
fn record_pod(step: &Span, context: &HashMap<String, String>) {
    let get = |key: &str| context.get(&format!("csi.storage.k8s.io/pod.{key}"));
    if let (Some(namespace), Some(name)) = (get("namespace"), get("name")) {
        step.record("pod", format!("{namespace}/{name}"));
    }
    if let Some(uid) = get("uid") {
        step.record("pod_uid", uid);
    }
}

#[async_trait]
impl Node for Service {
    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Result<Response<csi::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        let step = info_span!(target: "trine::step", "NodeStageVolume", plane = "csi", volume = %id,
            detail = Empty, error = Empty);
        let inner = step.clone();
        self.run(step, "NodeStageVolume", &id, move |driver| {
            inner.record("detail", driver.stage(&request)?);
            Ok(csi::NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Result<Response<csi::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        let step = info_span!(target: "trine::step", "NodeUnstageVolume", plane = "csi", volume = %id, error = Empty);
        self.run(step, "NodeUnstageVolume", &id, move |driver| {
            driver.unstage(&request).map(|()| csi::NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Result<Response<csi::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        let step = info_span!(target: "trine::step", "NodePublishVolume", plane = "csi", volume = %id,
            pod = Empty, pod_uid = Empty, error = Empty);
        record_pod(&step, &request.volume_context);
        self.run(step, "NodePublishVolume", &id, move |driver| {
            driver.publish(&request).map(|()| csi::NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<csi::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        let step = info_span!(target: "trine::step", "NodeUnpublishVolume", plane = "csi", volume = %id,
            error = Empty);
        self.run(step, "NodeUnpublishVolume", &id, move |driver| {
            driver.unpublish(&request).map(|()| csi::NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<csi::NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        self.run(Span::none(), "NodeGetVolumeStats", &id, move |driver| driver.stats(&request)).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> Result<Response<csi::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        let step =
            info_span!(target: "trine::step", "NodeExpandVolume", plane = "csi", volume = %id, error = Empty);
        self.run(step, "NodeExpandVolume", &id, move |driver| {
            let bytes = driver.expand_on_node(&request)?;
            Ok(csi::NodeExpandVolumeResponse { capacity_bytes: i64::try_from(bytes).unwrap_or(i64::MAX) })
        })
        .await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi::NodeGetCapabilitiesResponse>, Status> {
        let offered = |offer: Offer| csi::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: offer.into() })),
        };
        let capabilities = OFFERED.map(offered).into_iter().collect();
        Ok(Response::new(csi::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        let config = &self.driver.config;
        Ok(Response::new(csi::NodeGetInfoResponse {
            node_id: config.node_id.clone(),
            max_volumes_per_node: i64::from(config.max_volumes),
            accessible_topology: Some(topology(&config.node_id)),
        }))
    }
}
