//! What one process has in hand: folders that become layers, or vanish with their maker.
//!
//! Every process has a session folder with a lock that the kernel lets go when the process dies, however it dies.
//! Whoever opens the store removes the sessions whose lock is free. A half-made layer lies in a session only, and is
//! moved to its place when it is complete, so none is ever left behind under its real name.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use trine_kernel::discard::Remover;
use trine_kernel::testing::failpoint;
use trine_ledger::{Durability, Ledger};

use crate::error::ImageError;

/// What a staged folder was to become.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Intent {
    purpose: String,
}

/// This process's session.
pub(crate) struct Session {
    dir: PathBuf,
    intents: Ledger<Intent>,
    next: AtomicU64,
    remover: Remover,
    _lock: File,
}

impl Session {
    /// Removes dead sessions and starts one. The caller holds the store's lock, so that no session is between its
    /// making and its locking.
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        let all = root.join("sessions");
        std::fs::create_dir_all(&all).map_err(ImageError::io("create", &all))?;
        sweep(&all)?;
        let dir = all.join(format!("{}-{}", std::process::id(), nanos()));
        std::fs::create_dir(&dir).map_err(ImageError::io("create", &dir))?;
        let lock = dir.join("lock");
        let file = File::create(&lock).map_err(ImageError::io("create", &lock))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| ImageError::io("lock", &lock)(e.into()))?;
        let intents = Ledger::open(dir.join("intents"), Durability::Disk)?;
        let remover = Remover::start().map_err(ImageError::io("start a thread for", &dir))?;
        Ok(Self { dir, intents, next: AtomicU64::new(0), remover, _lock: file })
    }

    /// Takes a folder out of its place at once, absent is success; what is in it is removed in its own time, by the next to open the
    /// store at the latest.
    pub fn discard(&self, folder: &Path) -> Result<(), ImageError> {
        // The session's folder goes as a whole, too.
        let gone = self.dir.join(format!("gone-{}", self.next.fetch_add(1, Ordering::Relaxed)));
        self.remover.take(folder, gone).map_err(ImageError::io("take away", folder))
    }

    /// An empty folder of this session; its purpose is recorded first.
    pub fn stage(self: &Arc<Self>, purpose: &str) -> Result<Staged, ImageError> {
        let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        self.intents.put(&name, &Intent { purpose: purpose.to_owned() })?;
        failpoint("image session: intent");
        let path = self.dir.join(&name);
        std::fs::create_dir(&path).map_err(ImageError::io("create", &path))?;
        failpoint("image session: folder");
        Ok(Staged { session: Arc::clone(self), name, path })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A folder in a session; removed with all in it when dropped.
pub(crate) struct Staged {
    session: Arc<Session>,
    name: String,
    path: PathBuf,
}

impl Staged {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the whole folder to `target`, unless there is something already.
    pub fn publish(&self, target: &Path) -> std::io::Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, &self.path, CWD, target, RenameFlags::NOREPLACE) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        match std::fs::remove_dir_all(&self.path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                // The record stays, and the next to open the store removes it with the session.
                tracing::warn!(path = %self.path.display(), error = %e, "a half-made folder is left until the next start");
            }
            _ => {
                if let Err(e) = self.session.intents.remove(&self.name) {
                    tracing::warn!(error = %e, "an intent stays recorded");
                }
            }
        }
    }
}

fn sweep(all: &Path) -> Result<(), ImageError> {
    for entry in std::fs::read_dir(all).map_err(ImageError::io("list", all))?.flatten() {
        let dir = entry.path();
        let Ok(lock) = File::create(dir.join("lock")) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        if let Ok(intents) = Ledger::<Intent>::open(dir.join("intents"), Durability::Disk) {
            for intent in intents.all().into_values() {
                tracing::info!(purpose = intent.purpose, "removing what an earlier process left half made");
            }
        }
        std::fs::remove_dir_all(&dir).map_err(ImageError::io("remove", &dir))?;
    }
    Ok(())
}

fn nanos() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos())
}
