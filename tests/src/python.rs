//! The Python client, installed once into an environment of its own in `target/`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Name and version as the package index has them.
const CLIENT: &str = "kubernetes==37.0.2";

/// A Python that has the client; `None`, and a counted skip, where there is no Python.
///
/// # Panics
/// If it cannot be installed.
#[must_use]
pub fn with_client(test: &str) -> Option<PathBuf> {
    let able = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    if !able.is_ok_and(|o| o.status.success()) {
        trine_kernel::testing::skip(test, "needs python3 with venv");
        return None;
    }
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python").join(CLIENT);
    let python = target.join("bin/python");
    let whole = target.join("whole");
    if !whole.exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&target));
        run(Command::new(&python).args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            CLIENT,
        ]));
        std::fs::write(whole, "").expect("the environment is marked");
    }
    Some(python)
}

fn run(command: &mut Command) {
    let status = command.status().expect("python runs");
    assert!(status.success(), "{command:?}");
}
