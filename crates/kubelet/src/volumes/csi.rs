//! Calls to a driver's node service, each with a deadline and a step of its own.

use std::collections::BTreeMap;
use std::path::Path;

use tonic::transport::Channel;
use tracing::field::Empty;
use trine_contracts::csi;
use trine_contracts::csi::node_client::NodeClient;
use trine_contracts::csi::volume_capability::access_mode::Mode;
use trine_contracts::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use super::model::Resolved;
use crate::config::CSI_TIMEOUT;
use crate::error::{KubeletError, answered};
use crate::plugins::{Capabilities, Driver};
use crate::step::traced;

/// A connection to one driver.
pub struct NodeCalls {
    driver: String,
    client: NodeClient<Channel>,
    capabilities: Capabilities,
}

/// For whom a call is made, for its step.
#[derive(Debug, Clone, Copy)]
pub struct For<'a> {
    /// namespace/name of the Pod, if one asks.
    pub pod: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// The PV.
    pub volume: &'a str,
    /// namespace/name of the claim.
    pub claim: &'a str,
}

macro_rules! step {
    ($name:literal, $who:expr) => {
        tracing::info_span!(target: "trine::step", $name, plane = "csi", pod = $who.pod, pod_uid = $who.uid,
            volume = $who.volume, claim = $who.claim, detail = Empty, error = Empty)
    };
}

impl NodeCalls {
    /// To a registered driver.
    #[must_use]
    pub fn new(driver: Driver) -> Self {
        Self {
            driver: driver.name,
            client: NodeClient::new(driver.channel),
            capabilities: driver.capabilities,
        }
    }

    /// What it can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn call<T>(
        &self,
        call: &'static str,
        object: &str,
        future: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<(), KubeletError> {
        answered(CSI_TIMEOUT, future).await.map(|_| ()).map_err(|source| {
            let driver = self.driver.clone();
            KubeletError::Csi { call, driver, object: object.to_owned(), source }
        })
    }

    /// NodeStageVolume.
    ///
    /// # Errors
    /// [`KubeletError::Csi`], as every call here.
    pub async fn stage(
        &self,
        who: For<'_>,
        volume: &Resolved,
        path: &Path,
        publish_context: BTreeMap<String, String>,
        secrets: BTreeMap<String, String>,
        group: Option<i64>,
    ) -> Result<(), KubeletError> {
        let request = csi::NodeStageVolumeRequest {
            volume_id: volume.handle.clone(),
            publish_context: publish_context.into_iter().collect(),
            staging_target_path: path.to_string_lossy().into_owned(),
            volume_capability: Some(capability(volume, self.capabilities, group)),
            secrets: secrets.into_iter().collect(),
            volume_context: volume.attributes.clone().into_iter().collect(),
        };
        let mut client = self.client.clone();
        let future = self.call("NodeStageVolume", &volume.handle, client.node_stage_volume(request));
        traced(step!("NodeStageVolume", who), future).await
    }

    /// NodeUnstageVolume.
    ///
    /// # Errors
    /// [`KubeletError::Csi`].
    pub async fn unstage(&self, who: For<'_>, handle: &str, path: &Path) -> Result<(), KubeletError> {
        let request = csi::NodeUnstageVolumeRequest {
            volume_id: handle.to_owned(),
            staging_target_path: path.to_string_lossy().into_owned(),
        };
        let mut client = self.client.clone();
        let future = self.call("NodeUnstageVolume", handle, client.node_unstage_volume(request));
        traced(step!("NodeUnstageVolume", who), future).await
    }

    /// NodePublishVolume. `stage` is the path of [`NodeCalls::stage`], if the driver stages.
    ///
    /// # Errors
    /// [`KubeletError::Csi`].
    pub async fn publish(&self, who: For<'_>, publish: Publish<'_>) -> Result<(), KubeletError> {
        let volume = publish.volume;
        let mut context = volume.attributes.clone();
        context.extend(publish.pod_info);
        let request = csi::NodePublishVolumeRequest {
            volume_id: volume.handle.clone(),
            publish_context: publish.publish_context.into_iter().collect(),
            staging_target_path: publish.stage.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default(),
            target_path: publish.target.to_string_lossy().into_owned(),
            volume_capability: Some(capability(volume, self.capabilities, publish.group)),
            readonly: volume.read_only,
            secrets: publish.secrets.into_iter().collect(),
            volume_context: context.into_iter().collect(),
        };
        let mut client = self.client.clone();
        let future = self.call("NodePublishVolume", &volume.handle, client.node_publish_volume(request));
        traced(step!("NodePublishVolume", who), future).await
    }

