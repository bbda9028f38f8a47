//! The process of a data dir: one at a time, found by its record and by when that process started, so that a number
//! that was given to another program is never killed.

use std::fs::{File, OpenOptions};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use trine_kernel::proc::{ProcessId, SIGKILL, SIGTERM, signal_pidfd};

use crate::layout::Layout;

/// How long a daemon may take to end after SIGTERM, before SIGKILL.
const TERM_DEADLINE: Duration = Duration::from_secs(15);
/// How long a daemon that was killed may take to be gone: a write that the disk has not done yet holds it.
const DYING_DEADLINE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(10);

/// What is written about a running daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonRecord {
    /// Which process.
    pub process: ProcessId,
    /// True when the node was seen Ready.
    pub ready: bool,
}

/// The lock of a data dir; let go when dropped or when the process dies.
pub struct DaemonLock {
    _file: File,
}

/// Takes the data dir for this process, and writes its pid.
///
/// # Errors
/// If another process has it.
pub fn claim(layout: &Layout) -> anyhow::Result<DaemonLock> {
    std::fs::create_dir_all(layout.run())
        .with_context(|| format!("cannot make {}", layout.run().display()))?;
    let path = layout.run().join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
    let since = Instant::now();
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if since.elapsed() > DYING_DEADLINE {
            let pid = std::fs::read_to_string(layout.pid_file()).unwrap_or_default();
            anyhow::bail!("{} is in use by process {}", layout.root().display(), pid.trim());
        }
        std::thread::sleep(POLL);
    }
    record(layout, false)?;
    std::fs::write(layout.pid_file(), format!("{}\n", std::process::id()))?;
    Ok(DaemonLock { _file: file })
}

/// Writes the record of this process.
///
/// # Errors
/// What the file system says.
pub fn record(layout: &Layout, ready: bool) -> anyhow::Result<()> {
    let record = DaemonRecord { process: ProcessId::own()?, ready };
    let path = layout.run().join("daemon.json");
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, serde_json::to_vec(&record)?)?;
    std::fs::rename(&fresh, &path)?;
    Ok(())
}

/// The running daemon of a data dir, if there is one.
#[must_use]
pub fn running(layout: &Layout) -> Option<DaemonRecord> {
    let bytes = std::fs::read(layout.run().join("daemon.json")).ok()?;
    let record: DaemonRecord = serde_json::from_slice(&bytes).ok()?;
    record.process.lives().then_some(record)
}

/// Ends the daemon of a data dir, if one runs; true if one did.
///
/// # Errors
/// If it cannot be signalled, or outlives SIGKILL.
pub fn stop(layout: &Layout) -> anyhow::Result<bool> {
    let Some(record) = running(layout) else {
        let _ = std::fs::remove_file(layout.pid_file());
        return Ok(false);
    };
    let Ok(handle) = record.process.open() else { return Ok(false) };
    for (signal, deadline) in [(SIGTERM, TERM_DEADLINE), (SIGKILL, TERM_DEADLINE)] {
        signal_pidfd(&handle, signal)
            .with_context(|| format!("cannot end process {}", record.process.pid))?;
        let since = Instant::now();
        while since.elapsed() < deadline {
            if !record.process.lives() {
                let _ = std::fs::remove_file(layout.pid_file());
                return Ok(true);
            }
            std::thread::sleep(POLL);
        }
    }
    anyhow::bail!("process {} does not end", record.process.pid)
}
