//! The part of the OCI runtime specification (1.2) that the launcher understands, in its JSON form, so that the same
//! file can be handed to another OCI runtime.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::seccomp::profile::Seccomp;

/// `config.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// The specification's version.
    pub oci_version: String,
    /// The container's first process.
    pub process: Process,
    /// Its root file system.
    pub root: Root,
    /// Host name; only for runtimes that make the UTS namespace themselves.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// In the order in which they are mounted.
    pub mounts: Vec<Mount>,
    /// Linux alone.
    pub linux: Linux,
    /// For whoever reads the bundle.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A process of a container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    /// True for a terminal as its standard streams.
    pub terminal: bool,
    /// As whom it runs.
    pub user: User,
    /// Program and arguments.
    pub args: Vec<String>,
    /// `KEY=value`.
    pub env: Vec<String>,
    /// Working directory, absolute.
    pub cwd: PathBuf,
    /// Capability sets.
    pub capabilities: Capabilities,
    /// Resource limits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rlimits: Vec<Rlimit>,
    /// True if executing a program never gains privileges.
    pub no_new_privileges: bool,
    /// `/proc/<pid>/oom_score_adj`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
}

/// User and groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Further groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// Capability sets by name (`CAP_CHOWN`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// What it may ever have.
    pub bounding: Vec<String>,
    /// What counts now.
    pub effective: Vec<String>,
    /// What a program with inheritable file capabilities may get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inheritable: Vec<String>,
    /// What it may make effective.
    pub permitted: Vec<String>,
    /// What a program without file capabilities keeps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ambient: Vec<String>,
}

/// One resource limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rlimit {
    /// `RLIMIT_NOFILE` and the like.
    #[serde(rename = "type")]
    pub kind: String,
    /// Ceiling.
    pub hard: u64,
    /// Value.
    pub soft: u64,
}

/// The root file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Root {
    /// Absolute path on the host.
    pub path: PathBuf,
    /// True if it may only be read.
    pub readonly: bool,
}

/// One mount.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mount {
    /// Where in the container, absolute.
    pub destination: PathBuf,
    /// File system type; `bind` for a file or folder of the host.
    #[serde(rename = "type")]
    pub kind: String,
    /// What.
    pub source: PathBuf,
    /// mount(8) options.
    pub options: Vec<String>,
    /// How the owners of files of the host are shown, if not as they are.
    #[serde(rename = "uidMappings", skip_serializing_if = "Vec::is_empty")]
    pub uid_mappings: Vec<IdMapping>,
    /// The same for their groups.
    #[serde(rename = "gidMappings", skip_serializing_if = "Vec::is_empty")]
    pub gid_mappings: Vec<IdMapping>,
}

/// A range of ids inside and outside of a user namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapping {
    /// The first one inside.
    #[serde(rename = "containerID")]
    pub container_id: u32,
    /// The first one outside.
    #[serde(rename = "hostID")]
    pub host_id: u32,
    /// How many there are.
    pub size: u32,
}

/// Linux alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Linux {
    /// Namespaces of its own; one that is absent is the caller's.
    pub namespaces: Vec<Namespace>,
    /// Users of its user namespace, if it is in one.
    #[serde(rename = "uidMappings", skip_serializing_if = "Vec::is_empty")]
    pub uid_mappings: Vec<IdMapping>,
    /// Groups of its user namespace.
    #[serde(rename = "gidMappings", skip_serializing_if = "Vec::is_empty")]
    pub gid_mappings: Vec<IdMapping>,
    /// Device files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// Where its cgroups are, below each controller's mount point.
    pub cgroups_path: PathBuf,
    /// Kernel settings of its namespaces; only for runtimes that make the namespaces themselves.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
    /// Paths that show nothing.
    pub masked_paths: Vec<String>,
    /// Paths that may only be read.
    pub readonly_paths: Vec<String>,
    /// Which system calls may be made; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp: Option<Seccomp>,
    /// `shared` or `slave`: what becomes of later mounts on the host.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rootfs_propagation: String,
}

/// One namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// `mount`, `pid`, `cgroup`, `ipc`, `uts`, `network`, `user`.
    #[serde(rename = "type")]
    pub kind: String,
    /// One that is there already; a new one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// One device file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// `c` or `b`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where in the container.
    pub path: PathBuf,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits.
    pub file_mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}
