//! The runtime as a process of its own, which is this test program run again, so that it can be killed: at a place in the code that
//! the test names, or from outside.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use trine_contracts::cri::VersionRequest;
use trine_kernel::testing::deaths;

use crate::harness::{self, Node};

/// Set in the process that is the runtime: its folder and its instance.
const FOLDER: &str = "TRINE_TEST_RUNTIME";
const INSTANCE: &str = "TRINE_TEST_INSTANCE";

/// How long a daemon may take to serve, or to die where it was told to.
const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon.
pub struct Apart {
    child: Child,
    folder: PathBuf,
}

impl Apart {
    /// Starts one and waits until it serves.
    pub async fn serving(node: &Node) -> Self {
        let mut daemon = Self::start(node);
        daemon.ready(node).await;
        daemon
    }

    /// Waits until it serves.
    pub async fn ready(&mut self, node: &Node) {
        let begun = Instant::now();
        let mut client = node.client();
        while client.version(VersionRequest::default()).await.is_err() {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < PATIENCE, "the runtime does not serve: {ended:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Starts one.
    pub fn start(node: &Node) -> Self {
        let folder = node.dir.path().to_owned();
        // Its last words are in the test's folder, and are shown if the test fails.
        let log = std::fs::File::options().create(true).append(true).open(folder.join("daemon.log")).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "apart::the_process_that_is_the_runtime", "--nocapture"])
            .env(FOLDER, &folder)
            .env(INSTANCE, &node.config.instance)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has died by its own hand.
    pub async fn died(&mut self) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not die");
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert_eq!(status.signal(), Some(9), "it ended otherwise: {status}");
        assert!(deaths::died(&self.folder).unwrap(), "it was killed elsewhere");
    }

    /// `kill -9` from outside.
    pub fn kill(&mut self) -> ExitStatus {
        self.child.kill().unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.join("daemon.log")).unwrap_or_default();
            let from = log.char_indices().rev().nth(4000).map_or(0, |(at, _)| at);
            eprintln!("the runtime's last words: {}", &log[from..]);
        }
    }
}

/// Not a test: nothing unless it was started as the runtime.
#[test]
fn the_process_that_is_the_runtime() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let config = harness::config(&folder, std::env::var(INSTANCE).unwrap());
    deaths::obey(folder);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(trine_cri::serve(config, tokio_util::sync::CancellationToken::new())).unwrap();
}
