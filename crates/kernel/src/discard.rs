//! Folders that only wait to be removed: nobody has to wait for that.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};

/// Removes folders, one after another, on a thread of its own, which ends with this when it has removed them.
#[derive(Debug)]
pub struct Remover {
    folders: Sender<PathBuf>,
}

impl Remover {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there cannot be another.
    pub fn start() -> io::Result<Self> {
        let (folders, to_remove) = channel::<PathBuf>();
        std::thread::Builder::new().name("discarded".to_owned()).spawn(move || {
            for folder in to_remove {
                match std::fs::remove_dir_all(&folder) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        tracing::warn!(folder = %folder.display(), %error, "what was discarded stays");
                    }
                    _ => {}
                }
            }
        })?;
        Ok(Self { folders })
    }

    /// Takes `folder` out of its place, to `aside`, from where it is removed; absent is success. Nothing may be mounted in it. What
    /// is left there by one that was killed is for its successor.
    ///
    /// # Errors
    /// What the system says; the folder is in its place then.
    pub fn take(&self, folder: &Path, aside: PathBuf) -> io::Result<()> {
        match std::fs::rename(folder, &aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        }
        self.remove(aside);
        Ok(())
    }

    /// Removes a folder that nobody has any more.
    pub fn remove(&self, folder: PathBuf) {
        // The thread is there as long as this is.
        let _ = self.folders.send(folder);
    }
}
