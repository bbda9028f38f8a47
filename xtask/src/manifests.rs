//! `cargo xtask manifests [PART]`: manifests and charts as people bring them, which take minutes. Each part is a file of
//! `tests/manifests`, and has a row in `tests/manifests/RESULTS.md`.

use std::path::Path;
use std::time::Instant;

use crate::rows::{self, Page, Row};
use crate::test::{cargo_command, run_command, workspace_root};
use crate::upstream::go;
use crate::{packages, upstream};

const HEAD: &str = "# Manifests and charts as people bring them

Written by `cargo xtask manifests [PART]`, never by hand. Each is applied by kubectl, or installed by helm, in a cluster of two nodes
of its own, and used for what it is for. What a peer's version stands beside is read from its published module at that moment.
";

/// One file of `tests/manifests`.
struct Part {
    /// Its name.
    name: &'static str,
    /// What is brought, and what is done with it.
    about: &'static str,
    /// Whose things are in it: the folder of a `go.mod`, and a module that it names.
    peers: &'static [(&'static str, &'static str)],
}

const SIDECARS: &str = "tests/upstream/sidecars";

const PARTS: [Part; 7] = [
    Part {
        name: "database",
        about: "PostgreSQL of Debian's packages: StatefulSet, claim, probes, a CronJob that backs up, a Job that restores",
        peers: &[],
    },
    Part {
        name: "agent",
        about: "a DaemonSet with hostPath and Bidirectional mounts, which other Pods see",
        peers: &[],
    },
    Part {
        name: "web",
        about: "a Deployment with a PodDisruptionBudget: clients notice neither a rollout nor the drain of a node",
        peers: &[],
    },
    Part {
        name: "autoscaling",
        about: "metrics-server by its own manifests; a HorizontalPodAutoscaler grows under load by it, and shrinks again",
        peers: &[("tests/clients/metrics", "sigs.k8s.io/metrics-server")],
    },
    Part {
        name: "csi",
        about: "the released manifests of csi-driver-host-path with upstream's sidecars and snapshot controller: volumes, growth, \
                snapshots, clones, blocks, inline volumes; driver, registrar and liveness probe are stand-ins of our own",
        peers: &[
            ("tests/upstream/images", "k8s.io/kubernetes"),
            (SIDECARS, "github.com/kubernetes-csi/external-provisioner/v6"),
            (SIDECARS, "github.com/kubernetes-csi/external-attacher/v4"),
            (SIDECARS, "github.com/kubernetes-csi/external-resizer/v2"),
            (SIDECARS, "github.com/kubernetes-csi/external-snapshotter/v8"),
        ],
    },
    Part {
        name: "chart",
        about: "a chart with a subchart and hooks as Jobs: installed, upgraded, failed and rolled back, tested, removed",
        peers: &[("tests/clients/go", "helm.sh/helm/v4")],
    },
    Part {
        name: "published",
        about: "metrics-server's published chart: installed, upgraded, rolled back, removed",
        peers: &[
            ("tests/clients/go", "helm.sh/helm/v4"),
            ("tests/clients/metrics", "sigs.k8s.io/metrics-server"),
        ],
    },
];

/// Makes the images that they name, and runs them: all, or one.
///
/// # Errors
/// If something cannot be had, or a test fails.
pub fn run(name: Option<&str>) -> anyhow::Result<()> {
    let parts: Vec<&Part> = PARTS.iter().filter(|part| name.is_none_or(|name| name == part.name)).collect();
    let names = PARTS.map(|part| part.name);
    anyhow::ensure!(!parts.is_empty(), "there is no such part; there are {}", names.join(", "));
    let root = workspace_root()?;
    packages::install()?;
    run_command(cargo_command(&root).args(["build", "--workspace", "--bins", "--quiet"]))?;
    let program = root.join("target/debug/trine");
    let images = upstream::images::of_manifests(&root, &program)?;
    let page = Page {
        rows: "tests/manifests/results",
        file: "tests/manifests/RESULTS.md",
        head: HEAD,
        order: &names,
    };
    let mut failed = Vec::new();
    for part in parts {
        let since = Instant::now();
        let outcome = one(&root, &program, &images, part.name);
        // The command with this machine's paths is for the terminal, not for the page.
        let fault = anyhow::anyhow!("not all of it: its test failed");
        let seen = outcome.as_ref().map(|()| "all of it").map_err(|_| &fault);
        rows::keep(
            &root,
            &page,
            &Row::of(part.name, part.about, peers(&root, part)?, seen, since.elapsed()),
        )?;
        if let Err(error) = outcome {
            failed.push(format!("{}: {error:#}", part.name));
        }
    }
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

fn one(root: &Path, program: &Path, images: &Path, name: &str) -> anyhow::Result<()> {
    let mut command = cargo_command(root);
    command.args(["test", "--workspace", "--test", "manifests", "--"]);
    command.args(["--include-ignored", "--test-threads=1", &format!("{name}::")]);
    run_command(command.env("TRINE_PROGRAM", program).env("TRINE_MANIFEST_IMAGES", images))
}

fn peers(root: &Path, part: &Part) -> anyhow::Result<Vec<String>> {
    let version = |(folder, module): &(&str, &str)| {
        let name = module.rsplit('/').find(|word| !is_major(word)).unwrap_or(module);
        Ok(format!("{name} {}", go::version_of(root, folder, module)?))
    };
    part.peers.iter().map(version).collect()
}

/// Whether the word of a module's path is its major version.
fn is_major(word: &str) -> bool {
    word.strip_prefix('v').is_some_and(|rest| rest.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_a_file_of_the_tests_and_its_peers_are_named_there() {
        let root = workspace_root().unwrap();
        let files = std::fs::read_to_string(root.join("tests/manifests/main.rs")).unwrap();
        for part in &PARTS {
            assert!(files.contains(&format!("mod {};", part.name)), "{}", part.name);
            assert_eq!(peers(&root, part).unwrap().len(), part.peers.len());
        }
        assert!(!is_major("volumes") && is_major("v6"));
    }
}
