//! `cargo xtask fuzz TARGET [SECONDS]`: a search for bytes that a reader does not withstand, steered by coverage.
//!
//! The compiler counts which branches an input takes (stable rustc can: the pass is LLVM's own), libFuzzer changes inputs so
//! that they take new ones. What it found is kept under `target/fuzz`; what makes a target fail is printed by libFuzzer and
//! belongs into `fuzz/corpus`.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::test::{cargo_command, run_command, workspace_root};

/// How long, unless told otherwise, in seconds.
const SECONDS: u32 = 600;
/// Counters in every branch, and comparisons told to the fuzzer.
const FLAGS: &str = "--cfg fuzzing -Cdebug-assertions -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Searches.
///
/// # Errors
/// If there is no such target, it cannot be built (a C++ compiler is needed), or the search found something.
pub fn run(target: &str, seconds: Option<&str>) -> anyhow::Result<()> {
    let root = workspace_root()?;
    let corpus = root.join("fuzz/corpus").join(target);
    anyhow::ensure!(corpus.is_dir(), "targets: {}", targets(&root)?.join(", "));
    let seconds: u32 = seconds.map_or(Ok(SECONDS), str::parse).context("SECONDS is a number")?;
    let triple = host()?;
    let built = root.join("target/fuzz");
    let build = ["build", "--release", "--package", "trine-fuzz", "--features", "guided", "--bin", "guided"];
    run_command(
        cargo_command(&root)
            .args(build)
            .args(["--target", &triple, "--target-dir"])
            .arg(&built)
            .env("RUSTFLAGS", FLAGS),
    )?;
    let found = built.join("found").join(target);
    let failing = built.join("failing").join(target);
    std::fs::create_dir_all(&found)?;
    std::fs::create_dir_all(&failing)?;
    run_command(
        Command::new(built.join(triple).join("release/guided"))
            .env("TRINE_FUZZ", target)
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", failing.display()))
            .args(["-max_len=16384", "-timeout=10", "-rss_limit_mb=4096", "-print_final_stats=1"])
            .args([&found, &corpus]),
    )
}

fn targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join("fuzz/corpus"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Flags for a named triple do not reach build scripts.
fn host() -> anyhow::Result<String> {
    let said = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let said = String::from_utf8_lossy(&said.stdout);
    let host = said.lines().find_map(|l| l.strip_prefix("host: ")).context("rustc does not say its host")?;
    Ok(host.to_owned())
}
