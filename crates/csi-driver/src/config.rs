//! Names and places.

use std::path::PathBuf;

/// The driver's name in CSINode, StorageClass and PersistentVolume.
pub const DRIVER_NAME: &str = "disk.csi.trine.dev";

/// The topology key: its value is the node id, because a volume is where its file is.
pub const TOPOLOGY_KEY: &str = "topology.disk.csi.trine.dev/node";

/// Volumes that a node takes unless set otherwise: loop devices are made as needed, so this bounds what one node
/// mounts rather than what the kernel can.
pub const DEFAULT_MAX_VOLUMES: u32 = 256;

/// Where the driver listens and where its volumes lie.
#[derive(Debug, Clone)]
pub struct Config {
    /// The CSI socket, for instance `D/kubelet/plugins/disk.csi.trine.dev/csi.sock`.
    pub socket: PathBuf,
    /// The kubelet's `plugins_registry`; none means that nobody needs to find the driver by itself.
    pub registration_dir: Option<PathBuf>,
    /// The folder of the volumes: one `.json` record and one `.img` file each.
    pub pool_dir: PathBuf,
    /// This node's id, at most 63 characters: also the topology value, so it must be a valid label value.
    pub node_id: String,
    /// Volumes that may be attached to this node at once; [`DEFAULT_MAX_VOLUMES`].
    pub max_volumes: u32,
    /// Sum of the sizes of all volumes, bytes; none means what the pool's file system has.
    pub pool_bytes: Option<u64>,
}
