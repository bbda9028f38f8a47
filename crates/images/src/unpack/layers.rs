//! Unpacked layers on disk, each under its chain id, each there only when it is complete.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, openat2};
use serde::{Deserialize, Serialize};

use super::LayerError;
use super::apply::{Expect, Unpacked, unpack};
use crate::content::{Digest, Session, Staged};
use crate::error::ImageError;

/// What is kept beside a layer's files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LayerMeta {
    pub diff_id: Digest,
    /// Bytes of its files.
    pub bytes: u64,
    /// Files of every kind.
    pub inodes: u64,
}

/// A layer that is unpacked but not yet in its place.
pub(crate) struct NewLayer {
    pub staged: Staged,
    pub unpacked: Unpacked,
}

impl NewLayer {
    /// Unpacks a layer into a folder of the session.
    pub fn unpack(
        session: &Arc<Session>,
        purpose: &str,
        blob: impl Read + 'static,
        expect: &Expect,
    ) -> Result<Result<Self, LayerError>, ImageError> {
        let staged = session.stage(purpose)?;
        let fs = staged.path().join("fs");
        std::fs::create_dir(&fs).map_err(ImageError::io("create", &fs))?;
        Ok(unpack(&fs, blob, expect).map(|unpacked| Self { staged, unpacked }))
    }

    /// The layer's files, for now.
    pub fn fs(&self) -> PathBuf {
        self.staged.path().join("fs")
    }

    /// Gives folders that the archive only implied the attributes of the layers below, topmost first.
    pub fn inherit(&self, below: &[PathBuf]) -> Result<(), ImageError> {
        let fs = self.fs();
        for path in &self.unpacked.implied {
            let Some(stat) =
                below.iter().find_map(|lower| folder(lower, path)).and_then(|fd| fstat(&fd).ok())
            else {
                continue;
            };
            let fail =
                |e: rustix::io::Errno| ImageError::io("set the attributes of", &fs.join(path))(e.into());
            let Some(own) = folder(&fs, path) else { continue };
            fchown(&own, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid))).map_err(fail)?;
            fchmod(&own, Mode::from_raw_mode(stat.st_mode & 0o7777)).map_err(fail)?;
        }
        Ok(())
    }

    fn write_meta(&self) -> Result<(), ImageError> {
        let meta = LayerMeta {
            diff_id: self.unpacked.diff_id.clone(),
            bytes: self.unpacked.bytes,
            inodes: self.unpacked.inodes,
        };
        let path = self.staged.path().join("layer.json");
        let write = || std::fs::write(&path, serde_json::to_vec(&meta)?);
        write().map_err(ImageError::io("write", &path))
    }
}

/// The folder at `path` as seen with `root` as `/`.
fn folder(root: &Path, path: &Path) -> Option<std::os::fd::OwnedFd> {
    use rustix::fs::ResolveFlags;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS).ok()
}

/// The folder `layers`.
#[derive(Debug)]
pub(crate) struct Layers {
    dir: PathBuf,
}

impl Layers {
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        let dir = root.join("layers");
        std::fs::create_dir_all(&dir).map_err(ImageError::io("create", &dir))?;
        Ok(Self { dir })
    }

    fn path(&self, chain: &Digest) -> PathBuf {
        self.dir.join(chain.hex())
    }

    /// Where the layer's files are, or will be.
    pub fn fs(&self, chain: &Digest) -> PathBuf {
        self.path(chain).join("fs")
    }

    pub fn has(&self, chain: &Digest) -> bool {
        self.path(chain).is_dir()
    }

    pub fn meta(&self, chain: &Digest) -> Option<LayerMeta> {
        serde_json::from_slice(&std::fs::read(self.path(chain).join("layer.json")).ok()?).ok()
    }

    /// All layers there are.
    pub fn all(&self) -> Result<BTreeSet<Digest>, ImageError> {
        let entries = std::fs::read_dir(&self.dir).map_err(ImageError::io("list", &self.dir))?;
        let name =
            |entry: std::fs::DirEntry| Digest::parse(&format!("sha256:{}", entry.file_name().to_str()?));
        Ok(entries.flatten().filter_map(name).collect())
    }

    /// Puts all bytes of new layers on disk, with one sync for all of them.
    pub fn settle(&self, new: &[(Digest, NewLayer)]) -> Result<(), ImageError> {
        if new.is_empty() {
            return Ok(());
        }
        for (_, layer) in new {
            layer.write_meta()?;
        }
        let sync = || -> std::io::Result<()> { Ok(rustix::fs::syncfs(File::open(&self.dir)?)?) };
        sync().map_err(ImageError::io("sync", &self.dir))
    }

    /// Gives settled layers their places. The caller holds the store's lock.
    pub fn publish(&self, new: &[(Digest, NewLayer)]) -> Result<(), ImageError> {
        for (chain, layer) in new {
            let path = self.path(chain);
            layer.staged.publish(&path).map_err(ImageError::io("move a layer to", &path))?;
        }
        if new.is_empty() {
            return Ok(());
        }
        let sync = || File::open(&self.dir)?.sync_all();
        sync().map_err(ImageError::io("sync", &self.dir))
    }

    /// Takes layers that `keep` does not name out of their places; their files go when the returned folders are
    /// dropped, after the store's lock.
    pub fn sweep(&self, session: &Arc<Session>, keep: &BTreeSet<Digest>) -> Result<Vec<Staged>, ImageError> {
        let mut gone = Vec::new();
        for chain in self.all()?.difference(keep) {
            let path = self.path(chain);
            let staged = session.stage(&format!("removal of layer {chain}"))?;
            std::fs::rename(&path, staged.path().join("layer")).map_err(ImageError::io("remove", &path))?;
            gone.push(staged);
        }
        Ok(gone)
    }
}
