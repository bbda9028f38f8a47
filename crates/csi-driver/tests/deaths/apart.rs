//! The driver as a process of its own, which is this test program run again, so that it can die at a place that the test names.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::rig;

/// Set in the process that is the driver: its folder.
const FOLDER: &str = "TRINE_TEST_DRIVER";
/// Where to die: `name<TAB>occurrence`.
const ARMED: &str = "armed";
/// Names of all places that were reached, one a line, while it is there.
const VISITED: &str = "visited";

/// How long a driver may take to serve, or to die where it was told to.
const PATIENCE: Duration = Duration::from_secs(30);

/// A driver.
pub struct Apart {
    child: Child,
    folder: PathBuf,
}

impl Apart {
    /// Starts one in `folder`.
    pub fn start(folder: &Path) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(folder.join("driver.log")).unwrap();
        // A dead driver's socket would be taken for the next one's.
        let _ = std::fs::remove_file(ready(folder));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "apart::the_process_that_is_the_driver", "--nocapture"])
            .env(FOLDER, folder)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, folder: folder.to_owned() }
    }

    /// Starts one and waits until it serves.
    pub async fn serving(folder: &Path) -> Self {
        let mut driver = Self::start(folder);
        let begun = Instant::now();
        while !ready(folder).exists() {
            let ended = driver.child.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < PATIENCE, "the driver does not serve: {ended:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        driver
    }

    /// Lets it, or the next one, die when it reaches the place `name` for the `occurrence`th time from now on.
    pub fn dies_at(folder: &Path, name: &str, occurrence: usize) {
        std::fs::write(folder.join("armed.new"), format!("{name}\t{occurrence}")).unwrap();
        std::fs::rename(folder.join("armed.new"), folder.join(ARMED)).unwrap();
    }

    /// From now on it, or the next one, writes down where it has been.
    pub fn watched(folder: &Path) {
        std::fs::write(folder.join(VISITED), "").unwrap();
    }

    /// Where it has been since then, and how often.
    pub fn visited(folder: &Path) -> BTreeMap<String, usize> {
        let text = std::fs::read_to_string(folder.join(VISITED)).unwrap();
        std::fs::remove_file(folder.join(VISITED)).unwrap();
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
}

/// The file that is there once the driver serves.
fn ready(folder: &Path) -> PathBuf {
    folder.join("reg/disk.csi.trine.dev@reg.sock")
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.join("driver.log")).unwrap_or_default();
            let from = log.char_indices().rev().nth(3000).map_or(0, |(at, _)| at);
            eprintln!("the driver's last words: {}", &log[from..]);
        }
    }
}

/// How often the place was reached since it was armed.
static REACHED: Mutex<(String, usize)> = Mutex::new((String::new(), 0));
static DRIVER: OnceLock<PathBuf> = OnceLock::new();

fn reached(name: &'static str) {
    let Some(folder) = DRIVER.get() else { return };
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

/// Not a test: nothing unless it was started as the driver.
#[test]
fn the_process_that_is_the_driver() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let config = rig::config(&folder, None);
    DRIVER.set(folder).unwrap();
    trine_kernel::testing::on_failpoint(reached);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(trine_csi_driver::serve(config, tokio_util::sync::CancellationToken::new())).unwrap();
}
