//! The process of a data dir: one at a time, or one for each plane that runs alone; found by its record and by when that
//! process started, so that a number that was given to another program is never killed.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
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

/// The lock of a data dir, or of one plane of it; let go when dropped or when the process dies.
pub struct DaemonLock {
    _files: Vec<File>,
}

/// Takes the data dir for this process, and writes its pid.
///
/// # Errors
/// If another process has it, or a plane of it.
pub fn claim(layout: &Layout) -> anyhow::Result<DaemonLock> {
    let file = lock(layout, "lock", FlockOperation::NonBlockingLockExclusive)?;
    record(layout, false)?;
    std::fs::write(layout.pid_file(), format!("{}\n", std::process::id()))?;
    Ok(DaemonLock { _files: vec![file] })
}

/// Takes one plane of the data dir for this process; other processes may have its other planes.
///
/// # Errors
/// If another process has that plane, or the whole of it.
pub fn claim_plane(layout: &Layout, plane: &str) -> anyhow::Result<DaemonLock> {
    let whole = lock(layout, "lock", FlockOperation::NonBlockingLockShared)?;
    let own = lock(layout, &format!("lock-{plane}"), FlockOperation::NonBlockingLockExclusive)?;
    write_record(layout, &format!("daemon-{plane}.json"), false)?;
    Ok(DaemonLock { _files: vec![whole, own] })
}

fn lock(layout: &Layout, name: &str, how: FlockOperation) -> anyhow::Result<File> {
    std::fs::create_dir_all(layout.run())
        .with_context(|| format!("cannot make {}", layout.run().display()))?;
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(layout.run().join(name))?;
    let since = Instant::now();
    while flock(&file, how).is_err() {
        if since.elapsed() > DYING_DEADLINE {
            let by: Vec<String> = living(layout).iter().map(|(_, r)| r.process.pid.to_string()).collect();
            anyhow::bail!("{} is in use by process {}", layout.root().display(), by.join(", "));
        }
        std::thread::sleep(POLL);
    }
    Ok(file)
}

/// Writes the record of this process.
///
/// # Errors
/// What the file system says.
pub fn record(layout: &Layout, ready: bool) -> anyhow::Result<()> {
    write_record(layout, "daemon.json", ready)
}

fn write_record(layout: &Layout, name: &str, ready: bool) -> anyhow::Result<()> {
    let record = DaemonRecord { process: ProcessId::own()?, ready };
    let path = layout.run().join(name);
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, serde_json::to_vec(&record)?)?;
    std::fs::rename(&fresh, &path)?;
    Ok(())
}

/// The running daemon of a data dir, if there is one. A plane that runs alone is none.
#[must_use]
pub fn running(layout: &Layout) -> Option<DaemonRecord> {
    read_living(&layout.run().join("daemon.json"))
}

fn read_living(path: &Path) -> Option<DaemonRecord> {
    let record: DaemonRecord = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    record.process.lives().then_some(record)
}

/// The records of all processes of a data dir that live, with the files that they are in.
fn living(layout: &Layout) -> Vec<(PathBuf, DaemonRecord)> {
    let files = std::fs::read_dir(layout.run()).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_record = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("daemon") && name.ends_with(".json")
    };
    files.filter(is_record).filter_map(|path| read_living(&path).map(|record| (path, record))).collect()
}

/// Ends the processes of a data dir, if any run; true if one did.
///
/// # Errors
/// If one cannot be signalled, or outlives SIGKILL; the others are ended nevertheless.
pub fn stop(layout: &Layout) -> anyhow::Result<bool> {
    let living = living(layout);
    let mut result = Ok(!living.is_empty());
    for (path, record) in living {
        match end(&record) {
            Ok(()) => drop(std::fs::remove_file(path)),
            Err(error) => result = Err(error),
        }
    }
    let _ = std::fs::remove_file(layout.pid_file());
    result
}

fn end(record: &DaemonRecord) -> anyhow::Result<()> {
    let Ok(handle) = record.process.open() else { return Ok(()) };
    for (signal, deadline) in [(SIGTERM, TERM_DEADLINE), (SIGKILL, TERM_DEADLINE)] {
        signal_pidfd(&handle, signal)
            .with_context(|| format!("cannot end process {}", record.process.pid))?;
        let since = Instant::now();
        while since.elapsed() < deadline {
            if !record.process.lives() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
    }
    anyhow::bail!("process {} does not end", record.process.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_share_a_data_dir_with_each_other_but_not_with_a_whole_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path()).unwrap();
        let cri = claim_plane(&layout, "cri").unwrap();
        let kubelet = claim_plane(&layout, "kubelet").unwrap();
        assert_eq!(running(&layout), None);
        assert_eq!(living(&layout).len(), 2);
        let error = claim_plane(&layout, "cri").err().unwrap().to_string();
        assert!(error.contains(&format!("in use by process {}", std::process::id())), "{error}");
        assert!(claim(&layout).is_err());
        drop((cri, kubelet));
        let whole = claim(&layout).unwrap();
        assert!(running(&layout).is_some() && claim_plane(&layout, "cri").is_err());
        drop(whole);
    }
}
