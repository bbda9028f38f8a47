//! helm, built from its published module.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::cluster::{Cluster, Outcome};
use crate::go;

/// helm against a cluster, with a home of its own.
pub struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
}

impl Helm {
    /// Builds the program; `None`, and a counted skip, where Go is absent.
    ///
    /// # Panics
    /// If it does not build.
    #[must_use]
    pub fn build(test: &str) -> Option<PathBuf> {
        go::build(test, "tests/clients/go", "helm.sh/helm/v4/cmd/helm", "helm")
    }

    /// The program for a cluster.
    ///
    /// # Panics
    /// If no temporary folder can be made.
    #[must_use]
    pub fn of(program: PathBuf, cluster: &Cluster) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder");
        Self { program, kubeconfig: cluster.dir().join("kubeconfig"), home }
    }

    /// Runs it to its end, three minutes at most.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn run(&self, words: &[&str]) -> Outcome {
        let mut command = Command::new("timeout");
        command.arg("180").arg(&self.program).args(words).arg("--kubeconfig").arg(&self.kubeconfig);
        command.env("HOME", self.home.path()).env_remove("KUBECONFIG");
        command.output().expect("helm starts").into()
    }

    /// What it says as JSON.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn json(&self, words: &[&str]) -> Value {
        let said = self.run(&[words, &["-o", "json"]].concat()).expect_ok();
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
    }

    /// How each revision of a release stands, the first one first.
    ///
    /// # Panics
    /// If there is no such release.
    #[must_use]
    pub fn history(&self, release: &str) -> Vec<String> {
        let history = self.json(&["history", release]);
        let status = |revision: &Value| revision["status"].as_str().map(str::to_owned);
        history.as_array().into_iter().flatten().filter_map(status).collect()
    }
}
