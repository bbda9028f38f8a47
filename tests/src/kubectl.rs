//! The current kubectl, built once from its published Go module into `target/`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cluster::{Cluster, Outcome};

const VERSION: &str = "v1.37.2";

/// Builds kubectl if it is not built yet; `None`, and a counted skip, where Go is absent.
///
/// # Panics
/// If it does not build.
#[must_use]
pub fn build(test: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = root.join("../target/kubectl");
    let binary = target.join(format!("kubectl-{VERSION}"));
    if binary.exists() {
        return Some(binary);
    }
    if !trine_kernel::testing::program(test, "go") {
        return None;
    }
    std::fs::create_dir_all(&target).expect("a folder for kubectl");
    let fresh = target.join(format!("kubectl-{}", std::process::id()));
    let status = Command::new("go")
        .args(["build", "-trimpath", "-ldflags"])
        .arg(format!("-s -w -X k8s.io/component-base/version.gitVersion={VERSION}"))
        .arg("-o")
        .arg(&fresh)
        .arg(".")
        .current_dir(root.join("clients/kubectl"))
        .status()
        .expect("go runs");
    assert!(status.success(), "kubectl does not build");
    std::fs::rename(&fresh, &binary).expect("kubectl is put in place");
    Some(binary)
}

/// A kubectl command against a cluster.
#[must_use]
pub fn command(kubectl: &Path, cluster: &Cluster, words: &[&str]) -> Command {
    let mut command = Command::new(kubectl);
    command.arg("--kubeconfig").arg(cluster.dir().join("kubeconfig"));
    // Its discovery cache must not outlive the cluster.
    command.arg("--cache-dir").arg(cluster.dir().join("run/kubectl-cache"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs kubectl to its end.
///
/// # Panics
/// If it cannot be started.
#[must_use]
pub fn run(kubectl: &Path, cluster: &Cluster, words: &[&str]) -> Outcome {
    command(kubectl, cluster, words).output().expect("kubectl starts").into()
}
