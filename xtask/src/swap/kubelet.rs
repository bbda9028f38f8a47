//! An upstream kubelet on Trine's runtime. It joins Trine's control plane by a bootstrap token, as any node does; `crictl` looks at
//! the runtime beside it and runs a Pod of its own.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde_json::json;

use super::authority::{kubeconfig, server_of};
use super::facts::Facts;
use super::part::Played;
use super::stage::{Stage, free_port};
use super::story::{self, IMAGE, said};
use crate::upstream::go::{self, Tool};
use crate::upstream::images::own_address;

/// The kubelet.
const KUBELET: Tool =
    Tool { package: "k8s.io/kubernetes/cmd/kubelet", file: "kubelet", ..super::apiserver::APISERVER };

/// What people look at runtimes with.
const CRICTL: Tool = Tool {
    module: "tests/upstream/crictl",
    package: "sigs.k8s.io/cri-tools/cmd/crictl",
    test: false,
    file: "crictl",
    ldflags: "",
    versioned: "sigs.k8s.io/cri-tools",
};

/// Plays the part.
///
/// # Errors
/// If a peer cannot be had, or the story or `crictl` fails.
pub fn play(stage: &mut Stage) -> anyhow::Result<Played> {
    let kubelet = go::build(&stage.root, &KUBELET)?;
    let crictl = go::build(&stage.root, &CRICTL)?;
    let ranges = stage.server()?;
    stage.runtime()?;
    // Before there is a kubelet: it ends what it does not know.
    by_hand(stage, &crictl)?;
    let admin = stage.kubeconfig();
    let mut command = Command::new(kubelet);
    let settings = settings(stage)?;
    let (server, authority) = server_of(&admin)?;
    // Trine's agent also reads whose cluster it is.
    let token = stage.token(&admin)?;
    let token = token.split('@').next().unwrap_or_default();
    let bootstrap = stage.dir.join("bootstrap.kubeconfig");
    std::fs::write(&bootstrap, kubeconfig(&server, &authority, &format!("token: {token}")))?;
    command.args([
        format!("--config={}", settings.display()),
        format!("--bootstrap-kubeconfig={}", bootstrap.display()),
        format!("--kubeconfig={}", stage.dir.join("kubelet.kubeconfig").display()),
        format!("--cert-dir={}", stage.dir.join("kubelet-pki").display()),
        format!("--root-dir={}", stage.node().join("kubelet").display()),
        format!("--node-ip={}", own_address()),
    ]);
    stage.peer("kubelet", &mut command)?;
    stage.storage(&admin, true)?;
    stage.proxy(&admin, &ranges)?;
    let facts = stage.story(&admin)?;
    let peers = vec![
        format!("kubelet {}", go::version(&stage.root, &KUBELET)?),
        format!("crictl {}", go::version(&stage.root, &CRICTL)?),
    ];
    Ok(Played { facts, peers })
}

/// The settings of a kubelet that shares this machine with others.
fn settings(stage: &Stage) -> anyhow::Result<std::path::PathBuf> {
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup")?.flatten() {
        if hierarchy.file_type()?.is_dir() {
            let _ = std::fs::create_dir(hierarchy.path().join(stage.cgroup()));
        }
    }
    let settings = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", stage.node().join("run/cri.sock").display()),
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": authority_file(stage)?}},
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{}", stage.cgroup()), "failCgroupV1": false,
        "clusterDomain": "cluster.local", "resolvConf": "/etc/resolv.conf",
        "port": free_port()?.parse::<u16>()?, "healthzPort": 0,
        "podLogsDir": stage.node().join("log/pods"),
        "volumePluginDir": stage.dir.join("flexvolumes"),
        "serverTLSBootstrap": true, "rotateCertificates": true,
        "failSwapOn": false, "makeIPTablesUtilChains": false, "oomScoreAdj": 0,
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
    });
    let file = stage.dir.join("kubelet.json");
    std::fs::write(&file, settings.to_string())?;
    Ok(file)
}

/// Trine's authority as a file.
fn authority_file(stage: &Stage) -> anyhow::Result<std::path::PathBuf> {
    let file = stage.control().join("pki/ca.crt");
    anyhow::ensure!(file.is_file(), "there is no {}", file.display());
    Ok(file)
}

/// What a person does with `crictl`: a Pod, a container in it, a look at both, a command, the log, the end.
fn by_hand(stage: &Stage, crictl: &Path) -> anyhow::Result<()> {
    let endpoint = format!("unix://{}", stage.node().join("run/cri.sock").display());
    let ask = |words: &[&str]| -> anyhow::Result<String> {
        let mut command = Command::new(crictl);
        command.args([
            "--config",
            "/dev/null",
            "--runtime-endpoint",
            &endpoint,
            "--image-endpoint",
            &endpoint,
        ]);
        Ok(said(command.args(words)).context("crictl")?.trim().to_owned())
    };
    let file = |name: &str, json: serde_json::Value| -> anyhow::Result<String> {
        let path = stage.dir.join(name);
        std::fs::write(&path, json.to_string())?;
        Ok(path.display().to_string())
    };
    let logs = stage.dir.join("crictl-logs");
    let pod = file(
        "pod.json",
        json!({"metadata": {"name": "by-hand", "namespace": "default", "uid": "by-hand"},
        "log_directory": logs, "linux": {}}),
    )?;
    let container = file(
        "container.json",
        json!({"metadata": {"name": "web"}, "image": {"image": IMAGE},
        "log_path": "web.log", "linux": {}}),
    )?;
    let id = ask(&["runp", &pod])?;
    let inside = ask(&["create", &id, &container, &pod])?;
    ask(&["start", &inside])?;
    let mut seen = Facts::new();
    let mut see = |what: &str, says: &str, words: &[&str]| -> anyhow::Result<()> {
        let answer = story::soon(what, || {
            let answer = ask(words)?;
            anyhow::ensure!(answer.contains(says), "crictl {what} does not say {says}: {answer}");
            Ok(answer)
        })?;
        seen.insert(what.to_owned(), answer);
        Ok(())
    };
    see("version", "trine", &["version"])?;
    see("info", "NetworkReady", &["info"])?;
    see("images", "trine.local/swap", &["images"])?;
    see("pods", "by-hand", &["pods"])?;
    see("ps", "Running", &["ps"])?;
    see("inspect", "CONTAINER_RUNNING", &["inspect", &inside])?;
    see("inspectp", "SANDBOX_READY", &["inspectp", &id])?;
    see("logs", "listening on", &["logs", &inside])?;
    see("exec", "Usage", &["exec", &inside, "/trine", "web", "--help"])?;
    see("exec -s", "Usage", &["exec", "-s", &inside, "/trine", "web", "--help"])?;
    see("stats", "web", &["stats"])?;
    see("statsp", "by-hand", &["statsp"])?;
    ask(&["stop", &inside])?;
    see("ps -a", "Exited", &["ps", "-a"])?;
    ask(&["rm", &inside])?;
    ask(&["stopp", &id])?;
    ask(&["rmp", &id])?;
    println!("crictl: {}", seen.into_keys().collect::<Vec<_>>().join(", "));
    Ok(())
}
