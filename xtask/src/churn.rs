//! `cargo xtask churn`: what the runtime, and who cares for volumes, have to stand, in its long form.

use crate::packages;
use crate::test::{cargo_command, run_command, workspace_root};

/// Twenty thousand attachments by the network plugins, two thousand Pods, a death at the first and the last time at every place of every call,
/// and one of the daemon at every place of a volume's life.
///
/// # Errors
/// If a package cannot be had, or a test fails.
pub fn run() -> anyhow::Result<()> {
    let root = workspace_root()?;
    packages::install()?;
    let test =
        ["test", "--package", "trine-cni", "--test", "plugins", "many_that_come_and_go", "--", "--nocapture"];
    run_command(cargo_command(&root).args(test).env("TRINE_CNI_ROUNDS", "625"))?;
    let test = ["test", "--package", "trine-cri", "--test", "robust", "--"];
    let mut command = cargo_command(&root);
    command.args(test).args(["--include-ignored", "--nocapture", "--test-threads=1"]);
    run_command(command.env("TRINE_TEST_ALL_DEATHS", "1"))?;
    run_command(cargo_command(&root).args(["build", "--package", "trine"]))?;
    let test = ["test", "--package", "trine-tests", "--test", "volumes", "deaths", "--", "--nocapture"];
    run_command(cargo_command(&root).args(test).env("TRINE_TEST_ALL_DEATHS", "1"))
}
