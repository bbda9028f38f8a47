//! What is written down of a sandbox, in `record.json` of its folder, and what is known of it in memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use trine_contracts::cri::{
    IdMapping, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption, PodSandboxConfig,
};
use trine_contracts::networks::Attached;
use trine_kernel::container::{Owners, oci};

use crate::container::record::{of_its_folder, write_json};
use crate::keeper::Client;
use crate::kept::Kept;

/// How far a sandbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxState {
    /// Being made; what there is of it goes if that is cut short.
    Making,
    /// Its namespaces, keeper and network are there.
    Ready,
    /// Stopped, or its keeper is gone.
    NotReady,
}

/// What is written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// Its id.
    pub id: String,
    /// The Pod, for whoever reads the file.
    pub pod: String,
    /// What was asked for.
    pub config: Kept<PodSandboxConfig>,
    /// The runtime handler that was asked for.
    pub handler: String,
    /// How far it is.
    pub state: SandboxState,
    /// The boot in which it was made.
    pub boot: String,
    /// ns since 1970.
    pub created_at: i64,
    /// Its network namespace; none on the host's network.
    pub netns: Option<PathBuf>,
    /// CNI was asked to attach it, and not yet, or not with success, to detach it.
    pub attached: bool,
    /// Its addresses, the first one first.
    pub ips: Vec<String>,
    /// How it is attached to each network, if there are others than the default one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Attached>,
    /// Where its cgroups are.
    pub cgroup: PathBuf,
    /// True if that group is ours to remove.
    pub own_cgroup: bool,
}

/// Which namespaces a Pod shares with the host, and which its containers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// The host's network, and so its host name.
    pub host_network: bool,
    /// The host's IPC.
    pub host_ipc: bool,
    /// One pid namespace for all containers.
    pub pod_pid: bool,
}

/// What a sandbox's configuration says of that.
#[must_use]
pub fn sharing(config: &PodSandboxConfig) -> Sharing {
    let none = LinuxSandboxSecurityContext::default();
    let security = config.linux.as_ref().and_then(|l| l.security_context.as_ref()).unwrap_or(&none);
    let options = security.namespace_options.clone().unwrap_or_default();
    Sharing {
        host_network: options.network() == NamespaceMode::Node,
        host_ipc: options.ipc() == NamespaceMode::Node,
        pod_pid: security.namespace_options.is_some() && options.pid() == NamespaceMode::Pod,
    }
}

/// The users of a Pod that has its own; none if they are the host's.
///
/// # Errors
/// What cannot be.
pub fn owners(config: &PodSandboxConfig) -> Result<Option<Owners>, String> {
    let security = config.linux.as_ref().and_then(|l| l.security_context.as_ref());
    let options = security.and_then(|s| s.namespace_options.as_ref());
    let Some(owners) = mapped(options)? else { return Ok(None) };
    if sharing(config).host_network {
        return Err("a user namespace cannot be had on the host's network".to_owned());
    }
    Ok(Some(owners))
}

/// What namespace options say of users.
///
/// # Errors
/// What cannot be.
pub fn mapped(options: Option<&NamespaceOption>) -> Result<Option<Owners>, String> {
    let Some(users) = options.and_then(|o| o.userns_options.as_ref()) else { return Ok(None) };
    match users.mode() {
        NamespaceMode::Node => Ok(None),
        NamespaceMode::Pod => {
            Ok(Some(Owners { uids: ranges("uid", &users.uids)?, gids: ranges("gid", &users.gids)? }))
        }
        other => Err(format!("user namespaces are the Pod's or the node's, not {}", other.as_str_name())),
    }
}

/// Mappings as the specification has them.
#[must_use]
pub fn ids(ranges: &[IdMapping]) -> Vec<oci::IdMapping> {
    let one =
        |m: &IdMapping| oci::IdMapping { container_id: m.container_id, host_id: m.host_id, size: m.length };
    ranges.iter().map(one).collect()
}

fn ranges(of: &str, ranges: &[IdMapping]) -> Result<Vec<oci::IdMapping>, String> {
    match ranges {
        [only] if only.container_id == 0 && only.length > 0 => Ok(ids(ranges)),
        [_] => Err(format!("the {of} mapping does not begin at 0 in the container")),
        _ => Err(format!("there must be one {of} mapping, not {}", ranges.len())),
    }
}

/// A sandbox.
#[derive(Debug)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// Its folder.
    pub folder: PathBuf,
    record: Mutex<SandboxRecord>,
    keeper: Mutex<Option<Client>>,
    /// It is being removed: what it shares with others is theirs alone.
    pub(crate) leaving: AtomicBool,
    /// One call that changes it at a time.
    pub busy: tokio::sync::Mutex<()>,
}

impl Sandbox {
    /// A sandbox with this record, which is not written yet.
    #[must_use]
    pub fn new(record: SandboxRecord, folder: PathBuf) -> Self {
        Self {
            id: record.id.clone(),
            folder,
            record: Mutex::new(record),
            keeper: Mutex::new(None),
            leaving: AtomicBool::new(false),
            busy: tokio::sync::Mutex::new(()),
        }
    }

    /// Where its user namespace is pinned, if it has one.
    #[must_use]
    pub fn users_pin(&self) -> PathBuf {
        self.folder.join("userns")
    }

    /// Reads the record in `folder`.
    ///
    /// # Errors
    /// If it is not there or broken.
    pub fn load(folder: &Path) -> std::io::Result<Self> {
        let bytes = std::fs::read(folder.join("record.json"))?;
        let record: SandboxRecord = serde_json::from_slice(&bytes)?;
        of_its_folder(&record.id, folder)?;
        Ok(Self::new(record, folder.to_owned()))
    }

    /// What is known of it now.
    #[must_use]
    pub fn record(&self) -> SandboxRecord {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what is known and writes it down.
    ///
    /// # Errors
    /// If it cannot be written; it is changed in memory nevertheless.
    pub fn update(&self, change: impl FnOnce(&mut SandboxRecord)) -> std::io::Result<()> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut record);
        write_json(&self.folder.join("record.json"), &*record)
    }

    /// Its keeper, if it has one that is connected.
    #[must_use]
    pub fn keeper(&self) -> Option<Client> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets or forgets its keeper.
    pub fn set_keeper(&self, client: Option<Client>) {
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }
}
