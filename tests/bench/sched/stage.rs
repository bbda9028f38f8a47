//! The processes: a server alone, hollow nodes, and for a while a scheduler of its own for Pods that have waited for it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::kube::api::ListParams;
use trine_typed::kube::{Api, Client};

const DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// A process; it is ended when dropped.
pub struct Process {
    child: Child,
}

impl Process {
    fn start(dir: &Path, log: &str, words: &[&str]) -> anyhow::Result<Self> {
        let file = File::create(dir.join(log))?;
        let mut command = Command::new(trine_tests::program());
        command.args(words).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Self { child: command.spawn().context("trine cannot be started")? })
    }

    /// Resident memory, MiB.
    pub fn memory(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    /// Seconds of processor time so far.
    pub fn processor(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok()).unwrap_or_default();
        // utime and stime, in hundredths as every Linux shows them.
        Ok((ticks(11) + ticks(12)) / 100.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// All that runs.
pub struct Stage {
    /// The hollow nodes.
    pub sim: Process,
    /// API server, scheduler, controllers.
    pub server: Process,
    /// An admin's client.
    pub client: Client,
    dir: PathBuf,
    _parent: tempfile::TempDir,
}

impl Stage {
    /// A server with so many hollow nodes, all of them registered.
    pub async fn set(nodes: u32) -> anyhow::Result<Self> {
        let parent = tempfile::Builder::new().prefix("trine-bench-").tempdir()?;
        let dir = parent.path().to_owned();
        let data = dir.join("d").display().to_string();
        let server = Process::start(&dir, "server.log", &["server", "--data-dir", &data])?;
        let since = Instant::now();
        while !said(&dir.join("d/run/daemon.json")).contains("\"ready\":true") {
            anyhow::ensure!(since.elapsed() < DEADLINE, "no server: {}", said(&dir.join("server.log")));
            tokio::time::sleep(POLL).await;
        }
        let client = trine_typed::client::from_kubeconfig(&dir.join("d/kubeconfig")).await?;
        let count = nodes.to_string();
        let sim = Process::start(&dir, "sim.log", &["sim", "--nodes", &count, "--data-dir", &data])?;
        let all: Api<Node> = Api::all(client.clone());
        while all.list_metadata(&ListParams::default()).await?.items.len() < nodes as usize {
            anyhow::ensure!(since.elapsed() < DEADLINE, "no nodes: {}", said(&dir.join("sim.log")));
            tokio::time::sleep(POLL).await;
        }
        Ok(Self { sim, server, client, dir, _parent: parent })
    }

    /// A scheduler for the Pods that ask for `name`.
    pub fn scheduler(&self, name: &str) -> anyhow::Result<Process> {
        let kubeconfig = self.dir.join("d/kubeconfig").display().to_string();
        Process::start(
            &self.dir,
            "scheduler.log",
            &["scheduler", "--kubeconfig", &kubeconfig, "--scheduler-name", name],
        )
    }

    /// What went wrong inside the processes.
    pub fn troubles(&self) -> Vec<String> {
        let logs = ["server.log", "sim.log", "scheduler.log"].map(|log| said(&self.dir.join(log)));
        let bad = |line: &&str| line.contains("panicked at") || line.contains("ERROR");
        logs.iter().flat_map(|log| log.lines().filter(bad)).map(str::to_owned).collect()
    }
}

fn said(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}
