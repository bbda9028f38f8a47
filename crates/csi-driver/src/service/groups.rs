//! `csi.v1.GroupController`.

use tonic::{Request, Response, Status, async_trait};
use tracing::info_span;
use trine_contracts::csi;
use trine_contracts::csi::group_controller_server::GroupController;
use trine_contracts::csi::group_controller_service_capability::rpc::Type as Offer;
use trine_contracts::csi::group_controller_service_capability::{Rpc, Type};

use super::Service;
use super::snapshots::describe;
use crate::group::Whole;
use crate::record::State;

fn describe_all((group, members): &Whole) -> csi::VolumeGroupSnapshot {
    let (seconds, nanos) = group.taken;
    csi::VolumeGroupSnapshot {
        group_snapshot_id: group.id.clone(),
        snapshots: members.iter().map(describe).collect(),
        creation_time: Some(prost_types::Timestamp { seconds, nanos }),
        ready_to_use: group.state == State::Ready,
    }
}

#[async_trait]
impl GroupController for Service {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<csi::GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<csi::GroupControllerGetCapabilitiesResponse>, Status> {
        let offer = Offer::CreateDeleteGetVolumeGroupSnapshot;
        let capability =
            csi::GroupControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: offer.into() })) };
        Ok(Response::new(csi::GroupControllerGetCapabilitiesResponse { capabilities: vec![capability] }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<csi::CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<csi::CreateVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let name = request.name.clone();
        let step = info_span!(target: "trine::step", "CreateVolumeGroupSnapshot", plane = "csi",
            detail = %name, error = tracing::field::Empty);
        self.run(step, "CreateVolumeGroupSnapshot", &name, move |driver| {
            let whole = driver.take_group(&request)?;
            Ok(csi::CreateVolumeGroupSnapshotResponse { group_snapshot: Some(describe_all(&whole)) })
        })
        .await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<csi::DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<csi::DeleteVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let id = request.group_snapshot_id.clone();
        let step = info_span!(target: "trine::step", "DeleteVolumeGroupSnapshot", plane = "csi",
            detail = %id, error = tracing::field::Empty);
        self.run(step, "DeleteVolumeGroupSnapshot", &id, move |driver| {
            driver.drop_group(&request.group_snapshot_id, &request.snapshot_ids)?;
            Ok(csi::DeleteVolumeGroupSnapshotResponse {})
        })
        .await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<csi::GetVolumeGroupSnapshotRequest>,
    ) -> Result<Response<csi::GetVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let id = request.group_snapshot_id.clone();
        self.run(tracing::Span::none(), "GetVolumeGroupSnapshot", &id, move |driver| {
            let whole = driver.look_at_group(&request.group_snapshot_id, &request.snapshot_ids)?;
            Ok(csi::GetVolumeGroupSnapshotResponse { group_snapshot: Some(describe_all(&whole)) })
        })
        .await
    }
}
