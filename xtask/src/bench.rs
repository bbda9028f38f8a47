//! `cargo xtask bench NAME`: the benchmarks, with the release build of the program.

use std::path::Path;
use std::process::Command;

use crate::packages;
use crate::test::{cargo_command, run_command, workspace_root};
use crate::upstream::go::{self, Tool};

/// containerd, from its published module: itself, what holds a Pod, and what gives it an image.
const CONTAINERD: [Tool; 3] =
    [containerd("containerd"), containerd("containerd-shim-runc-v2"), containerd("ctr")];

const fn containerd(file: &'static str) -> Tool {
    let package = match file.as_bytes() {
        b"containerd" => "github.com/containerd/containerd/v2/cmd/containerd",
        b"ctr" => "github.com/containerd/containerd/v2/cmd/ctr",
        _ => "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    };
    Tool {
        module: "tests/upstream/containerd",
        package,
        test: false,
        file,
        ldflags: "-X github.com/containerd/containerd/v2/version.Version={version}",
        versioned: "github.com/containerd/containerd/v2",
    }
}

/// Runs a benchmark. The words behind the name are those of `sched` (`--nodes N`, `--pods M`, and `--debug` for the debug build)
/// of `cri` (`--rounds N`, `--alone`, `--reference`), of `cni` (`--rounds N`, `--in-use N`, `--small`), and of `csi` (`--rounds N`);
/// `ways` takes none.
///
/// # Errors
/// If there is none of that name, or it fails.
pub fn run(name: &str, words: &[&str]) -> anyhow::Result<()> {
    let root = workspace_root()?;
    let cargo = |words: &[&str]| run_command(cargo_command(&root).args(words));
    anyhow::ensure!(
        words.is_empty() || ["sched", "cri", "cni", "csi"].contains(&name),
        "{name} takes no words"
    );
    match name {
        "api" => {
            cargo(&["bench", "--package", "trine-store", "--bench", "writes", "--quiet"])?;
            cargo(&["bench", "--package", "trine-apiserver", "--bench", "api", "--quiet"])
        }
        "pod" => {
            cargo(&["build", "--release", "--package", "trine", "--quiet"])?;
            cargo(&["build", "--package", "trine-tests", "--bin", "bench-pod", "--quiet"])?;
            let mut command = Command::new(root.join("target/debug/bench-pod"));
            run_command(command.env("TRINE_PROGRAM", root.join("target/release/trine")))
        }
        "sched" => {
            let (debug, size): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| **word == "--debug");
            let profile: &[&str] = if debug.is_empty() { &["--release"] } else { &[] };
            // Both at once, or their dependencies are built twice. The client shares the cores: a slow one would be measured.
            let both = ["build", "--package", "trine", "--package", "trine-tests", "--bin", "trine"];
            cargo(&[&both[..], &["--bin", "bench-sched", "--quiet"], profile].concat())?;
            let target = root.join("target").join(if debug.is_empty() { "release" } else { "debug" });
            let mut command = Command::new(target.join("bench-sched"));
            command.args(&size).env("TRINE_PROGRAM", target.join("trine"));
            if words.is_empty() {
                command.arg("--out").arg(root.join("benches/SCHED.md"));
            }
            run_command(&mut command)
        }
        "cri" => cri(&root, words),
        "cni" => cni(&root, words),
        "csi" => {
            let mut command = cargo_command(&root);
            command.args(["bench", "--package", "trine-csi-driver", "--bench", "csi", "--quiet", "--"]);
            if words.is_empty() {
                command.arg("--out").arg(root.join("benches/CSI.md"));
            }
            run_command(command.args(words))
        }
        "ways" => ways(&root),
        _ => anyhow::bail!("benchmarks: api, cni, cri, csi, pod, sched, ways"),
    }
}

/// Trine's runtime beside containerd with runc and with crun. `--alone` without them; `--reference` on the reference plugins' bridge
/// instead of Trine's network; a run that is neither and has all rounds writes its page.
fn cri(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    packages::install_for_bench()?;
    let mut command = cargo_command(root);
    command.args(["bench", "--package", "trine-cri", "--bench", "cri", "--quiet", "--"]);
    if !words.contains(&"--alone") {
        for tool in &CONTAINERD {
            go::build(root, tool)?;
        }
        command.arg("--containerd").arg(root.join("target/upstream"));
        command.args(["--runc", packages::RUNC, "--crun", packages::CRUN]);
    }
    let page = match words.iter().find(|word| word.starts_with("--")) {
        None => Some("benches/CRI.md"),
        Some(_) if words == ["--reference"] => Some("benches/CRI-REFERENCE.md"),
        Some(_) => None,
    };
    if let Some(page) = page {
        command.arg("--out").arg(root.join(page));
    }
    for word in words.iter().filter(|word| **word != "--alone") {
        if *word == "--reference" {
            command.args(["--bridge", packages::REFERENCE_PLUGINS]);
        } else {
            command.arg(word);
        }
    }
    run_command(&mut command)
}

/// Trine's network plugins beside the reference's. `--small` executes the benchmark's own program instead of the whole one. It runs before
/// others of this machine: what it measures takes milliseconds.
fn cni(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    packages::install_for_network_bench()?;
    let reference = crate::upstream::network_plugins::build(root)?;
    let (small, words): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| **word == "--small");
    run_command(cargo_command(root).args([
        "bench",
        "--package",
        "trine-cni",
        "--bench",
        "cni",
        "--no-run",
        "--quiet",
    ]))?;
    let mut command = Command::new("nice");
    command.args(["-n", "-15"]).arg(env!("CARGO")).current_dir(root);
    command.args(["bench", "--package", "trine-cni", "--bench", "cni", "--quiet", "--"]);
    command.arg("--reference").arg(reference).args(["--iperf", packages::IPERF]);
    if small.is_empty() {
        run_command(cargo_command(root).args(["build", "--release", "--package", "trine", "--quiet"]))?;
        command.arg("--trine").arg(root.join("target/release/trine"));
    }
    if !words.is_empty() {
        return run_command(command.args(words));
    }
    run_command(command.arg("--out").arg(root.join("benches/CNI.md")))?;
    ways(root)
}

/// Routes beside tunnels between nodes: a section of the same page. The work is the kernel's, so nothing is optimised for it.
fn ways(root: &Path) -> anyhow::Result<()> {
    let mut command = cargo_command(root);
    command.args([
        "bench",
        "--profile",
        "dev",
        "--package",
        "trine-overlay",
        "--bench",
        "ways",
        "--quiet",
        "--",
    ]);
    run_command(command.arg("--out").arg(root.join("benches/CNI.md")))
}
