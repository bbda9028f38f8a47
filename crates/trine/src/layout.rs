//! Where the files of one data dir are. A contract: scripts rely on these paths (docs/paths.md).

use std::path::{Path, PathBuf};

/// The data dir when none is named.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/trine";
/// Longest path of a unix socket, bytes (`sun_path`).
const MAX_SOCKET_PATH: usize = 107;

/// Paths of one data dir. With the default data dir the paths are those that the ecosystem hard-codes; with any other
/// they all lie inside it.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
    is_default: bool,
    /// Whose paths a further node of this machine has where others look for them by their name.
    seen_as: Option<PathBuf>,
}

impl Layout {
    /// The layout of `root`, made absolute.
    ///
    /// # Errors
    /// If a socket below it would have a longer path than Linux allows.
    pub fn new(root: &Path) -> anyhow::Result<Self> {
        let root = std::path::absolute(root)?;
        Self { is_default: root == Path::new(DEFAULT_DATA_DIR), root, seen_as: None }.checked()
    }

    /// The layout of `root` with the kubelet's, the network's and the logs' paths of the data dir `other`, which in the
    /// machine of a further node are this one's.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn seen_as(root: &Path, other: &Path) -> anyhow::Result<Self> {
        let (root, other) = (std::path::absolute(root)?, std::path::absolute(other)?);
        Self { is_default: other == Path::new(DEFAULT_DATA_DIR), root, seen_as: Some(other) }.checked()
    }

    fn checked(self) -> anyhow::Result<Self> {
        for socket in [self.csi_socket(), self.cri_socket()] {
            let length = socket.as_os_str().len();
            anyhow::ensure!(
                length <= MAX_SOCKET_PATH,
                "the data dir's path is too long: {} has {length} bytes, a unix socket may have {MAX_SOCKET_PATH}",
                socket.display()
            );
        }
        Ok(self)
    }

    fn or_inside(&self, well_known: &str, inside: &str) -> PathBuf {
        let root = self.seen_as.as_ref().unwrap_or(&self.root);
        if self.is_default { PathBuf::from(well_known) } else { root.join(inside) }
    }

    /// The data dir.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The admin's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// Sockets, pid and state of a running daemon.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The pid of a running daemon.
    #[must_use]
    pub fn pid_file(&self) -> PathBuf {
        self.run().join("trine.pid")
    }

    /// Where the runtime listens.
    #[must_use]
    pub fn cri_socket(&self) -> PathBuf {
        self.run().join("cri.sock")
    }

    /// The runtime's records and keepers.
    #[must_use]
    pub fn cri_state(&self) -> PathBuf {
        self.root.join("cri")
    }

    /// Images, layers and snapshots.
    #[must_use]
    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// The embedded store.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.root.join("store.redb")
    }

    /// Network configurations.
    #[must_use]
    pub fn cni_conf(&self) -> PathBuf {
        self.or_inside("/etc/cni/net.d", "cni/net.d")
    }

    /// Network plugins.
    #[must_use]
    pub fn cni_bin(&self) -> PathBuf {
        self.or_inside("/opt/cni/bin", "cni/bin")
    }

    /// Results of attachments, and addresses given away by the built-in IPAM.
    #[must_use]
    pub fn cni_state(&self) -> PathBuf {
        self.root.join("cni/state")
    }

    /// Mirrors and settings of registries, when no other folder is named.
    #[must_use]
    pub fn registries(&self) -> PathBuf {
        self.or_inside("/etc/containerd/certs.d", "registries")
    }

    /// The kubelet's root.
    #[must_use]
    pub fn kubelet(&self) -> PathBuf {
        self.or_inside("/var/lib/kubelet", "kubelet")
    }

    /// Container logs.
    #[must_use]
    pub fn pod_logs(&self) -> PathBuf {
        self.or_inside("/var/log/pods", "log/pods")
    }

    /// The daemon's own log, when detached.
    #[must_use]
    pub fn daemon_log(&self) -> PathBuf {
        self.root.join("log/trine.log")
    }

    /// The built-in driver's socket.
    #[must_use]
    pub fn csi_socket(&self) -> PathBuf {
        self.kubelet().join("plugins/disk.csi.trine.dev/csi.sock")
    }

    /// Where drivers announce themselves to the kubelet.
    #[must_use]
    pub fn plugins_registry(&self) -> PathBuf {
        self.kubelet().join("plugins_registry")
    }

    /// The built-in driver's volumes.
    #[must_use]
    pub fn pool(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// Recorded steps of all planes.
    #[must_use]
    pub fn steps(&self) -> PathBuf {
        self.root.join("log/steps.jsonl")
    }

    /// What a node that joined keeps: its certificates and its kubeconfig.
    #[must_use]
    pub fn agent(&self) -> PathBuf {
        self.root.join("agent")
    }

    /// The further nodes on this machine, a folder each.
    #[must_use]
    pub fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// What was chosen once for this data dir.
    #[must_use]
    pub fn identity(&self) -> PathBuf {
        self.root.join("identity.json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_default_data_dir_uses_the_well_known_paths() {
        let default = Layout::new(Path::new(DEFAULT_DATA_DIR)).unwrap();
        assert_eq!(default.cni_conf(), Path::new("/etc/cni/net.d"));
        assert_eq!(default.kubelet(), Path::new("/var/lib/kubelet"));
        let other = Layout::new(Path::new("/tmp/t")).unwrap();
        for path in [other.cni_conf(), other.cni_bin(), other.registries(), other.kubelet(), other.pod_logs()]
        {
            assert!(path.starts_with("/tmp/t"), "{}", path.display());
        }
    }

    #[test]
    fn a_further_node_has_the_paths_that_others_look_for_and_files_of_its_own() {
        let node = Layout::seen_as(Path::new("/tmp/t/nodes/n2"), Path::new("/tmp/t")).unwrap();
        assert_eq!(node.kubelet(), Path::new("/tmp/t/kubelet"));
        assert_eq!(node.images(), Path::new("/tmp/t/nodes/n2/images"));
        let root = Path::new("/var/lib/trine/nodes/n2");
        let of_default = Layout::seen_as(root, Path::new(DEFAULT_DATA_DIR)).unwrap();
        assert_eq!(of_default.kubelet(), Path::new("/var/lib/kubelet"));
        assert_eq!(of_default.pool(), Path::new("/var/lib/trine/nodes/n2/volumes"));
    }

    #[test]
    fn a_data_dir_whose_sockets_could_not_be_bound_is_refused() {
        let error = Layout::new(Path::new(&format!("/tmp/{}", "x".repeat(100)))).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
    }
}
