//! The runtime as a process of its own, which is this test program run again, so that it can be killed: at a place in the code that
//! the test names, or from outside.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use trine_contracts::cri::VersionRequest;

use crate::harness::{self, Node};

/// Set in the process that is the runtime: its folder and its instance.
const FOLDER: &str = "TRINE_TEST_RUNTIME";
const INSTANCE: &str = "TRINE_TEST_INSTANCE";
/// Where to die: `name<TAB>occurrence`.
const ARMED: &str = "armed";
/// Names of all places that were reached, one a line, while it is there.
const VISITED: &str = "visited";

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

    /// Lets it die when it reaches the place `name` for the `occurrence`th time from now on.
    pub fn dies_at(folder: &Path, name: &str, occurrence: usize) {
        std::fs::write(folder.join("armed.new"), format!("{name}\t{occurrence}")).unwrap();
        std::fs::rename(folder.join("armed.new"), folder.join(ARMED)).unwrap();
    }

    /// From now on it, or the next one, writes down where it has been.
    pub fn watched(folder: &Path) {
        std::fs::write(folder.join(VISITED), "").unwrap();
    }

    /// Where it has been since then, and how often.
    pub fn visited(&self) -> BTreeMap<String, usize> {
        let text = std::fs::read_to_string(self.folder.join(VISITED)).unwrap();
        std::fs::remove_file(self.folder.join(VISITED)).unwrap();
        let mut visited = BTreeMap::new();
        text.lines().for_each(|line| *visited.entry(line.to_owned()).or_default() += 1);
        visited
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
        std::fs::remove_file(self.folder.join(ARMED)).unwrap();
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

/// How often each place was reached since it was armed.
static REACHED: Mutex<(String, usize)> = Mutex::new((String::new(), 0));
static DAEMON: OnceLock<PathBuf> = OnceLock::new();

fn reached(name: &'static str) {
    let Some(folder) = DAEMON.get() else { return };
    if let Ok(mut file) = std::fs::File::options().append(true).open(folder.join(VISITED)) {
        file.write_all(format!("{name}\n").as_bytes()).unwrap();
    }
    let Ok(armed) = std::fs::read_to_string(folder.join(ARMED)) else { return };
    let (wanted, occurrence) = armed.split_once('\t').unwrap();
    if wanted != name {
        return;
    }
    let mut count = REACHED.lock().unwrap();
    if count.0 != armed {
        *count = (armed.clone(), 0);
    }
    count.1 += 1;
    if count.1 == occurrence.parse::<usize>().unwrap() {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Not a test: nothing unless it was started as the runtime.
#[test]
fn the_process_that_is_the_runtime() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let config = harness::config(&folder, std::env::var(INSTANCE).unwrap());
    DAEMON.set(folder).unwrap();
    trine_kernel::testing::on_failpoint(reached);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(trine_cri::serve(config, tokio_util::sync::CancellationToken::new())).unwrap();
}
