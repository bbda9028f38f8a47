//! A driver in a temporary folder, its clients, and the promise that nothing of it stays.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::Channel;
use trine_contracts::csi::controller_client::ControllerClient;
use trine_contracts::csi::group_controller_client::GroupControllerClient;
use trine_contracts::csi::node_client::NodeClient;
use trine_contracts::csi::volume_capability::access_mode::Mode;
use trine_contracts::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use trine_contracts::{csi, socket};
use trine_csi_driver::{Config, DEFAULT_MAX_VOLUMES, PoolKind, ServeError, serve, teardown};
use trine_kernel::{loopdev, mountpoint};

pub const NODE: &str = "node-1";
pub const MIB: u64 = 1 << 20;

pub struct Rig {
    pub root: PathBuf,
    dir: Option<tempfile::TempDir>,
    pub pool_bytes: Option<u64>,
    running: Option<(CancellationToken, JoinHandle<Result<(), ServeError>>)>,
}

/// The driver's settings in the folder `root`.
pub fn config(root: &Path, pool_bytes: Option<u64>) -> Config {
    Config {
        socket: root.join("csi.sock"),
        registration_dir: Some(root.join("reg")),
        pool_dir: root.join("pool"),
        pool: crate::pool(),
        node_id: NODE.to_owned(),
        max_volumes: DEFAULT_MAX_VOLUMES,
        pool_bytes,
    }
}

impl Rig {
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    pub async fn start_with(pool_bytes: Option<u64>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let mut rig = Self { root, dir: Some(dir), pool_bytes, running: None };
        rig.run().await;
        rig
    }

    /// In a folder that is somebody else's to remove.
    #[allow(dead_code, reason = "not all test programs with this file need it")]
    pub async fn start_in(root: PathBuf) -> Self {
        let mut rig = Self { root, dir: None, pool_bytes: None, running: None };
        rig.run().await;
        rig
    }

