//! `cargo xtask model [STEPS [SEED]]`: the controllers against a model with faults (`crates/controllers/tests/model`), for long.

use anyhow::Context;

use crate::test::{cargo_command, run_command, workspace_root};

/// Runs it; each seed is printed, and one that fails with the way to run it again.
///
/// # Errors
/// If a rule is broken.
pub fn run(words: &[&str]) -> anyhow::Result<()> {
    let test = ["test", "--release", "--package", "trine-controllers", "--test", "model"];
    let mut command = cargo_command(&workspace_root()?);
    command.args(test).args(["for_long", "--", "--ignored", "--nocapture"]);
    if let Some(steps) = words.first() {
        steps.parse::<u64>().context("STEPS is a number")?;
        command.env("TRINE_STEPS", steps);
    }
    if let Some(seed) = words.get(1) {
        command.env("TRINE_SEED", seed);
    }
    run_command(&mut command)
}
