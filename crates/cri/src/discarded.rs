//! Folders that are out of their place and only wait to be removed: nobody has to wait for that.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

/// The folder of such folders, and who removes them. They go with it as long as it lives, and what is left by one that was killed
/// goes with the next.
#[derive(Debug)]
pub(crate) struct Discarded {
    dir: PathBuf,
    next: AtomicU64,
    folders: Sender<PathBuf>,
}

impl Discarded {
    /// Opens the one in `dir`, which is made if need be.
    pub(crate) fn open(dir: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let (folders, to_remove) = channel::<PathBuf>();
        for left in std::fs::read_dir(&dir)?.flatten() {
            let _ = folders.send(left.path());
        }
        std::thread::Builder::new().name("discarded".to_owned()).spawn(move || {
            for folder in to_remove {
                if let Err(error) = std::fs::remove_dir_all(&folder) {
                    tracing::warn!(folder = %folder.display(), %error, "what was discarded stays");
                }
            }
        })?;
        Ok(Self { dir, next: AtomicU64::new(0), folders })
    }

    /// Takes `folder` out of its place; absent is success. Nothing may be mounted in it.
    pub(crate) fn take(&self, folder: &Path) -> io::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let gone = self.dir.join(format!("{}-{number}", std::process::id()));
        match std::fs::rename(folder, &gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        }
        // Without its thread it is removed at the next start.
        let _ = self.folders.send(gone);
        Ok(())
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
