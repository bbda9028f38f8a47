//! Trine's kubelet on Debian's containerd and runc. containerd executes Trine's network plugins, which `trine cni install` has put
//! where it looks.

use std::process::Command;

use anyhow::Context;

use super::part::Played;
use super::stage::Stage;
use super::story::{self, said};
use crate::packages;

/// What holds a Pod's namespaces: any program that does nothing.
const PAUSE: &str = "trine.local/pause:1";
/// The length of the node's range.
const NODE_PREFIX: u8 = 24;

/// Plays the part.
///
/// # Errors
/// If a peer cannot be had, or the story fails.
pub fn play(stage: &mut Stage) -> anyhow::Result<Played> {
    packages::install_for_swap()?;
    let ranges = stage.server()?;
    let plugins = stage.dir.join("cni/bin");
    let networks = stage.dir.join("cni/net.d");
    let own = format!("{}/{NODE_PREFIX}", ranges.pods.split('/').next().unwrap_or_default());
    let mut install = Command::new(&stage.program);
    install.args(["cni", "install", "--dir"]).arg(&plugins).arg("--conf-dir").arg(&networks);
    said(install.args(["--pod-cidr", &own, "--data-dir"]).arg(stage.node()))?;

    let socket = stage.dir.join("containerd.sock");
    let settings = stage.dir.join("containerd.toml");
    std::fs::write(&settings, config(stage))?;
    stage.peer("containerd", Command::new("containerd").arg("--config").arg(&settings))?;
    stage.until("containerd", || socket.exists())?;
    let ctr = |words: &[&str]| {
        let mut command = Command::new("ctr");
        said(command.arg("--address").arg(&socket).args(["--namespace", "k8s.io"]).args(words)).context("ctr")
    };
    let archive = story::image(&stage.program, &stage.dir)?.display().to_string();
    let pause = pause(stage)?;
    story::soon("containerd takes images", || ctr(&["images", "import", &archive]).map(drop))?;
    ctr(&["images", "import", &pause])?;

    let admin = stage.kubeconfig();
    let (endpoint, group) = (format!("unix://{}", socket.display()), format!("/{}", stage.cgroup()));
    stage.kubelet(&admin, &["--container-runtime-endpoint", &endpoint, "--cgroup-root", &group])?;
    stage.storage(&admin, true)?;
    stage.proxy(&admin, &ranges)?;
    let facts = stage.story(&admin)?;
    let version = |program: &str| -> anyhow::Result<String> {
        let text = said(Command::new(program).arg("--version"))?;
        let words: Vec<&str> = text.lines().next().unwrap_or_default().split_whitespace().collect();
        Ok(format!("{program} {}", words.get(2).copied().unwrap_or_default()))
    };
    Ok(Played { facts, peers: vec![version("containerd")?, version("runc")?] })
}

/// An archive of an image that does nothing.
fn pause(stage: &Stage) -> anyhow::Result<String> {
    let archive = stage.dir.join("pause.tar");
    let mut build = Command::new(&stage.program);
    build.args(["image", "build", "--tag", PAUSE, "--entrypoint", "/busybox", "--entrypoint", "sleep"]);
    build.args(["--entrypoint", "2147483647", "--data-dir"]).arg(&stage.dir).arg("--output").arg(&archive);
    said(build.arg("/bin/busybox:/busybox"))?;
    Ok(archive.display().to_string())
}

/// containerd's settings: everything of it in the run's folder. Its sandboxes may not be spared from the kernel's memory killer,
/// which needs a right that this machine may not have.
fn config(stage: &Stage) -> String {
    let dir = stage.dir.display();
    format!(
        r#"version = 2
root = "{dir}/containerd/root"
state = "{dir}/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{dir}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{dir}/containerd/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{dir}/cni/bin"
    conf_dir = "{dir}/cni/net.d"
"#
    )
}
