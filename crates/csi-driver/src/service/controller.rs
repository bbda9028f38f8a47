//! `csi.v1.Controller`.

use std::collections::HashMap;

use tonic::{Request, Response, Status, async_trait};
use tracing::field::Empty;
use tracing::info_span;
use trine_contracts::csi;
use trine_contracts::csi::controller_server::Controller;
use trine_contracts::csi::controller_service_capability::rpc::Type as Offer;
use trine_contracts::csi::controller_service_capability::{Rpc, Type};

use super::Service;
use crate::config::TOPOLOGY_KEY;
use crate::error::Cause;
use crate::plan::volume::page;
use crate::record::{Content, Volume};
use crate::request::{Access, Asked, check_parameters, required};
use crate::size::SMALLEST;

const OFFERED: [Offer; 13] = [
    Offer::CreateDeleteVolume,
    Offer::PublishUnpublishVolume,
    Offer::ListVolumes,
    Offer::ListVolumesPublishedNodes,
    Offer::GetCapacity,
    Offer::CreateDeleteSnapshot,
    Offer::ListSnapshots,
    Offer::GetSnapshot,
    Offer::CloneVolume,
    Offer::ExpandVolume,
    Offer::GetVolume,
    Offer::VolumeCondition,
    Offer::SingleNodeMultiWriter,
];

/// Parameters under which a provisioner may say for which claim a volume is made.
const CLAIM_NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";
const CLAIM_NAME: &str = "csi.storage.k8s.io/pvc/name";

fn unimplemented<T>(call: &str) -> Result<Response<T>, Status> {
    Err(Status::unimplemented(format!("csi {call}: not offered")))
}

/// The node's place in the topology.
pub(super) fn topology(node: &str) -> csi::Topology {
    csi::Topology { segments: HashMap::from([(TOPOLOGY_KEY.to_owned(), node.to_owned())]) }
}

pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn describe(volume: &Volume, node: &str) -> csi::Volume {
    csi::Volume {
        capacity_bytes: signed(volume.bytes),
        volume_id: volume.id.clone(),
        volume_context: HashMap::new(),
        content_source: volume.source.as_ref().map(super::snapshots::source),
        accessible_topology: vec![topology(node)],
    }
}

