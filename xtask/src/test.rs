//! `cargo xtask test`: everything that can be checked, from a fresh clone. Builds once, tests with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Context;

use crate::{arch, packages, skips, upstream, vm};

/// Runs all tests. `filter` names one test to run, for a developer's use.
///
/// # Errors
/// If a test fails, if more is skipped than declared, or if something is left on the machine.
pub fn run(filter: &[&str]) -> anyhow::Result<()> {
    let root = workspace_root()?;
    let begin = Instant::now();
    packages::install()?;
    packages::fetch_modules();
    step("formatting", || cargo(&root, &["fmt", "--all", "--check"]))?;
    step("architecture", || arch::check(&root))?;
    step("lints", || {
        cargo(&root, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])
    })?;
    step("build", || cargo(&root, &["build", "--workspace", "--all-targets", "--quiet"]))?;
    let skipped = skips::Collector::start()?;
    let program = root.join("target/debug/trine");
    // All that fails is to be seen in one run.
    let kinds = ["--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"];
    let mut words = [&["test"], &kinds[..], &["--", "--test-threads=2"]].concat();
    words.extend(filter);
    let result = step("tests", || {
        let mut command = cargo_command(&root);
        command.args(&words).env("TRINE_PROGRAM", &program);
        command.env(skips::VARIABLE, skipped.path());
        run_command(&mut command)
    });
    let suites = if filter.is_empty() {
        step("upstream's suites", || upstream::quick(&root, &program, skipped.path()))
    } else {
        Ok(())
    };
    let verdict = skipped.judge(&root)?;
    result?;
    suites?;
    verdict?;
    skips::no_leftovers()?;
    if filter.is_empty() {
        step("demo under a stock kernel", || vm::demo(&root))?;
    }
    println!("all tests passed in {:.0?}", begin.elapsed());
    Ok(())
}

/// Runs one part of the work and says how long it took.
fn step(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("== {name}");
    let since = Instant::now();
    let result = work().with_context(|| format!("{name} failed"));
    println!("== {name}: {} after {:.0?}", if result.is_ok() { "ok" } else { "FAILED" }, since.elapsed());
    result
}

fn cargo(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    run_command(cargo_command(root).args(words))
}

/// Cargo, as if a person had typed it: what `cargo xtask` says about the package xtask would make build scripts run again that
/// ask for it, and with them half of the build, each time that the other way is taken.
pub fn cargo_command(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root);
    let of_a_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_a_package)) {
        command.env_remove(name);
    }
    command
}

/// Runs a command to its end.
///
/// # Errors
/// If it cannot be started or fails.
pub fn run_command(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// The folder of the workspace.
///
/// # Errors
/// If this program was moved away from it.
pub fn workspace_root() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    anyhow::ensure!(root.join("Cargo.toml").is_file(), "{} is no workspace", root.display());
    Ok(root.to_owned())
}
