//! Programs in Go, built from published modules into `target/`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `package` in the module whose folder in the workspace is `module`, below the folder of its name in `target`, or finds
/// it fresh; `None`, and a counted skip, where Go is absent.
///
/// # Panics
/// If it does not build.
#[must_use]
pub fn build(test: &str, module: &str, package: &str, name: &str) -> Option<PathBuf> {
    if !trine_kernel::testing::program(test, "go") {
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = root.join("target").join(module.rsplit('/').next().unwrap_or(module));
    std::fs::create_dir_all(&target).expect("a folder for programs in Go");
    let binary = target.join(name);
    // Go looks itself whether anything has changed.
    let status = Command::new("go")
        .args(["build", "-trimpath", "-ldflags=-s -w", "-o"])
        .args([&binary, Path::new(package)])
        .current_dir(root.join(module))
        .status()
        .expect("go runs");
    assert!(status.success(), "{package} does not build");
    Some(binary)
}

/// The folder in which a module lies as it was published, in the version that the `go.mod` in a folder of the workspace names; it is
/// fetched if it is not there.
///
/// # Panics
/// If it cannot be had.
#[must_use]
pub fn module(folder: &str, module: &str) -> PathBuf {
    let output = Command::new("go")
        .args(["mod", "download", "-json", module])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder))
        .output()
        .expect("go runs");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let dir = said["Dir"].as_str();
    PathBuf::from(
        dir.unwrap_or_else(|| panic!("{module}: {said} {}", String::from_utf8_lossy(&output.stderr))),
    )
}
