//! Settings of the runtime.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use trine_kernel::netlink::Cidrs;

/// Settings of the runtime.
#[derive(Debug, Clone)]
pub struct Config {
    /// The socket that is served.
    pub socket: PathBuf,
    /// Where sandboxes and containers are recorded.
    pub state_dir: PathBuf,
    /// The image store, which other processes may use too.
    pub images_dir: PathBuf,
    /// The folder of network configurations.
    pub cni_conf_dir: PathBuf,
    /// The folders of network plugins, first match wins.
    pub cni_bin_dirs: Vec<PathBuf>,
    /// The folders of files that say what devices are (CDI), later ones count more.
    pub cdi_dirs: Vec<PathBuf>,
    /// Where the network's cache and addresses are kept.
    pub cni_state_dir: PathBuf,
    /// The instance's id: six hex digits.
    pub instance: String,
    /// The group of all Pods, below this process's own; `trine-<instance>` if empty.
    pub cgroup_parent: String,
    /// Where exec and attach are served; a port of the system's choice.
    pub streaming_address: IpAddr,
    /// The program that runs as `keeper`; this one if none.
    pub keeper: Option<PathBuf>,
    /// Where the kubelet's word goes of which Pod range the node has (`UpdateRuntimeConfig`); without it nobody asks.
    pub pod_range: Option<watch::Sender<Option<Cidrs>>>,
    /// How long looking at paths of the host may take when a container is made; 30 s unless said otherwise.
    pub paths_deadline: Duration,
    /// Registries of the image store.
    pub images: trine_images::Options,
}

impl Default for Config {
    fn default() -> Self {
        let root = Path::new("/var/lib/trine");
        Self {
            socket: root.join("run/cri.sock"),
            state_dir: root.join("cri"),
            images_dir: root.join("images"),
            cni_conf_dir: "/etc/cni/net.d".into(),
            cni_bin_dirs: vec!["/opt/cni/bin".into()],
            cdi_dirs: vec!["/etc/cdi".into(), "/var/run/cdi".into()],
            cni_state_dir: root.join("cni"),
            instance: "000000".to_owned(),
            cgroup_parent: String::new(),
            streaming_address: IpAddr::from([127, 0, 0, 1]),
            keeper: None,
            pod_range: None,
            paths_deadline: Duration::from_secs(30),
            images: trine_images::Options::default(),
        }
    }
}

impl Config {
    /// The folder of a sandbox.
    pub(crate) fn sandbox_dir(&self, id: &str) -> PathBuf {
        self.sandboxes_dir().join(id)
    }

    /// The folder of all sandboxes.
    pub(crate) fn sandboxes_dir(&self) -> PathBuf {
        self.state_dir.join("sandboxes")
    }

    /// The group of all Pods, below this process's own.
    pub(crate) fn pods_cgroup(&self) -> PathBuf {
        if self.cgroup_parent.is_empty() {
            PathBuf::from(format!("trine-{}", self.instance))
        } else {
            PathBuf::from(&self.cgroup_parent)
        }
    }

    /// The program of keepers.
    pub(crate) fn keeper_program(&self) -> PathBuf {
        self.keeper.clone().unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
    }
}
