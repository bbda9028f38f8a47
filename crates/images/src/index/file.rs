//! The index's file: read again when another process replaced it, replaced whole under the store's lock.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use trine_kernel::testing::failpoint;

use super::Index;
use crate::error::ImageError;

/// The index of a store, shared with other processes.
pub(crate) struct IndexFile {
    path: PathBuf,
    lock: PathBuf,
    cache: Mutex<Option<Cached>>,
}

struct Cached {
    /// Kept open so that no other file can have its inode.
    file: File,
    index: Arc<Index>,
}

/// The store's lock. Nobody else changes the index, publishes or removes layers meanwhile.
pub(crate) struct StoreLock {
    _file: File,
}

impl IndexFile {
    pub fn new(root: &Path) -> Self {
        Self { path: root.join("index.json"), lock: root.join("lock"), cache: Mutex::new(None) }
    }

    /// Waits for the store's lock; holders keep it for file operations only, never for the network.
    pub fn lock(&self) -> Result<StoreLock, ImageError> {
        let open = || -> std::io::Result<File> {
            let file = File::options().create(true).truncate(false).write(true).open(&self.lock)?;
            rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
            Ok(file)
        };
        let file = open().map_err(ImageError::io("lock", &self.lock))?;
        Ok(StoreLock { _file: file })
    }

    /// The index as it is now.
    pub fn read(&self) -> Result<Arc<Index>, ImageError> {
        let fail = |e| ImageError::io("read", &self.path)(e);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let stat = match std::fs::metadata(&self.path) {
            Ok(stat) => stat,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                *cache = None;
                return Ok(Arc::default());
            }
            Err(e) => return Err(fail(e)),
        };
        if let Some(cached) = &*cache
            && cached.file.metadata().map_err(fail)?.ino() == stat.ino()
        {
            return Ok(Arc::clone(&cached.index));
        }
        let mut file = File::open(&self.path).map_err(fail)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(fail)?;
        let index: Index = serde_json::from_slice(&text).map_err(|e| fail(e.into()))?;
        let index = Arc::new(index);
        *cache = Some(Cached { file, index: Arc::clone(&index) });
        Ok(index)
    }

    /// Changes the index; what `change` did is on disk when this returns. The caller holds the lock.
    pub fn update<T>(
        &self,
        _lock: &StoreLock,
        change: impl FnOnce(&mut Index) -> T,
    ) -> Result<T, ImageError> {
        let before = self.read()?;
        let mut index = (*before).clone();
        let result = change(&mut index);
        if index != *before {
            self.write(&index).map_err(ImageError::io("write", &self.path))?;
        }
        Ok(result)
    }

    fn write(&self, index: &Index) -> std::io::Result<()> {
        let draft = self.path.with_extension("json.new");
        let mut file = File::create(&draft)?;
        file.write_all(&serde_json::to_vec(index)?)?;
        file.sync_data()?;
        failpoint("image index: drafted");
        std::fs::rename(&draft, &self.path)?;
        if let Some(parent) = self.path.parent() {
            File::open(parent)?.sync_all()?;
        }
        Ok(())
    }
}
