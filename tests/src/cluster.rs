//! A cluster of the real program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::wait::until;

/// The program under test: `TRINE_PROGRAM`, or the debug build beside this test.
#[must_use]
pub fn program() -> PathBuf {
    match std::env::var_os("TRINE_PROGRAM") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/debug/trine"),
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code 0.
    pub ok: bool,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Outcome {
    /// Standard output of a command that succeeded.
    ///
    /// # Panics
    /// If it failed.
    #[must_use]
    pub fn expect_ok(self) -> String {
        assert!(self.ok, "failed:\n{}\n{}", self.out, self.err);
        self.out
    }

    /// Both outputs of a command that failed.
    ///
    /// # Panics
    /// If it succeeded.
    #[must_use]
    pub fn expect_failure(self) -> String {
        assert!(!self.ok, "succeeded:\n{}", self.out);
        format!("{}{}", self.out, self.err)
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        Self {
            ok: output.status.success(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A running cluster in a data dir of its own; taken down, purged and checked for leftovers when dropped.
pub struct Cluster {
    dir: PathBuf,
    _parent: tempfile::TempDir,
}

impl Cluster {
    /// A data dir without a cluster.
    ///
    /// # Panics
    /// If no temporary folder can be made.
    #[must_use]
    pub fn prepared() -> Self {
        let parent = tempfile::Builder::new().prefix("trine-test-").tempdir().expect("a temporary folder");
        Self { dir: parent.path().join("d"), _parent: parent }
    }

    /// A running cluster with a Ready node.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn up() -> Self {
        let cluster = Self::prepared();
        cluster.start();
        cluster
    }

    /// A running cluster with the busybox image; `None`, and a counted skip, where `test` cannot have one.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn with_busybox(test: &str) -> Option<Self> {
        if !trine_kernel::testing::root(test) || !trine_kernel::testing::program(test, "busybox") {
            return None;
        }
        let cluster = Self::up();
        cluster.build_busybox();
        Some(cluster)
    }

    /// Runs `trine up --detach`.
    ///
    /// # Panics
    /// If it fails.
    pub fn start(&self) {
        self.start_with(&[]);
    }

    /// Runs `trine up --detach` with these variables in its environment.
    ///
    /// # Panics
    /// If it fails.
    pub fn start_with(&self, variables: &[(&str, &str)]) {
        let mut command = Command::new(program());
        command.args(["up", "--detach", "--data-dir"]).arg(&self.dir).envs(variables.iter().copied());
        let outcome: Outcome = command.stdin(Stdio::null()).output().expect("trine starts").into();
        let _ = outcome.expect_ok();
    }

    /// The data dir.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The daemon's pid.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn pid(&self) -> u32 {
        let text = std::fs::read_to_string(self.dir.join("run/trine.pid")).expect("a pid file");
        text.trim().parse().expect("a pid")
    }

    /// Kills the daemon without asking it.
    ///
    /// # Panics
    /// If it does not die.
    pub fn kill(&self) {
        let pid = self.pid();
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().is_ok_and(|s| s.success()));
        until("the daemon is dead", || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if state.is_empty() || state.contains(") Z ") { Ok(()) } else { Err(state) }
        });
    }

    /// Runs `trine` with the cluster's data dir.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    pub fn trine(&self, words: &[&str]) -> Outcome {
        let mut command = Command::new(program());
        // Words behind `--` belong to the command inside the container.
        let split = words.iter().position(|w| *w == "--").unwrap_or(words.len());
        command.args(&words[..split]).arg("--data-dir").arg(&self.dir).args(&words[split..]);
        command.stdin(Stdio::null()).output().expect("trine starts").into()
    }

    /// Applies manifests with `trine apply`.
    ///
    /// # Panics
    /// If a file cannot be written.
    #[must_use]
    pub fn apply(&self, manifests: &str) -> Outcome {
        let file = self.dir.join("run/test-manifest.yaml");
        std::fs::write(&file, manifests).expect("the manifest is written");
        self.trine(&["apply", "-f", &file.display().to_string()])
    }

    /// An object as JSON; `Null` if there is none.
    #[must_use]
    pub fn get(&self, what: &str) -> Value {
        let outcome = self.trine(&["get", what, "-o", "json"]);
        serde_json::from_str(&outcome.out).unwrap_or(Value::Null)
    }

    /// Waits until a Pod is Running and Ready; gives it.
    ///
    /// # Panics
    /// If it is not within the deadline.
    pub fn wait_running(&self, pod: &str) -> Value {
        until(&format!("Pod {pod} is Running"), || {
            let object = self.get(&format!("pod/{pod}"));
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            if ready { Ok(object) } else { Err(object["status"].to_string()) }
        })
    }

    /// Makes the image `trine.local/busybox:1` of this machine's static busybox, which Debian ships.
    ///
    /// # Panics
    /// If it cannot be built.
    pub fn build_busybox(&self) {
        let words = ["image", "build", "--tag", "trine.local/busybox:1", "--entrypoint", "/bin/busybox"];
        let mut words: Vec<&str> = words.to_vec();
        words.push("/bin/busybox:/bin/busybox");
        words.push("/bin/busybox:/bin/sh");
        let _ = self.trine(&words).expect_ok();
    }

    /// All text of the events about objects named `name`.
    #[must_use]
    pub fn events(&self, name: &str) -> String {
        let list = self.trine(&["get", "events", "-o", "json"]).out;
        let list: Value = serde_json::from_str(&list).unwrap_or(Value::Null);
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let about = items.iter().filter(|e| e["involvedObject"]["name"] == name);
        let line = |e: &Value| {
            let text = |key: &str| e[key].as_str().unwrap_or_default().to_owned();
            format!("{} {}: {}", text("type"), text("reason"), text("message"))
        };
        about.map(line).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let outcome = self.trine(&["down", "--purge"]);
        if std::thread::panicking() {
            eprintln!("--- the daemon's log is gone with the cluster; down said:\n{}", outcome.err);
        } else {
            assert!(outcome.ok, "down --purge left something:\n{}", outcome.err);
        }
    }
}
