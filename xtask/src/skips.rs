//! Tests that could not run are counted and named; more of them than declared fail the run. So do leftovers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::packages;

/// The variable that names the file in which tests say that they were skipped.
pub const VARIABLE: &str = "TRINE_SKIPPED_TESTS";
/// The declared skips: one test name a line, with the reason behind `#`, per kind of machine in a section `[kind]`.
const DECLARED: &str = "tests/allowed-skips.txt";

/// Collects skips in a file.
pub struct Collector(PathBuf);

impl Collector {
    /// An empty file of this process.
    ///
    /// # Errors
    /// What the file system says.
    pub fn start() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("trine-skipped-{}", std::process::id()));
        std::fs::write(&path, "")?;
        Ok(Self(path))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Prints what was skipped; the inner error says what of it is not declared for this machine.
    ///
    /// # Errors
    /// If the declaration cannot be read.
    pub fn judge(&self, root: &Path) -> anyhow::Result<anyhow::Result<()>> {
        let text = std::fs::read_to_string(&self.0)?;
        let declared = std::fs::read_to_string(root.join(DECLARED)).context(DECLARED)?;
        let allowed = allowed(&declared, &kinds());
        let mut undeclared = Vec::new();
        let lines: BTreeSet<&str> = text.lines().collect();
        for line in &lines {
            let (test, reason) = line.split_once('\t').unwrap_or((line, "no reason given"));
            println!("skipped: {test}: {reason}");
            if !allowed.contains(test) {
                undeclared.push(test);
            }
        }
        println!("{} tests skipped", lines.len());
        Ok(if undeclared.is_empty() {
            Ok(())
        } else {
            Err(anyhow::anyhow!("skipped, but not declared in {DECLARED} for {:?}: {undeclared:?}", kinds()))
        })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What this machine is, as far as skips depend on it.
fn kinds() -> Vec<&'static str> {
    let root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.starts_with(b"0\n"));
    let debian = Path::new("/usr/bin/apt-get").exists();
    let mut kinds = vec!["any"];
    kinds.extend((!root).then_some("not-root"));
    kinds.extend((!debian).then_some("not-debian"));
    kinds.extend((!root || !debian).then_some("without-packages"));
    let python = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    kinds.extend((!python.is_ok_and(|o| o.status.success())).then_some("without-python"));
    kinds.extend((!packages::have_modules()).then_some("without-go-modules"));
    kinds.extend(kernel_kinds());
    kinds
}

/// What the name of a kind begins with that says what this machine's kernel does not have.
const KERNEL: &str = "kernel-without-";

/// Kinds of kernel, by what this one does not have.
fn kernel_kinds() -> Vec<&'static str> {
    let version_2_alone = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let has = |command: &str| {
        let mut shell = Command::new("unshare");
        shell.args(["--net", "/bin/sh", "-c", command]);
        shell.output().is_ok_and(|output| output.status.success())
    };
    let lacking = [
        (version_2_alone, "kernel-without-cgroup-2"),
        (has(VLAN), "kernel-without-vlan"),
        (has(BRIDGE_VLANS), "kernel-without-bridge-vlans"),
        (has("ip link add x type vrf table 10"), "kernel-without-vrf"),
        (Path::new("/proc/net/sctp").exists() || has("modprobe sctp"), "kernel-without-sctp"),
    ];
    lacking.into_iter().filter(|(has, _)| !has).map(|(_, kind)| kind).collect()
}

/// Succeeds where there is 802.1Q.
const VLAN: &str = "ip link add x type veth peer name y && ip link add z link x type vlan id 7";
/// Succeeds where bridges keep VLANs apart.
const BRIDGE_VLANS: &str =
    "ip link add x type bridge vlan_filtering 1 && ip -details link show x | grep -q 'vlan_filtering 1'";

/// Tests that may be skipped on this machine's programs under a kernel that has everything.
///
/// # Errors
/// If the declaration cannot be read.
pub fn allowed_under_a_stock_kernel(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let declared = std::fs::read_to_string(root.join(DECLARED)).context(DECLARED)?;
    let kinds: Vec<&str> =
        kinds().into_iter().filter(|kind| !kind.starts_with(KERNEL) && *kind != "not-root").collect();
    Ok(allowed(&declared, &kinds).into_iter().map(str::to_owned).collect())
}

/// Tests that are skipped here because of what this machine's kernel does not have.
///
/// # Errors
/// If the declaration cannot be read.
pub fn skipped_for_this_kernel(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let declared = std::fs::read_to_string(root.join(DECLARED)).context(DECLARED)?;
    Ok(allowed(&declared, &kernel_kinds()).into_iter().map(str::to_owned).collect())
}

fn allowed<'a>(declared: &'a str, kinds: &[&str]) -> BTreeSet<&'a str> {
    let mut section = "any";
    let mut tests = BTreeSet::new();
    for line in declared.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name;
        } else if !line.is_empty() && kinds.contains(&section) {
            tests.insert(line);
        }
    }
    tests
}

/// Looks for what tests may have left: links, namespaces, tables, mounts, loop devices, keepers.
///
/// # Errors
/// If anything with our names is there.
pub fn no_leftovers() -> anyhow::Result<()> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let ours = name
            .strip_prefix("tr")
            .is_some_and(|rest| rest.len() >= 6 && rest.bytes().all(|b| b.is_ascii_hexdigit()));
        if ours {
            left.push(format!("link {name}"));
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    left.extend(mounts.lines().filter(|l| l.contains("trine")).map(|l| format!("mount {l}")));
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if file.contains("trine") {
            left.push(format!("loop device {}", file.trim()));
        }
    }
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = words.split(|b| *b == 0).map(String::from_utf8_lossy);
        let (program, verb) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if verb == "keeper" || (program.ends_with("/trine") && ["up", "server", "agent"].contains(&&*verb)) {
            left.push(format!("process {} {program} {verb}", entry.file_name().to_string_lossy()));
        }
    }
    let tables = Command::new("nft").args(["list", "tables"]).output();
    let tables = tables.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    left.extend(tables.lines().filter(|l| l.contains("trine")).map(str::to_owned));
    anyhow::ensure!(left.is_empty(), "left on this machine:\n  {}", left.join("\n  "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_allowed_by_the_kinds_of_this_machine_only() {
        let text = "a # always\n[not-root]\nb\n[without-packages]\nc\n";
        assert_eq!(allowed(text, &["any", "not-root"]), BTreeSet::from(["a", "b"]));
    }
}
