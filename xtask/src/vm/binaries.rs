//! The test executables of the crates that face the kernel, as cargo names them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use serde::Deserialize;

use super::guest::{Job, Place};
use crate::test::cargo_command;

/// The crates whose tests ask the kernel for something.
const PACKAGES: [&str; 9] =
    ["kernel", "cni", "cri", "csi-driver", "images", "proxy", "policy", "overlay", "kubelet"];

/// One test executable.
#[derive(Debug, PartialEq, Eq)]
pub struct Binary {
    /// The package, and the target if it is not the library, as in `cri.pod`.
    name: String,
    /// The folder of its package, which its tests run in.
    folder: PathBuf,
    program: PathBuf,
}

/// Builds them all, with what else the workspace has: a part of it alone would want other features of the same crates.
///
/// # Errors
/// If one cannot be built.
pub fn build(root: &Path) -> anyhow::Result<Vec<Binary>> {
    let mut command = cargo_command(root);
    command.args(["test", "--workspace", "--no-run", "--message-format=json", "--quiet"]);
    command.args(["--lib", "--bins", "--tests"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    anyhow::ensure!(output.status.success(), "the tests cannot be built");
    let mut binaries = named(&String::from_utf8_lossy(&output.stdout));
    let rank = |binary: &Binary| {
        let package = binary.name.split('.').next().unwrap_or_default();
        PACKAGES.iter().position(|p| *p == package)
    };
    binaries.retain(|binary| rank(binary).is_some());
    binaries.sort_by_key(|binary| (rank(binary), binary.name.clone()));
    Ok(binaries)
}

impl Binary {
    /// The run of its tests, or of those whose name holds `filter`; none if there are none.
    #[must_use]
    pub fn job(&self, filter: Option<&str>) -> Option<Job> {
        let mut words = vec![self.program.to_string_lossy().into_owned(), "--test-threads=2".to_owned()];
        words.extend(filter.map(str::to_owned));
        let mut list = Command::new(&self.program);
        let listed = list.arg("--list").args(filter).current_dir(&self.folder).output().ok()?;
        let any = String::from_utf8_lossy(&listed.stdout).lines().any(|line| line.ends_with(": test"));
        any.then(|| Job {
            name: self.name.clone(),
            folder: self.folder.clone(),
            words,
            place: Place::Service,
            deadline: super::BINARY,
        })
    }
}

#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The test executables among cargo's messages, one JSON object a line.
fn named(messages: &str) -> Vec<Binary> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let binary = |message: Message| {
        let folder = message.manifest_path?.parent()?.to_owned();
        let package = folder.file_name()?.to_str()?.to_owned();
        let target = message.target?;
        let name = if target.kind.iter().any(|kind| kind == "lib") {
            package
        } else {
            format!("{package}.{}", target.name)
        };
        let test = message.profile.is_some_and(|profile| profile.test);
        let program = message.executable.filter(|_| test)?;
        Some(Binary { name, folder, program })
    };
    messages.filter_map(binary).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_from_what_else_cargo_builds() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/cri/Cargo.toml","target":{"name":"pod","kind":["test"]},"profile":{"test":true},"executable":"/w/target/debug/deps/pod-1"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/cri/Cargo.toml","target":{"name":"trine-keeper","kind":["bin"]},"profile":{"test":false},"executable":"/w/target/debug/trine-keeper"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/cri/Cargo.toml","target":{"name":"trine_cri","kind":["lib"]},"profile":{"test":true},"executable":"/w/target/debug/deps/trine_cri-1"}
{"reason":"build-finished","success":true}
"#;
        let binary = |name: &str, program: &str| Binary {
            name: name.into(),
            folder: "/w/crates/cri".into(),
            program: format!("/w/target/debug/deps/{program}").into(),
        };
        assert_eq!(named(messages), [binary("cri.pod", "pod-1"), binary("cri", "trine_cri-1")]);
    }
}