    /// Without a driver: somebody else runs that.
    #[allow(dead_code, reason = "not all test programs with this file need it")]
    pub fn bare() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        Self { root, dir: Some(dir), pool_bytes: None, running: None }
    }

    /// The same, in a folder that is somebody else's to remove.
    #[allow(dead_code, reason = "not all test programs with this file need it")]
    pub fn bare_in(root: PathBuf) -> Self {
        Self { root, dir: None, pool_bytes: None, running: None }
    }

    pub async fn run(&mut self) {
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(config(&self.root, self.pool_bytes), stop.clone()));
        for _ in 0..500 {
            if self.root.join("reg/disk.csi.trine.dev@reg.sock").exists() {
                self.running = Some((stop, task));
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the driver did not start: {:?}", task.is_finished().then_some(task));
    }

    pub async fn halt(&mut self) {
        if let Some((stop, task)) = self.running.take() {
            stop.cancel();
            task.await.unwrap().unwrap();
        }
    }

    pub fn pool(&self) -> PathBuf {
        self.root.join("pool")
    }

    /// Where records and images are.
    pub fn images(&self) -> PathBuf {
        if crate::pool() == PoolKind::Disk { self.pool().join("own") } else { self.pool() }
    }

    fn channel(&self) -> Channel {
        socket::connect(self.root.join("csi.sock"))
    }

    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel())
    }

    pub fn groups(&self) -> GroupControllerClient<Channel> {
        GroupControllerClient::new(self.channel())
    }

    pub async fn take_group(&self, name: &str, of: &[&str]) -> Result<csi::VolumeGroupSnapshot, Status> {
        let request = csi::CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: of.iter().map(|&id| id.to_owned()).collect(),
            ..Default::default()
        };
        let taken = self.groups().create_volume_group_snapshot(request).await?;
        Ok(taken.into_inner().group_snapshot.unwrap())
    }

    pub async fn drop_group(&self, id: &str, members: &[String]) -> Result<(), Status> {
        let request = csi::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: id.to_owned(),
            snapshot_ids: members.to_vec(),
            ..Default::default()
        };
        self.groups().delete_volume_group_snapshot(request).await.map(drop)
    }

    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel())
    }

    pub fn staging(&self) -> String {
        let path = self.root.join("staging");
        std::fs::create_dir_all(&path).unwrap();
        path.display().to_string()
    }

    pub fn target(&self, name: &str) -> String {
        self.root.join("targets").join(name).display().to_string()
    }

    pub async fn create(
        &self,
        name: &str,
        bytes: u64,
        cap: &csi::VolumeCapability,
    ) -> Result<csi::Volume, Status> {
        let request = csi::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(range(bytes)),
            volume_capabilities: vec![cap.clone()],
            ..Default::default()
        };
        Ok(self.controller().create_volume(request).await?.into_inner().volume.unwrap())
    }

    /// A copy of a snapshot or of a volume.
    pub async fn copy(
        &self,
        name: &str,
        source: csi::volume_content_source::Type,
        bytes: u64,
        cap: &csi::VolumeCapability,
    ) -> Result<csi::Volume, Status> {
        let request = csi::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(range(bytes)),
            volume_capabilities: vec![cap.clone()],
            volume_content_source: Some(csi::VolumeContentSource { r#type: Some(source) }),
            ..Default::default()
        };
        Ok(self.controller().create_volume(request).await?.into_inner().volume.unwrap())
    }

    pub async fn snapshot(&self, name: &str, volume: &str) -> Result<csi::Snapshot, Status> {
        let request = csi::CreateSnapshotRequest {
            name: name.to_owned(),
            source_volume_id: volume.to_owned(),
            ..Default::default()
        };
        Ok(self.controller().create_snapshot(request).await?.into_inner().snapshot.unwrap())
    }

    pub async fn drop_snapshot(&self, id: &str) -> Result<(), Status> {
        let request = csi::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        self.controller().delete_snapshot(request).await.map(drop)
    }

    pub async fn snapshots(&self, request: csi::ListSnapshotsRequest) -> Result<Vec<String>, Status> {
        let found = self.controller().list_snapshots(request).await?.into_inner();
        Ok(found.entries.into_iter().map(|e| e.snapshot.unwrap().snapshot_id).collect())
    }

    pub async fn attach(&self, id: &str, cap: &csi::VolumeCapability) -> Result<(), Status> {
        let request = csi::ControllerPublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: NODE.to_owned(),
            volume_capability: Some(cap.clone()),
            ..Default::default()
        };
        self.controller().controller_publish_volume(request).await.map(drop)
    }

    pub async fn detach(&self, id: &str) -> Result<(), Status> {
        let request = csi::ControllerUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: NODE.to_owned(),
            ..Default::default()
        };
        self.controller().controller_unpublish_volume(request).await.map(drop)
    }

    pub async fn stage(&self, id: &str, cap: &csi::VolumeCapability) -> Result<(), Status> {
        self.stage_at(id, cap, "staging").await
    }

    pub async fn stage_at(&self, id: &str, cap: &csi::VolumeCapability, at: &str) -> Result<(), Status> {
        let path = self.root.join(at);
        std::fs::create_dir_all(&path).unwrap();
        let request = csi::NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: path.display().to_string(),
            volume_capability: Some(cap.clone()),
            ..Default::default()
        };
        self.node().node_stage_volume(request).await.map(drop)
    }

    pub async fn unstage(&self, id: &str) -> Result<(), Status> {
        let staging_target_path = self.staging();
        let request = csi::NodeUnstageVolumeRequest { volume_id: id.to_owned(), staging_target_path };
        self.node().node_unstage_volume(request).await.map(drop)
    }

    pub async fn publish(
        &self,
        id: &str,
        cap: &csi::VolumeCapability,
        target: &str,
        readonly: bool,
    ) -> Result<(), Status> {
        let request = csi::NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: self.staging(),
            target_path: self.target(target),
            volume_capability: Some(cap.clone()),
            readonly,
            ..Default::default()
        };
        self.node().node_publish_volume(request).await.map(drop)
    }

    pub async fn unpublish(&self, id: &str, target: &str) -> Result<(), Status> {
        let target_path = self.target(target);
        let request = csi::NodeUnpublishVolumeRequest { volume_id: id.to_owned(), target_path };
        self.node().node_unpublish_volume(request).await.map(drop)
    }

    pub async fn delete(&self, id: &str) -> Result<(), Status> {
        let request = csi::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        self.controller().delete_volume(request).await.map(drop)
    }

    pub async fn stats(&self, id: &str, target: &str) -> Result<Vec<csi::VolumeUsage>, Status> {
        let request = csi::NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: self.target(target),
            ..Default::default()
        };
        Ok(self.node().node_get_volume_stats(request).await?.into_inner().usage)
    }

    pub async fn expand(&self, id: &str, bytes: u64) -> Result<csi::ControllerExpandVolumeResponse, Status> {
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: Some(range(bytes)),
            ..Default::default()
        };
        Ok(self.controller().controller_expand_volume(request).await?.into_inner())
    }

    pub async fn expand_on_node(&self, id: &str, target: &str) -> Result<i64, Status> {
        let request = csi::NodeExpandVolumeRequest {
            volume_id: id.to_owned(),
            volume_path: self.target(target),
            ..Default::default()
        };
        Ok(self.node().node_expand_volume(request).await?.into_inner().capacity_bytes)
    }

    /// Devices, mounts and volume files that are still there, without the pool's own disk.
    pub fn left(&self) -> Vec<String> {
        let (disk, images) = (self.pool().join("own.disk"), self.images());
        let devices = loopdev::attached().unwrap().into_iter();
        let devices = devices.filter(|a| a.backing_file.starts_with(&self.root) && a.backing_file != disk);
        let mounts = mountpoint::mounted().unwrap().into_iter();
        let mounts = mounts.filter(|m| m.target.starts_with(&self.root) && m.target != images);
        let files = std::fs::read_dir(&images).into_iter().flatten().filter_map(|e| {
            let name = e.unwrap().file_name().into_string().unwrap();
            (!matches!(name.as_str(), "lock" | "targets.ledger")).then_some(name)
        });
        devices
            .map(|a| a.device.display().to_string())
            .chain(mounts.map(|m| m.target.display().to_string()))
            .chain(files)
            .collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some((stop, task)) = self.running.take() {
            stop.cancel();
            task.abort();
        }
        let done = teardown(&self.pool());
        let clean = !mountpoint::mounted().unwrap().iter().any(|m| m.target.starts_with(&self.root));
        match self.dir.take() {
            // Never delete through a mount.
            Some(dir) if !clean => drop(dir.keep()),
            dir => drop(dir),
        }
        if !std::thread::panicking() {
            done.unwrap();
            assert!(clean, "mounts are left");
        }
    }
}

