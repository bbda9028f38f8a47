//! `cargo xtask manifests`: those of `tests/manifests` that take minutes.

use crate::test::{cargo_command, run_command, workspace_root};
use crate::{packages, upstream};

/// Makes the database's image of Debian's packages, and runs them.
///
/// # Errors
/// If something cannot be had, or a test fails.
pub fn run() -> anyhow::Result<()> {
    let root = workspace_root()?;
    packages::install()?;
    run_command(cargo_command(&root).args(["build", "--package", "trine", "--quiet"]))?;
    let program = root.join("target/debug/trine");
    let image = upstream::images::of_manifests(&root, &program)?;
    let test = ["test", "--package", "trine-tests", "--test", "manifests", "--"];
    let mut command = cargo_command(&root);
    command.args(test).args(["--include-ignored", "--test-threads=1"]);
    run_command(command.env("TRINE_PROGRAM", &program).env("TRINE_POSTGRES_IMAGE", image))
}
