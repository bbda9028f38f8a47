//! The calls of a volume's life, each with what has to be there before it and what it leaves to be undone.

use std::sync::atomic::{AtomicU64, Ordering};

use tonic::Status;
use trine_contracts::csi;
use trine_contracts::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};

use crate::rig::{MIB, Rig, mounted, raw};

/// One call. `v` is the volume that is written to all the time, `t` a small one, `x` a raw one, `s` a snapshot of `v`, `r` a larger
/// volume of that, `c` a clone, `g` a snapshot of `v` and `t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Create,
    Delete,
    Attach,
    Detach,
    Stage,
    Unstage,
    Publish,
    Unpublish,
    ExpandOffline,
    StageGrown,
    CreateRaw,
    DeleteRaw,
    AttachRaw,
    DetachRaw,
    StageRaw,
    UnstageRaw,
    PublishRaw,
    UnpublishRaw,
    Expand,
    ExpandOnNode,
    Snapshot,
    DropSnapshot,
    Restore,
    AttachRestored,
    StageRestored,
    UnstageRestored,
    DetachRestored,
    DeleteRestored,
    Clone,
    DeleteClone,
    Group,
    DropGroup,
}

use Call::*;

/// Those that the driver dies in.
pub const ALL: [Call; 23] = [
    Create,
    Delete,
    Attach,
    Detach,
    Stage,
    Unstage,
    Publish,
    Unpublish,
    StageGrown,
    StageRaw,
    PublishRaw,
    UnpublishRaw,
    UnstageRaw,
    Expand,
    ExpandOnNode,
    Snapshot,
    DropSnapshot,
    Restore,
    StageRestored,
    Clone,
    DeleteClone,
    Group,
    DropGroup,
];

/// The size of the small volume, bytes, before and after it has grown.
const SMALL: u64 = 16 * MIB;
const GROWN: u64 = 32 * MIB;
/// By how much the written volume grows each time, bytes.
const STEP: u64 = 16 * MIB;

impl Call {
    /// What is done before.
    pub fn before(self) -> &'static [Call] {
        match self {
            Delete | Attach | Group => &[Create],
            Detach | Stage => &[Create, Attach],
            Unstage | Publish => &[Create, Attach, Stage],
            Unpublish => &[Create, Attach, Stage, Publish],
            StageGrown => &[Create, Attach, Stage, Unstage, ExpandOffline],
            StageRaw => &[CreateRaw, AttachRaw],
            PublishRaw | UnstageRaw => &[CreateRaw, AttachRaw, StageRaw],
            UnpublishRaw => &[CreateRaw, AttachRaw, StageRaw, PublishRaw],
            ExpandOnNode => &[Expand],
            DropSnapshot | Restore => &[Snapshot],
            StageRestored => &[Snapshot, Restore, AttachRestored],
            DeleteClone => &[Clone],
            DropGroup => &[Create, Group],
            _ => &[],
        }
    }

    /// What undoes it and what was before it.
    pub fn after(self) -> &'static [Call] {
        match self {
            Create | Detach | DropGroup => &[Delete],
            Attach => &[Detach, Delete],
            Stage | StageGrown | Unpublish => &[Unstage, Detach, Delete],
            Unstage => &[Detach, Delete],
            Publish => &[Unpublish, Unstage, Detach, Delete],
            StageRaw | UnpublishRaw => &[UnstageRaw, DetachRaw, DeleteRaw],
            PublishRaw => &[UnpublishRaw, UnstageRaw, DetachRaw, DeleteRaw],
            UnstageRaw => &[DetachRaw, DeleteRaw],
            Snapshot => &[DropSnapshot],
            Restore => &[DeleteRestored, DropSnapshot],
            StageRestored => &[UnstageRestored, DetachRestored, DeleteRestored, DropSnapshot],
            Clone => &[DeleteClone],
            Group => &[DropGroup, Delete],
            _ => &[],
        }
    }

    /// Makes it. The same call again asks for the same.
    pub async fn make(self, rig: &Rig, size: &AtomicU64) -> Result<(), Status> {
        let (small, any) = (mounted("ext4"), mounted(""));
        let of = size.load(Ordering::SeqCst);
        match self {
            Create => rig.create("t", SMALL, &small).await.map(drop),
            Delete => rig.delete("t").await,
            Attach => rig.attach("t", &small).await,
            Detach => rig.detach("t").await,
            Stage | StageGrown => rig.stage_at("t", &small, "t-staging").await,
            Unstage => unstage(rig, "t", "t-staging").await,
            Publish => publish(rig, "t", &small, "t-staging", "t").await,
            Unpublish => rig.unpublish("t", "t").await,
            ExpandOffline => rig.expand("t", GROWN).await.map(drop),
            CreateRaw => rig.create("x", SMALL, &raw()).await.map(drop),
            DeleteRaw => rig.delete("x").await,
            AttachRaw => rig.attach("x", &raw()).await,
            DetachRaw => rig.detach("x").await,
            StageRaw => rig.stage_at("x", &raw(), "x-staging").await,
            UnstageRaw => unstage(rig, "x", "x-staging").await,
            PublishRaw => publish(rig, "x", &raw(), "x-staging", "x").await,
            UnpublishRaw => rig.unpublish("x", "x").await,
            Expand => rig.expand("v", of + STEP).await.map(drop),
            ExpandOnNode => rig.expand_on_node("v", "a").await.map(drop),
            Snapshot => rig.snapshot("s", "v").await.map(drop),
            DropSnapshot => rig.drop_snapshot("s").await,
            Restore => {
                let source = Type::Snapshot(SnapshotSource { snapshot_id: "s".to_owned() });
                rig.copy("r", source, of + 64 * MIB, &any).await.map(drop)
            }
            AttachRestored => rig.attach("r", &any).await,
            StageRestored => rig.stage_at("r", &any, "r-staging").await,
            UnstageRestored => unstage(rig, "r", "r-staging").await,
            DetachRestored => rig.detach("r").await,
            DeleteRestored => rig.delete("r").await,
            Clone => {
                let source = Type::Volume(VolumeSource { volume_id: "v".to_owned() });
                rig.copy("c", source, of, &any).await.map(drop)
            }
            DeleteClone => rig.delete("c").await,
            Group => rig.take_group("g", &["v", "t"]).await.map(drop),
            DropGroup => rig.drop_group("g", &[]).await,
        }
    }

    /// What holds once it has succeeded, other than its answer.
    pub fn done(self, size: &AtomicU64) {
        if self == Expand {
            size.fetch_add(STEP, Ordering::SeqCst);
        }
    }
}

async fn unstage(rig: &Rig, id: &str, at: &str) -> Result<(), Status> {
    let staging_target_path = rig.root.join(at).display().to_string();
    let request = csi::NodeUnstageVolumeRequest { volume_id: id.to_owned(), staging_target_path };
    rig.node().node_unstage_volume(request).await.map(drop)
}

async fn publish(
    rig: &Rig,
    id: &str,
    cap: &csi::VolumeCapability,
    staging: &str,
    target: &str,
) -> Result<(), Status> {
    let request = csi::NodePublishVolumeRequest {
        volume_id: id.to_owned(),
        staging_target_path: rig.root.join(staging).display().to_string(),
        target_path: rig.target(target),
        volume_capability: Some(cap.clone()),
        ..Default::default()
    };
    rig.node().node_publish_volume(request).await.map(drop)
}
