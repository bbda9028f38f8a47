//! Trine's CSI driver with upstream's sidecars instead of Trine's controllers: they provision and attach on Trine's API
//! server, for Trine's kubelet. The resizer takes the driver, and has nothing to do: nothing grows in this story.

use std::path::Path;
use std::process::Command;

use super::part::Played;
use super::stage::Stage;
use crate::upstream::go::{self, Tool};

/// The sidecars, and what each is told beside the socket.
const PROVISIONER: Tool = Tool {
    module: "tests/upstream/sidecars",
    package: "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner",
    test: false,
    file: "csi-provisioner",
    ldflags: "",
    versioned: "github.com/kubernetes-csi/external-provisioner/v6",
};
const ATTACHER: Tool = Tool {
    package: "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher",
    file: "csi-attacher",
    versioned: "github.com/kubernetes-csi/external-attacher/v4",
    ..PROVISIONER
};
const RESIZER: Tool = Tool {
    package: "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer",
    file: "csi-resizer",
    versioned: "github.com/kubernetes-csi/external-resizer/v2",
    ..PROVISIONER
};

/// Plays the part.
///
/// # Errors
/// If a peer cannot be had, or the story fails.
pub fn play(stage: &mut Stage) -> anyhow::Result<Played> {
    let ranges = stage.server()?;
    let admin = stage.kubeconfig();
    stage.runtime()?;
    stage.kubelet(&admin, &[])?;
    stage.storage(&admin, false)?;
    let socket = stage.node().join("kubelet/plugins/disk.csi.trine.dev/csi.sock");
    let peers = start(stage, &admin, &socket)?;
    stage.proxy(&admin, &ranges)?;
    let facts = stage.story(&admin)?;
    Ok(Played { facts, peers })
}

/// Starts the sidecars for the driver at a socket.
///
/// # Errors
/// If they cannot be had.
pub fn start(stage: &mut Stage, admin: &Path, socket: &Path) -> anyhow::Result<Vec<String>> {
    let mut peers = Vec::new();
    for (tool, words) in [
        (PROVISIONER, &["--extra-create-metadata", "--feature-gates=Topology=true", "--default-fstype="][..]),
        (ATTACHER, &[]),
        (RESIZER, &[]),
    ] {
        let program = go::build(&stage.root, &tool)?;
        let mut command = Command::new(program);
        command.arg(format!("--kubeconfig={}", admin.display()));
        command.arg(format!("--csi-address={}", socket.display())).arg("--leader-election=false").args(words);
        stage.peer(tool.file, &mut command)?;
        peers.push(format!("{} {}", tool.file, go::version(&stage.root, &tool)?));
    }
    Ok(peers)
}
