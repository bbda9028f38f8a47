//! `cargo xtask bench NAME`: the benchmarks, with the release build of the program.

use std::process::Command;

use crate::test::{cargo_command, run_command, workspace_root};

/// Runs a benchmark. The words behind the name are those of `sched`: `--nodes N`, `--pods M`, and `--debug` for the debug build.
///
/// # Errors
/// If there is none of that name, or it fails.
pub fn run(name: &str, words: &[&str]) -> anyhow::Result<()> {
    let root = workspace_root()?;
    let cargo = |words: &[&str]| run_command(cargo_command(&root).args(words));
    anyhow::ensure!(words.is_empty() || name == "sched", "{name} takes no words");
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
        _ => anyhow::bail!("benchmarks: api, pod, sched"),
    }
}
