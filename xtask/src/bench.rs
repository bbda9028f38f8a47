//! `cargo xtask bench NAME`: the benchmarks, with the release build of the program.

use std::process::Command;

use crate::test::{cargo_command, run_command, workspace_root};

/// Runs a benchmark.
///
/// # Errors
/// If there is none of that name, or it fails.
pub fn run(name: &str) -> anyhow::Result<()> {
    let root = workspace_root()?;
    let cargo = |words: &[&str]| run_command(cargo_command(&root).args(words));
    if name == "api" {
        cargo(&["bench", "--package", "trine-store", "--bench", "writes", "--quiet"])?;
        return cargo(&["bench", "--package", "trine-apiserver", "--bench", "api", "--quiet"]);
    }
    anyhow::ensure!(name == "pod", "benchmarks: api, pod");
    cargo(&["build", "--release", "--package", "trine", "--quiet"])?;
    cargo(&["build", "--package", "trine-tests", "--bin", "bench-pod", "--quiet"])?;
    let mut command = Command::new(root.join("target/debug/bench-pod"));
    run_command(command.env("TRINE_PROGRAM", root.join("target/release/trine")))
}