#[async_trait]
impl Controller for Service {
    async fn create_volume(
        &self,
        request: Request<csi::CreateVolumeRequest>,
    ) -> Result<Response<csi::CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let name = request.name.clone();
        let step = info_span!(target: "trine::step", "CreateVolume", plane = "csi", volume = %name,
            claim = Empty, detail = Empty, error = Empty);
        if let (Some(ns), Some(claim)) =
            (request.parameters.get(CLAIM_NAMESPACE), request.parameters.get(CLAIM_NAME))
        {
            step.record("claim", format!("{ns}/{claim}"));
        }
        let inner = step.clone();
        self.run(step, "CreateVolume", &name, move |driver| {
            let volume = driver.create(&request)?;
            inner.record("detail", crate::Bytes(volume.bytes).to_string());
            Ok(csi::CreateVolumeResponse { volume: Some(describe(&volume, &driver.config.node_id)) })
        })
        .await
    }

    async fn delete_volume(
        &self,
        request: Request<csi::DeleteVolumeRequest>,
    ) -> Result<Response<csi::DeleteVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        let step =
            info_span!(target: "trine::step", "DeleteVolume", plane = "csi", volume = %id, error = Empty);
        self.run(step, "DeleteVolume", &id.clone(), move |driver| {
            driver.delete(&id).map(|()| csi::DeleteVolumeResponse {})
        })
        .await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<csi::ControllerPublishVolumeRequest>,
    ) -> Result<Response<csi::ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        let step = info_span!(target: "trine::step", "ControllerPublishVolume", plane = "csi", volume = %id,
            detail = %request.node_id, error = Empty);
        self.run(step, "ControllerPublishVolume", &id, move |driver| {
            driver.attach(&request)?;
            Ok(csi::ControllerPublishVolumeResponse { publish_context: HashMap::new() })
        })
        .await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<csi::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<csi::ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        let step = info_span!(target: "trine::step", "ControllerUnpublishVolume", plane = "csi", volume = %id,
            detail = %request.node_id, error = Empty);
        self.run(step, "ControllerUnpublishVolume", &id, move |driver| {
            driver.detach(&request.volume_id, &request.node_id)?;
            Ok(csi::ControllerUnpublishVolumeResponse {})
        })
        .await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<csi::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<csi::ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        self.run(tracing::Span::none(), "ValidateVolumeCapabilities", &id, move |driver| {
            required(&request.volume_id, "volume_id")?;
            if request.volume_capabilities.is_empty() {
                return Err(Cause::Invalid("no volume capabilities".to_owned()));
            }
            let volume = driver.pool.get(&request.volume_id)?;
            Ok(validate(&volume, request))
        })
        .await
    }

    async fn list_volumes(
        &self,
        request: Request<csi::ListVolumesRequest>,
    ) -> Result<Response<csi::ListVolumesResponse>, Status> {
        let request = request.into_inner();
        self.run(tracing::Span::none(), "ListVolumes", "", move |driver| {
            let volumes = driver.pool.all();
            let (volumes, next_token) = page(volumes.values(), &request.starting_token, request.max_entries)?;
            let entry = |volume: &Volume| csi::list_volumes_response::Entry {
                volume: Some(describe(volume, &driver.config.node_id)),
                status: Some(csi::list_volumes_response::VolumeStatus {
                    published_node_ids: volume.published.iter().map(|there| there.node.clone()).collect(),
                    volume_condition: Some(driver.condition(volume)),
                }),
            };
            Ok(csi::ListVolumesResponse { entries: volumes.into_iter().map(entry).collect(), next_token })
        })
        .await
    }

    async fn get_capacity(
        &self,
        request: Request<csi::GetCapacityRequest>,
    ) -> Result<Response<csi::GetCapacityResponse>, Status> {
        let request = request.into_inner();
        self.run(tracing::Span::none(), "GetCapacity", "", move |driver| {
            let node = driver.config.node_id.as_str();
            let here = request
                .accessible_topology
                .as_ref()
                .and_then(|t| t.segments.get(TOPOLOGY_KEY))
                .is_none_or(|value| value == node);
            let offered = request.volume_capabilities.is_empty()
                || (Access::read(&request.volume_capabilities).is_ok()
                    && check_parameters(request.parameters.keys()).is_ok());
            let left = if here && offered { signed(driver.pool.space()?.left) } else { 0 };
            Ok(csi::GetCapacityResponse {
                available_capacity: left,
                maximum_volume_size: Some(left),
                minimum_volume_size: Some(signed(SMALLEST)),
            })
        })
        .await
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<csi::ControllerGetCapabilitiesResponse>, Status> {
        let offered = |offer: Offer| csi::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: offer.into() })),
        };
        let capabilities = OFFERED.map(offered).into_iter().collect();
        Ok(Response::new(csi::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<csi::ControllerExpandVolumeRequest>,
    ) -> Result<Response<csi::ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        let step = info_span!(target: "trine::step", "ControllerExpandVolume", plane = "csi", volume = %id,
            error = Empty);
        self.run(step, "ControllerExpandVolume", &id, move |driver| {
            let volume = driver.expand(&request)?;
            // The device of a raw volume has grown with its file already.
            let raw = volume.content == Content::Raw || (volume.access.block && !volume.access.mount);
            Ok(csi::ControllerExpandVolumeResponse {
                capacity_bytes: signed(volume.bytes),
                node_expansion_required: !raw,
            })
        })
        .await
    }

    async fn create_snapshot(
        &self,
        request: Request<csi::CreateSnapshotRequest>,
    ) -> Result<Response<csi::CreateSnapshotResponse>, Status> {
        self.take_snapshot(request.into_inner()).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<csi::DeleteSnapshotRequest>,
    ) -> Result<Response<csi::DeleteSnapshotResponse>, Status> {
        self.remove_snapshot(request.into_inner()).await
    }

    async fn list_snapshots(
        &self,
        request: Request<csi::ListSnapshotsRequest>,
    ) -> Result<Response<csi::ListSnapshotsResponse>, Status> {
        self.snapshots(request.into_inner()).await
    }

    async fn get_snapshot(
        &self,
        request: Request<csi::GetSnapshotRequest>,
    ) -> Result<Response<csi::GetSnapshotResponse>, Status> {
        self.one_snapshot(request.into_inner()).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<csi::ControllerGetVolumeRequest>,
    ) -> Result<Response<csi::ControllerGetVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        self.run(tracing::Span::none(), "ControllerGetVolume", &id.clone(), move |driver| {
            required(&id, "volume_id")?;
            let volume = driver.pool.get(&id)?;
            let status = csi::controller_get_volume_response::VolumeStatus {
                published_node_ids: volume.published.iter().map(|there| there.node.clone()).collect(),
                volume_condition: Some(driver.condition(&volume)),
            };
            let volume = Some(describe(&volume, &driver.config.node_id));
            Ok(csi::ControllerGetVolumeResponse { volume, status: Some(status) })
        })
        .await
    }

    async fn controller_modify_volume(
        &self,
        _: Request<csi::ControllerModifyVolumeRequest>,
    ) -> Result<Response<csi::ControllerModifyVolumeResponse>, Status> {
        unimplemented("ControllerModifyVolume")
    }
}

/// What is confirmed, or why nothing is: an unsupported capability is an answer, not an error.
fn validate(
    volume: &Volume,
    request: csi::ValidateVolumeCapabilitiesRequest,
) -> csi::ValidateVolumeCapabilitiesResponse {
    let wrong = request.volume_capabilities.iter().find_map(|c| match Asked::read(Some(c)) {
        Err(cause) => Some(cause.to_string()),
        Ok(asked) if asked.block && !volume.access.block => {
            Some("it was not made for block access".to_owned())
        }
        Ok(asked) if !asked.block && !volume.access.mount => Some("it was made for block access".to_owned()),
        Ok(_) => None,
    });
    match wrong.or_else(|| check_parameters(request.parameters.keys()).err().map(|c| c.to_string())) {
        Some(message) => csi::ValidateVolumeCapabilitiesResponse { confirmed: None, message },
        None => csi::ValidateVolumeCapabilitiesResponse {
            confirmed: Some(csi::validate_volume_capabilities_response::Confirmed {
                volume_context: request.volume_context,
                volume_capabilities: request.volume_capabilities,
                parameters: request.parameters,
                mutable_parameters: request.mutable_parameters,
            }),
            message: String::new(),
        },
    }
}
