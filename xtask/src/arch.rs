//! `cargo xtask arch`: the rules of ARCHITECTURE.md that a machine can check.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

use crate::test::cargo_command;

/// Soft limit of a file, lines: longer ones are named.
const LONG: usize = 500;
/// Hard limit: longer ones are an error.
const TOO_LONG: usize = 800;
/// The rooms from top to bottom; a crate may use those below it.
const ORDER: [&str; 24] = [
    "trine",
    "trine-why",
    "trine-apiserver",
    "trine-scheduler",
    "trine-controllers",
    "trine-csi-controllers",
    "trine-kubelet",
    "trine-networks",
    "trine-cri",
    "trine-images",
    "trine-cni",
    "trine-overlay",
    "trine-proxy",
    "trine-policy",
    "trine-dns",
    "trine-csi-driver",
    "trine-contracts",
    "trine-typed",
    "trine-cel",
    "trine-objects",
    "trine-store",
    "trine-kernel",
    "trine-ledger",
    "trine-clock",
];
/// The parts: `trine` alone wires them, they never use one another.
const PARTS: [&str; 12] = [
    "trine-apiserver",
    "trine-scheduler",
    "trine-controllers",
    "trine-csi-controllers",
    "trine-kubelet",
    "trine-networks",
    "trine-cri",
    "trine-overlay",
    "trine-proxy",
    "trine-policy",
    "trine-dns",
    "trine-csi-driver",
];
/// Those that work under a foreign kubelet, and what they must not see.
const NO_KUBERNETES: [&str; 4] = ["trine-cri", "trine-images", "trine-cni", "trine-csi-driver"];
/// What a pure decision does not touch.
const IMPURE: [&str; 7] = [
    "tokio::",
    "std::fs",
    "std::net::Tcp",
    "kube::Client",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
];

/// Checks all rules.
///
/// # Errors
/// With every broken rule, one line each.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let mut broken = dependencies(root)?;
    let mut lines = BTreeMap::new();
    for file in rust_files(&root.join("crates"))? {
        let text = std::fs::read_to_string(&file)?;
        let name = file.strip_prefix(root)?.display().to_string();
        let count = text.lines().count();
        lines.insert(name.clone(), count);
        if count > TOO_LONG {
            broken.push(format!("{name} has {count} lines; {TOO_LONG} is the limit"));
        } else if count > LONG {
            println!("long: {name} has {count} lines (two subjects?)");
        }
        if file.file_name().is_some_and(|f| f == "plan.rs") {
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let found = IMPURE.iter().filter(|word| code.contains(**word));
            broken.extend(found.map(|word| format!("{name} decides purely, but uses {word}")));
        }
        if text.contains("unsafe {") && !name.starts_with("crates/kernel/") {
            broken.push(format!("{name} has unsafe code; it belongs in crates/kernel"));
        }
    }
    let mut sizes: Vec<usize> = lines.values().copied().collect();
    sizes.sort_unstable();
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or_default();
    println!("{} files, {} lines, median {median}", sizes.len(), sizes.iter().sum::<usize>());
    anyhow::ensure!(broken.is_empty(), "the architecture is broken:\n  {}", broken.join("\n  "));
    Ok(())
}

fn dependencies(root: &Path) -> anyhow::Result<Vec<String>> {
    let output =
        cargo_command(root).args(["metadata", "--no-deps", "--format-version", "1", "--offline"]).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let mut broken = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(rank) = ORDER.iter().position(|n| *n == name) else { continue };
        let all = package["dependencies"].as_array().into_iter().flatten();
        let uses: BTreeSet<&str> =
            all.filter(|d| d["kind"].is_null()).filter_map(|d| d["name"].as_str()).collect();
        for used in &uses {
            if let Some(below) = ORDER.iter().position(|n| n == used) {
                if below <= rank {
                    broken.push(format!("{name} uses {used}, which is above it"));
                }
                if name != "trine" && PARTS.contains(&name) && PARTS.contains(used) {
                    broken.push(format!("{name} and {used} are parts; only trine wires parts"));
                }
                if *used == "trine-store" && name != "trine" && name != "trine-apiserver" {
                    broken.push(format!("{name} sees the store; only the API server may"));
                }
            }
            let kubernetes = ["trine-objects", "trine-typed", "kube", "k8s-openapi"].contains(used);
            if kubernetes && NO_KUBERNETES.contains(&name) {
                broken.push(format!("{name} uses {used}; it has to work without Kubernetes"));
            }
            if ["kube", "k8s-openapi", "trine-typed"].contains(used)
                && ["trine-apiserver", "trine-store"].contains(&name)
            {
                broken.push(format!("{name} uses {used}; it works on dynamic JSON"));
            }
        }
    }
    Ok(broken)
}

fn rust_files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
