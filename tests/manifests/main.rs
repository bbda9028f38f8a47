//! Manifests in the shape that people bring, and one that they bring: `kubectl apply`, and then what they are for.
//!
//! Those that take minutes run by `cargo xtask manifests`, which makes the images that they name.

mod agent;
mod autoscaling;
mod chart;
mod csi;
mod database;
mod mounts;
mod published;
mod web;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use trine_tests::{Cluster, Outcome, kubectl};

/// The folder of images' archives; set by `cargo xtask manifests`.
const IMAGES: &str = "TRINE_MANIFEST_IMAGES";

/// A cluster of two nodes, and kubectl.
pub struct Stage {
    /// The cluster.
    pub cluster: Cluster,
    kubectl: PathBuf,
}

impl Stage {
    /// Sets it up with the busybox image; `None`, and a counted skip, where `test` cannot have one.
    pub fn set(test: &str) -> Option<Self> {
        let root = trine_kernel::testing::root(test) && trine_kernel::testing::program(test, "busybox");
        let kubectl = root.then(|| kubectl::build(test)).flatten()?;
        let cluster = Cluster::prepared();
        let _ = cluster.trine(&["up", "--detach", "--nodes", "2"]).expect_ok();
        cluster.build_busybox();
        Some(Self { cluster, kubectl })
    }

    /// Runs kubectl.
    pub fn kubectl(&self, words: &[&str]) -> Outcome {
        kubectl::run(&self.kubectl, &self.cluster, words)
    }

    /// What kubectl prints when it succeeds.
    pub fn said(&self, words: &[&str]) -> String {
        self.kubectl(words).expect_ok()
    }

    /// Gives the nodes an image that `cargo xtask manifests` has made.
    pub fn import(&self, name: &str) {
        let folder = std::env::var_os(IMAGES).expect("`cargo xtask manifests` says where the images are");
        let archive = Path::new(&folder).join(format!("{name}@all.tar"));
        let _ = self.cluster.trine(&["image", "import", &archive.display().to_string()]).expect_ok();
    }

    /// A folder beside this file.
    pub fn folder(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests").join(name)
    }

    /// Applies a manifest of this folder, with words of it replaced.
    pub fn apply(&self, file: &str, replaced: &[(&str, &str)]) {
        let mut text = std::fs::read_to_string(Self::folder(file)).unwrap();
        for (from, to) in replaced {
            text = text.replace(from, to);
        }
        let _ = self.cluster.apply(&text).expect_ok();
    }

    /// Waits for a condition of an object.
    pub fn wait(&self, object: &str, condition: &str) {
        let condition = format!("--for=condition={condition}");
        let _ = self.said(&["wait", object, &condition, "--timeout=90s"]);
    }

    /// Starts kubectl beside the test.
    pub fn spawn(&self, words: &[&str]) -> std::process::Child {
        let mut command = kubectl::command(&self.kubectl, &self.cluster, words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}
