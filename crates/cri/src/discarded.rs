//! Folders that are out of their place and only wait to be removed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use trine_kernel::discard::Remover;

/// The folder of such folders, and who removes them. They go with it as long as it lives, and what is left by one that was killed
/// goes with the next.
#[derive(Debug)]
pub(crate) struct Discarded {
    dir: PathBuf,
    next: AtomicU64,
    remover: Remover,
}

impl Discarded {
    /// Opens the one in `dir`, which is made if need be.
    pub(crate) fn open(dir: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let remover = Remover::start()?;
        for left in std::fs::read_dir(&dir)?.flatten() {
            remover.remove(left.path());
        }
        Ok(Self { dir, next: AtomicU64::new(0), remover })
    }

    /// Takes `folder` out of its place; absent is success. Nothing may be mounted in it.
    pub(crate) fn take(&self, folder: &Path) -> io::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.remover.take(folder, self.dir.join(format!("{}-{number}", std::process::id())))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn wait_for_none(dir: &Path) {
        let since = Instant::now();
        while std::fs::read_dir(dir).unwrap().next().is_some() {
            assert!(since.elapsed() < Duration::from_secs(10), "something stays");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_is_taken_is_gone_at_once_and_removed_soon_and_so_is_what_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let (gone, folder) = (dir.path().join("gone"), dir.path().join("folder"));
        std::fs::create_dir_all(gone.join("1-0/deep")).unwrap();
        let discarded = Discarded::open(gone.clone()).unwrap();
        wait_for_none(&gone);
        for _ in 0..2 {
            std::fs::create_dir_all(folder.join("containers/c")).unwrap();
            std::fs::write(folder.join("record.json"), "{}").unwrap();
            discarded.take(&folder).unwrap();
            assert!(!folder.exists());
            discarded.take(&folder).unwrap();
            wait_for_none(&gone);
        }
    }
}
