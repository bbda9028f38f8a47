//! A driver's calls, each under a deadline.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use trine_contracts::csi::controller_client::ControllerClient;
use trine_contracts::csi::controller_service_capability::Type as ControllerType;
use trine_contracts::csi::controller_service_capability::rpc::Type as Rpc;
use trine_contracts::csi::group_controller_client::GroupControllerClient;
use trine_contracts::csi::group_controller_service_capability::Type as GroupType;
use trine_contracts::csi::group_controller_service_capability::rpc::Type as GroupRpc;
use trine_contracts::csi::identity_client::IdentityClient;
use trine_contracts::csi::plugin_capability::Type as PluginType;
use trine_contracts::csi::plugin_capability::service::Type as Service;
use trine_contracts::{csi, socket};

use crate::grpc::CallError;

/// The time that one call may take (upstream's sidecars: `--timeout`, 15 s).
const DEADLINE: Duration = Duration::from_secs(15);
/// The time that the copy of a volume may take (upstream's csi-snapshotter: `--timeout`, 1 min).
const SNAPSHOT_DEADLINE: Duration = Duration::from_secs(60);

/// A driver at its socket.
#[derive(Clone)]
pub struct Driver {
    channel: Channel,
}

/// What a driver says that it can do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offers {
    /// Its name.
    pub name: String,
    /// It has a controller service that makes volumes.
    pub create: bool,
    /// Its volumes have to be attached.
    pub publish: bool,
    /// It honours attaching for reading only.
    pub publish_readonly: bool,
    /// Its volumes are not reachable from every node.
    pub topology: bool,
    /// It tells one Pod from many on a node.
    pub single_node_multi_writer: bool,
    /// It takes snapshots, and makes volumes of them.
    pub snapshot: bool,
    /// It takes snapshots of several volumes at one moment.
    pub group: bool,
    /// It can be asked which snapshots there are.
    pub list_snapshots: bool,
    /// It makes volumes of volumes.
    pub clone: bool,
    /// It makes volumes larger.
    pub expand: bool,
    /// It changes volumes by attributes of a class.
    pub modify: bool,
}

