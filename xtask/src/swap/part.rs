//! Which parts can be swapped.

use super::facts::Facts;
use super::stage::Stage;
use super::{apiserver, containerd, hostpath, kubelet, sidecars};

/// What a run has shown.
pub struct Played {
    /// What was seen of the story.
    pub facts: Facts,
    /// Who played, with versions.
    pub peers: Vec<String>,
}

/// One plane whose other side is somebody else's.
pub struct Part {
    /// The word of the command line.
    pub name: &'static str,
    /// What is Trine's and what is not.
    pub about: &'static str,
    /// Runs the story in a fresh stage.
    pub play: fn(&mut Stage) -> anyhow::Result<Played>,
}

/// All parts, in the order of the table.
pub const PARTS: [Part; 5] = [
    Part {
        name: "apiserver",
        about: "Trine's scheduler, controllers, kubelet and proxy on an upstream API server and etcd",
        play: apiserver::play,
    },
    Part { name: "cri", about: "an upstream kubelet, and crictl, on Trine's runtime", play: kubelet::play },
    Part {
        name: "containerd",
        about: "Trine's kubelet on containerd and runc, which call Trine's network plugins",
        play: containerd::play,
    },
    Part {
        name: "csi-driver",
        about: "Trine's CSI driver under the upstream provisioner, attacher and resizer",
        play: sidecars::play,
    },
    Part {
        name: "hostpath",
        about: "the upstream csi-driver-host-path with its sidecars on Trine",
        play: hostpath::play,
    },
];

/// What can be swapped, a line each.
#[must_use]
pub fn list() -> String {
    PARTS.iter().map(|part| format!("{:<12} {}", part.name, part.about)).collect::<Vec<_>>().join("\n")
}
