//! In a debug build a test may let this process die: where the file `armed` in the folder of `TRINE_TEST_DIES` says so, once it is there.

use std::path::PathBuf;
use std::sync::OnceLock;

/// The folder of a test.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// From now on, if a test has said where it arms places.
pub fn where_a_test_says() {
    if let Some(folder) = std::env::var_os("TRINE_TEST_DIES") {
        let _ = FOLDER.set(folder.into());
        trine_kernel::testing::on_failpoint(reached);
    }
}

fn reached(name: &'static str) {
    let Some(folder) = FOLDER.get() else { return };
    let armed = std::fs::read_to_string(folder.join("armed"));
    if armed.is_ok_and(|armed| armed.trim() == name) {
        let _ = std::fs::rename(folder.join("armed"), folder.join("died"));
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
