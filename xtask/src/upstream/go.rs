//! Suites built from their published modules. Nothing of them is in this repository but `tests/upstream/*/go.mod`, which
//! names them, and `go.sum`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

/// One program of a module.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// The folder of `go.mod`.
    pub module: &'static str,
    /// The package; `./NAME` for one of our own, beside `go.mod`.
    pub package: &'static str,
    /// True if the package is a test, false if it is a program.
    pub test: bool,
    /// The file's name in `target/upstream`.
    pub file: &'static str,
    /// What the linker is told; `{version}` and `{minor}` stand for the suite's.
    pub ldflags: &'static str,
    /// The module whose version is the suite's.
    pub versioned: &'static str,
}

/// The version that upstream's own build writes into the programs of k8s.io/kubernetes.
pub const KUBERNETES_VERSION: &str = "-X k8s.io/component-base/version.gitVersion={version} \
    -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor={minor} \
    -X k8s.io/component-base/version.gitTreeState=clean";

/// Whether there is `go`.
#[must_use]
pub fn present() -> bool {
    Command::new("go").arg("version").output().is_ok_and(|output| output.status.success())
}

/// Builds a tool, unless `go.mod`, and its text if it is our own, are what it was built from already. Its path.
///
/// # Errors
/// In one line, if there is no Go, or if the module cannot be had or built.
pub fn build(root: &Path, tool: &Tool) -> anyhow::Result<PathBuf> {
    let module = root.join(tool.module);
    let made = root.join("target/upstream").join(tool.file);
    let stamp = made.with_extension("made-of");
    let ldflags = linked(tool.ldflags, &version(root, tool)?);
    let mut wanted = format!("{ldflags}\n{}", std::fs::read_to_string(module.join("go.mod"))?);
    if let Some(ours) = tool.package.strip_prefix("./") {
        wanted.push_str(&std::fs::read_to_string(module.join(ours).join("main.go"))?);
    }
    if made.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(made);
    }
    anyhow::ensure!(
        present(),
        "{} is built from its Go module: install Go 1.26 or newer, so that `go` is on PATH",
        tool.file
    );
    println!("== building {} from {}", tool.file, tool.package);
    std::fs::create_dir_all(root.join("target/upstream"))?;
    let flags = format!("-s -w {ldflags}");
    let mut command = Command::new("go");
    // A module may want a newer Go than the machine's; Go fetches that by itself unless told not to.
    command.current_dir(&module).env("GOTOOLCHAIN", "auto").env("GOFLAGS", "-buildvcs=false");
    command.args(if tool.test { &["test", "-c"][..] } else { &["build"] });
    command.args(["-trimpath", "-ldflags", &flags, "-o"]).arg(&made).arg(tool.package);
    let output = command.output().context("cannot run go")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        eprint!("{said}");
        anyhow::bail!("{} cannot be built: {}", tool.file, said.lines().last().unwrap_or("go said nothing"));
    }
    std::fs::write(stamp, wanted)?;
    Ok(made)
}

fn linked(ldflags: &str, version: &str) -> String {
    let minor = version.split('.').nth(1).unwrap_or_default();
    ldflags.replace("{version}", version).replace("{minor}", minor)
}

/// The version of the suite, as `go.mod` names it.
///
/// # Errors
/// If it does not.
pub fn version(root: &Path, tool: &Tool) -> anyhow::Result<String> {
    version_of(root, tool.module, tool.versioned)
}

/// The version of a module, as the `go.mod` in a folder names it.
///
/// # Errors
/// If it does not.
pub fn version_of(root: &Path, folder: &str, module: &str) -> anyhow::Result<String> {
    let path = root.join(folder).join("go.mod");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    required(&text, module).with_context(|| format!("{} names no {module}", path.display()))
}

fn required(go_mod: &str, module: &str) -> Option<String> {
    let words =
        go_mod.lines().map(|line| line.split_whitespace().filter(|w| *w != "require").collect::<Vec<_>>());
    words.filter(|w| w.len() >= 2 && w[0] == module).find_map(|w| w.get(1).map(|v| (*v).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_is_told_the_version_of_the_module() {
        assert_eq!(linked("-X a={version} -X b={minor}", "v1.37.2"), "-X a=v1.37.2 -X b=37");
        assert_eq!(linked("", "v1"), "");
    }

    #[test]
    fn the_version_is_the_one_that_is_required_alone_or_in_a_block() {
        let text = "module m\n\nrequire a.b/c v1.2.3\n\nrequire (\n\td.e/f/v5 v5.6.0 // indirect\n)\n\
                    replace d.e/g => d.e/g v0.1.0\n";
        assert_eq!(required(text, "a.b/c").as_deref(), Some("v1.2.3"));
        assert_eq!(required(text, "d.e/f/v5").as_deref(), Some("v5.6.0"));
        assert_eq!(required(text, "d.e/f"), None);
    }
}
