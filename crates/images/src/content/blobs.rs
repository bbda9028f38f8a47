//! Small contents by their digest: manifests and configurations.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Digest, Staged};
use crate::error::ImageError;

/// The folder `blobs/sha256`.
#[derive(Debug)]
pub(crate) struct Blobs {
    dir: PathBuf,
}

impl Blobs {
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        let dir = root.join("blobs/sha256");
        std::fs::create_dir_all(&dir).map_err(ImageError::io("create", &dir))?;
        Ok(Self { dir })
    }

    /// Puts `bytes` there, whole or not at all. `staged` is where it is written first.
    pub fn put(&self, bytes: &[u8], staged: &Staged) -> Result<Digest, ImageError> {
        let digest = Digest::of(bytes);
        let path = self.path(&digest);
        if path.exists() {
            return Ok(digest);
        }
        let draft = staged.path().join(digest.hex());
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::create(&draft)?;
            file.write_all(bytes)?;
            file.sync_data()?;
            std::fs::rename(&draft, &path)
        };
        write().map_err(ImageError::io("write", &path))?;
        Ok(digest)
    }

    /// A content, if it is there and still what its name says.
    pub fn get(&self, digest: &Digest) -> Option<Vec<u8>> {
        std::fs::read(self.path(digest)).ok().filter(|bytes| Digest::of(bytes) == *digest)
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.dir.join(digest.hex())
    }

    /// Removes what `keep` does not name.
    pub fn sweep(&self, keep: &dyn Fn(&Digest) -> bool) -> Result<(), ImageError> {
        for entry in std::fs::read_dir(&self.dir).map_err(ImageError::io("list", &self.dir))?.flatten() {
            let digest = entry.file_name().to_str().and_then(|hex| Digest::parse(&format!("sha256:{hex}")));
            if !digest.as_ref().is_some_and(keep) {
                let path = entry.path();
                match std::fs::remove_file(&path) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                        return Err(ImageError::io("remove", &path)(e));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
