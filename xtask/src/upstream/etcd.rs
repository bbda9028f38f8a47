//! An etcd for `--store etcd`, gone with its data at the end.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::go::{self, Tool};
use super::options::Options;

/// The etcd that the store's own tests use.
pub const TOOL: Tool = Tool {
    module: "crates/store/tests/etcd-server",
    package: ".",
    test: false,
    file: "etcd",
    ldflags: "",
    versioned: "go.etcd.io/etcd/server/v3",
};
const START_DEADLINE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// A running etcd of one member.
pub struct Etcd {
    child: Child,
    /// Where it is asked.
    pub url: String,
    dir: PathBuf,
}

impl Etcd {
    /// Starts one if a suite is to run on it.
    ///
    /// # Errors
    /// What [`Self::start`] says.
    pub fn asked_for(root: &Path, options: &Options) -> anyhow::Result<Option<Self>> {
        (options.store == "etcd").then(|| Self::start(root)).transpose()
    }

    /// Starts one on free ports of the loopback.
    ///
    /// # Errors
    /// If it cannot be built, or does not answer.
    pub fn start(root: &Path) -> anyhow::Result<Self> {
        let program = go::build(root, &TOOL)?;
        let (client, peer) = (free_address()?, free_address()?);
        let dir = std::env::temp_dir().join(format!("upstream-etcd-{}", std::process::id()));
        let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(&dir).args(["--name", "one", "--log-level", "error"]);
        command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
        command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        command.args(["--initial-cluster", &format!("one={peer_url}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("cannot run etcd")?;
        let etcd = Self { child, url: client_url, dir };
        let since = Instant::now();
        while TcpStream::connect(&client).is_err() {
            anyhow::ensure!(since.elapsed() < START_DEADLINE, "etcd does not answer at {}", etcd.url);
            std::thread::sleep(POLL);
        }
        Ok(etcd)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
