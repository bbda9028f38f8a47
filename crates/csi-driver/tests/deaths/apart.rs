//! The driver as a process of its own, which is this test program run again, so that it can die at a place that the test names.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use trine_kernel::testing::deaths;

use crate::rig;

/// Set in the process that is the driver: its folder.
const FOLDER: &str = "TRINE_TEST_DRIVER";

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

/// Not a test: nothing unless it was started as the driver.
#[test]
fn the_process_that_is_the_driver() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let config = rig::config(&folder, None);
    deaths::obey(folder);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(trine_csi_driver::serve(config, tokio_util::sync::CancellationToken::new())).unwrap();
}