fn range(bytes: u64) -> csi::CapacityRange {
    csi::CapacityRange { required_bytes: i64::try_from(bytes).unwrap(), limit_bytes: 0 }
}

pub fn mounted(fs_type: &str) -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            ..Default::default()
        })),
    }
}

pub fn raw() -> csi::VolumeCapability {
    csi::VolumeCapability { access_type: Some(AccessType::Block(BlockVolume {})), ..mounted("") }
}

pub fn with_mode(mut cap: csi::VolumeCapability, mode: Mode) -> csi::VolumeCapability {
    cap.access_mode = Some(AccessMode { mode: mode.into() });
    cap
}

/// Whether the pool can be opened at all; a test that needs nothing else asks this first.
pub fn can_open(test: &str) -> bool {
    crate::pool() == PoolKind::Files || can_run(test, "xfs")
}

/// The tests' shared preconditions.
pub fn can_run(test: &str, fs_type: &str) -> bool {
    trine_kernel::testing::root(test)
        && (fs_type != "xfs" || trine_kernel::testing::program(test, "mkfs.xfs"))
        && (fs_type != "ext4" || trine_kernel::testing::program(test, "mkfs.ext4"))
}

pub fn device_of(rig: &Rig, id: &str) -> PathBuf {
    let image = rig.images().join(format!("{id}.img"));
    loopdev::of_file(&image).unwrap().pop().expect("attached").device
}

pub fn fill(path: &Path) -> u64 {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    let block = vec![7_u8; 1 << 20];
    let mut written = 0;
    loop {
        match file.write(&block).and_then(|n| file.sync_data().map(|()| n)) {
            Ok(n) => written += n as u64,
            Err(e) => {
                assert_eq!(e.kind(), std::io::ErrorKind::StorageFull, "{e}");
                return written;
            }
        }
    }
}