impl Driver {
    /// The driver at `socket`; it need not listen yet.
    #[must_use]
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self { channel: socket::connect(socket) }
    }

    fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone()).max_decoding_message_size(socket::MAX_MESSAGE)
    }

    fn groups(&self) -> GroupControllerClient<Channel> {
        GroupControllerClient::new(self.channel.clone()).max_decoding_message_size(socket::MAX_MESSAGE)
    }

    /// `Probe`: true once it is ready.
    pub async fn ready(&self) -> Result<bool, CallError> {
        let mut client = IdentityClient::new(self.channel.clone());
        let probe = within("Probe", client.probe(timed(csi::ProbeRequest {}))).await?;
        Ok(probe.ready.unwrap_or(true))
    }

    /// What it can do.
    pub async fn offers(&self) -> Result<Offers, CallError> {
        let mut client = IdentityClient::new(self.channel.clone());
        let info = client.get_plugin_info(timed(csi::GetPluginInfoRequest {}));
        let name = within("GetPluginInfo", info).await?.name;
        let plugin = client.get_plugin_capabilities(timed(csi::GetPluginCapabilitiesRequest {}));
        let plugin = within("GetPluginCapabilities", plugin).await?.capabilities;
        let serves = |service: Service| {
            plugin.iter().any(|c| matches!(&c.r#type, Some(PluginType::Service(s)) if s.r#type() == service))
        };
        let mut offers =
            Offers { name, topology: serves(Service::VolumeAccessibilityConstraints), ..Default::default() };
        if serves(Service::ControllerService) {
            let mut client = self.controller();
            let answer = client.controller_get_capabilities(timed(csi::ControllerGetCapabilitiesRequest {}));
            for capability in within("ControllerGetCapabilities", answer).await?.capabilities {
                let Some(ControllerType::Rpc(rpc)) = capability.r#type else { continue };
                match rpc.r#type() {
                    Rpc::CreateDeleteVolume => offers.create = true,
                    Rpc::PublishUnpublishVolume => offers.publish = true,
                    Rpc::PublishReadonly => offers.publish_readonly = true,
                    Rpc::CreateDeleteSnapshot => offers.snapshot = true,
                    Rpc::ListSnapshots => offers.list_snapshots = true,
                    Rpc::CloneVolume => offers.clone = true,
                    Rpc::ExpandVolume => offers.expand = true,
                    Rpc::ModifyVolume => offers.modify = true,
                    Rpc::SingleNodeMultiWriter => offers.single_node_multi_writer = true,
                    _ => {}
                }
            }
        }
        if serves(Service::GroupControllerService) {
            let asked = csi::GroupControllerGetCapabilitiesRequest {};
            let mut client = self.groups();
            let answer = client.group_controller_get_capabilities(timed(asked));
            let offered = within("GroupControllerGetCapabilities", answer).await?.capabilities;
            offers.group = offered.iter().any(|c| {
                let Some(GroupType::Rpc(rpc)) = &c.r#type else { return false };
                rpc.r#type() == GroupRpc::CreateDeleteGetVolumeGroupSnapshot
            });
        }
        Ok(offers)
    }

    /// `CreateVolumeGroupSnapshot`.
    pub async fn take_group(
        &self,
        request: csi::CreateVolumeGroupSnapshotRequest,
    ) -> Result<csi::VolumeGroupSnapshot, CallError> {
        const CALL: &str = "CreateVolumeGroupSnapshot";
        let mut request = Request::new(request);
        request.set_timeout(SNAPSHOT_DEADLINE);
        let mut client = self.groups();
        let answer = before(SNAPSHOT_DEADLINE, CALL, client.create_volume_group_snapshot(request)).await?;
        answer.group_snapshot.ok_or_else(|| holds_no_group(CALL))
    }

    /// `GetVolumeGroupSnapshot`.
    pub async fn look_at_group(
        &self,
        request: csi::GetVolumeGroupSnapshotRequest,
    ) -> Result<csi::VolumeGroupSnapshot, CallError> {
        const CALL: &str = "GetVolumeGroupSnapshot";
        let answer = within(CALL, self.groups().get_volume_group_snapshot(timed(request))).await?;
        answer.group_snapshot.ok_or_else(|| holds_no_group(CALL))
    }

    /// `DeleteVolumeGroupSnapshot`.
    pub async fn delete_group(
        &self,
        request: csi::DeleteVolumeGroupSnapshotRequest,
    ) -> Result<(), CallError> {
        let mut client = self.groups();
        within("DeleteVolumeGroupSnapshot", client.delete_volume_group_snapshot(timed(request)))
            .await
            .map(drop)
    }

    /// `CreateVolume`.
    pub async fn create(&self, request: csi::CreateVolumeRequest) -> Result<csi::Volume, CallError> {
        let mut client = self.controller();
        let answer = within("CreateVolume", client.create_volume(timed(request))).await?;
        answer.volume.ok_or_else(|| {
            CallError::of("CreateVolume", &Status::internal("the driver's answer holds no volume"))
        })
    }

    /// `DeleteVolume`.
    pub async fn delete(&self, volume_id: &str, secrets: HashMap<String, String>) -> Result<(), CallError> {
        let request = csi::DeleteVolumeRequest { volume_id: volume_id.to_owned(), secrets };
        within("DeleteVolume", self.controller().delete_volume(timed(request))).await.map(drop)
    }

    /// `ControllerExpandVolume`.
    pub async fn expand(
        &self,
        request: csi::ControllerExpandVolumeRequest,
    ) -> Result<csi::ControllerExpandVolumeResponse, CallError> {
        let mut client = self.controller();
        within("ControllerExpandVolume", client.controller_expand_volume(timed(request))).await
    }

    /// `ControllerModifyVolume`.
    pub async fn modify(&self, request: csi::ControllerModifyVolumeRequest) -> Result<(), CallError> {
        let mut client = self.controller();
        within("ControllerModifyVolume", client.controller_modify_volume(timed(request))).await.map(drop)
    }

    /// `CreateSnapshot`.
    pub async fn take_snapshot(
        &self,
        request: csi::CreateSnapshotRequest,
    ) -> Result<csi::Snapshot, CallError> {
        let mut client = self.controller();
        let mut request = Request::new(request);
        request.set_timeout(SNAPSHOT_DEADLINE);
        let answer = client.create_snapshot(request);
        let answer = before(SNAPSHOT_DEADLINE, "CreateSnapshot", answer).await?;
        answer.snapshot.ok_or_else(|| {
            CallError::of("CreateSnapshot", &Status::internal("the driver's answer holds no snapshot"))
        })
    }

    /// `DeleteSnapshot`.
    pub async fn delete_snapshot(
        &self,
        snapshot_id: &str,
        secrets: HashMap<String, String>,
    ) -> Result<(), CallError> {
        let request = csi::DeleteSnapshotRequest { snapshot_id: snapshot_id.to_owned(), secrets };
        within("DeleteSnapshot", self.controller().delete_snapshot(timed(request))).await.map(drop)
    }

    /// `ListSnapshots`, of one.
    pub async fn find_snapshot(&self, snapshot_id: &str) -> Result<Option<csi::Snapshot>, CallError> {
        let request = csi::ListSnapshotsRequest { snapshot_id: snapshot_id.to_owned(), ..Default::default() };
        let found = within("ListSnapshots", self.controller().list_snapshots(timed(request))).await?;
        Ok(found.entries.into_iter().find_map(|entry| entry.snapshot))
    }

    /// `ControllerPublishVolume`: gives the publish context.
    pub async fn publish(
        &self,
        request: csi::ControllerPublishVolumeRequest,
    ) -> Result<csi::ControllerPublishVolumeResponse, CallError> {
        let mut client = self.controller();
        within("ControllerPublishVolume", client.controller_publish_volume(timed(request))).await
    }

    /// `ControllerUnpublishVolume`.
    pub async fn unpublish(&self, volume_id: &str, node_id: &str) -> Result<(), CallError> {
        let request = csi::ControllerUnpublishVolumeRequest {
            volume_id: volume_id.to_owned(),
            node_id: node_id.to_owned(),
            ..Default::default()
        };
        let mut client = self.controller();
        within("ControllerUnpublishVolume", client.controller_unpublish_volume(timed(request)))
            .await
            .map(drop)
    }
}

fn holds_no_group(call: &'static str) -> CallError {
    CallError::of(call, &Status::internal("the driver's answer holds no group snapshot"))
}

/// `message` with the deadline told to the driver.
fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

async fn within<T>(
    call: &'static str,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    before(DEADLINE, call, answer).await
}

async fn before<T>(
    deadline: Duration,
    call: &'static str,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(deadline, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(CallError::of(call, &status)),
        Err(_) => Err(CallError::late(call, deadline)),
    }
}