    /// NodeExpandVolume: to so many bytes, of what is mounted at `path`.
    ///
    /// # Errors
    /// [`KubeletError::Csi`].
    pub async fn expand(
        &self,
        who: For<'_>,
        volume: &Resolved,
        path: &Path,
        stage: Option<&Path>,
        bytes: i64,
    ) -> Result<(), KubeletError> {
        let request = csi::NodeExpandVolumeRequest {
            volume_id: volume.handle.clone(),
            volume_path: path.to_string_lossy().into_owned(),
            capacity_range: Some(csi::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            staging_target_path: stage.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default(),
            volume_capability: Some(capability(volume, self.capabilities, None)),
            ..csi::NodeExpandVolumeRequest::default()
        };
        let mut client = self.client.clone();
        let future = self.call("NodeExpandVolume", &volume.handle, client.node_expand_volume(request));
        traced(step!("NodeExpandVolume", who), future).await
    }

    /// NodeUnpublishVolume.
    ///
    /// # Errors
    /// [`KubeletError::Csi`].
    pub async fn unpublish(&self, who: For<'_>, handle: &str, target: &Path) -> Result<(), KubeletError> {
        let request = csi::NodeUnpublishVolumeRequest {
            volume_id: handle.to_owned(),
            target_path: target.to_string_lossy().into_owned(),
        };
        let mut client = self.client.clone();
        let future = self.call("NodeUnpublishVolume", handle, client.node_unpublish_volume(request));
        traced(step!("NodeUnpublishVolume", who), future).await
    }
}

/// What [`NodeCalls::publish`] needs.
pub struct Publish<'a> {
    /// The volume.
    pub volume: &'a Resolved,
    /// Where it is staged.
    pub stage: Option<&'a Path>,
    /// Where it goes.
    pub target: &'a Path,
    /// What the attacher said.
    pub publish_context: BTreeMap<String, String>,
    /// Of the publish secret.
    pub secrets: BTreeMap<String, String>,
    /// What the driver is told of the Pod.
    pub pod_info: BTreeMap<String, String>,
    /// fsGroup, for drivers that apply it.
    pub group: Option<i64>,
}

/// How the volume is to be used. Only the first access mode counts, as upstream.
#[must_use]
pub fn capability(
    volume: &Resolved,
    capabilities: Capabilities,
    group: Option<i64>,
) -> csi::VolumeCapability {
    let single = capabilities.single_writer;
    let mode = match volume.access_modes.first().map(String::as_str) {
        Some("ReadWriteMany") => Mode::MultiNodeMultiWriter,
        Some("ReadOnlyMany") => Mode::MultiNodeReaderOnly,
        Some("ReadWriteOncePod") if single => Mode::SingleNodeSingleWriter,
        Some("ReadWriteOnce") if single => Mode::SingleNodeMultiWriter,
        _ => Mode::SingleNodeWriter,
    };
    let access_type = if volume.block {
        AccessType::Block(BlockVolume {})
    } else {
        AccessType::Mount(MountVolume {
            fs_type: volume.fs_type.clone(),
            mount_flags: volume.mount_options.clone(),
            volume_mount_group: group
                .filter(|_| capabilities.mount_group)
                .map(|g| g.to_string())
                .unwrap_or_default(),
        })
    };
    csi::VolumeCapability {
        access_mode: Some(AccessMode { mode: mode as i32 }),
        access_type: Some(access_type),
    }
}

/// Whether an error leaves it open what the driver did (upstream's list of codes that are not final).
#[must_use]
pub fn uncertain(error: &KubeletError) -> bool {
    use tonic::Code::{Aborted, Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable};
    matches!(
        error.grpc_code(),
        Some(Cancelled | DeadlineExceeded | Unavailable | ResourceExhausted | Aborted)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_follow_what_the_driver_can_tell_apart() {
        let plain = Capabilities::default();
        let single = Capabilities { single_writer: true, ..plain };
        let rows = [
            ("ReadWriteOnce", plain, Mode::SingleNodeWriter),
            ("ReadWriteOnce", single, Mode::SingleNodeMultiWriter),
            ("ReadWriteOncePod", plain, Mode::SingleNodeWriter),
            ("ReadWriteOncePod", single, Mode::SingleNodeSingleWriter),
            ("ReadOnlyMany", single, Mode::MultiNodeReaderOnly),
            ("ReadWriteMany", plain, Mode::MultiNodeMultiWriter),
        ];
        for (mode, capabilities, expected) in rows {
            let volume = Resolved { access_modes: vec![mode.to_owned()], ..Default::default() };
            let got = capability(&volume, capabilities, Some(5)).access_mode.unwrap().mode;
            assert_eq!(got, expected as i32, "{mode}");
        }
    }
}
