//! Names and places.

use std::path::PathBuf;

/// The driver's name in CSINode, StorageClass and PersistentVolume.
pub const DRIVER_NAME: &str = "disk.csi.trine.dev";

/// The topology key: its value is the node id, because a volume is where its file is.
pub const TOPOLOGY_KEY: &str = "topology.disk.csi.trine.dev/node";

/// Volumes that a node takes unless set otherwise: loop devices are made as needed, so this bounds what one node
/// mounts rather than what the kernel can.
pub const DEFAULT_MAX_VOLUMES: u32 = 256;

/// On what the volumes of a pool lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// On a disk of its own where files on the host's file system cannot share their blocks and mkfs.xfs is installed; as
    /// files otherwise, and where volumes already are.
    #[default]
    Auto,
    /// As files on the host's file system.
    Files,
    /// On a disk of its own: a sparse file on the host's file system, with an XFS whose files share their blocks.
    Disk,
}

impl std::str::FromStr for PoolKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "files" => Ok(Self::Files),
            "disk" => Ok(Self::Disk),
            _ => Err(format!("{name:?} is none of auto, files, disk")),
        }
    }
}

/// Where the driver listens and where its volumes lie.
#[derive(Debug, Clone)]
pub struct Config {
    /// The CSI socket, for instance `D/kubelet/plugins/disk.csi.trine.dev/csi.sock`.
    pub socket: PathBuf,
    /// The kubelet's `plugins_registry`; none means that nobody needs to find the driver by itself.
    pub registration_dir: Option<PathBuf>,
    /// The folder of the volumes: one `.json` record and one `.img` file each, here or on a disk of its own in it.
    pub pool_dir: PathBuf,
    /// On what they lie.
    pub pool: PoolKind,
    /// This node's id, at most 63 characters: also the topology value, so it must be a valid label value.
    pub node_id: String,
    /// Volumes that may be attached to this node at once; [`DEFAULT_MAX_VOLUMES`].
    pub max_volumes: u32,
    /// Sum of the sizes of all volumes, bytes; none means what the pool's file system has.
    pub pool_bytes: Option<u64>,
}
