//! Programs of images, built from Go modules.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::Place;

/// Builds a package of `tests/upstream/images`; Go looks itself whether anything has changed.
pub fn go(place: &Place, package: &str) -> anyhow::Result<PathBuf> {
    build(place, &place.root.join("tests/upstream/images"), package, name_of(package))
}

/// Builds a package of another module of the repository, which is called there as it is to be in the image.
pub fn go_of(place: &Place, module: &str, package: &str, to: &str) -> anyhow::Result<PathBuf> {
    build(place, &place.root.join(module), package, name_of(to))
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn build(place: &Place, module: &Path, package: &str, name: &str) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(
        super::super::go::present(),
        "{package} is built from its Go module: install Go 1.26 or newer, so that `go` is on PATH"
    );
    let made = place.dir.join("go").join(name);
    let mut command = Command::new("go");
    command.current_dir(module).env("GOTOOLCHAIN", "auto").env("CGO_ENABLED", "0");
    command.args(["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o"]).arg(&made).arg(package);
    let output = command.output().context("cannot run go")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{package} cannot be built: {}", said.trim());
    Ok(made)
}

/// The files of the module k8s.io/kubernetes in the version that `go.mod` names.
pub fn kubernetes(place: &Place) -> anyhow::Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", "k8s.io/kubernetes"])
        .current_dir(place.root.join("tests/upstream/images"))
        .output()
        .context("cannot run go")?;
    let answer: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("what go says of the module")?;
    let dir = answer["Dir"].as_str().with_context(|| format!("the module k8s.io/kubernetes: {answer}"))?;
    Ok(PathBuf::from(dir))
}
