//! An open network namespace.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::NetnsError;
use super::pin;

/// The file system of namespaces (`linux/magic.h`).
const NSFS_MAGIC: u64 = 0x6e73_6673;
/// Where a thread sees its own namespace.
pub(super) const OWN: &str = "/proc/thread-self/ns/net";

/// Says whether two handles are the same namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NetnsId {
    device: u64,
    inode: u64,
}

/// An open network namespace. It lives at least as long as this handle.
#[derive(Debug)]
pub struct Netns {
    path: PathBuf,
    fd: OwnedFd,
    id: NetnsId,
}

impl Netns {
    /// Makes a new namespace and pins it at `path` (the folder is made if needed), so that it outlives this process.
    /// A crash in between leaves at most an empty file, which [`Netns::create`] takes over and [`super::delete`]
    /// removes.
    ///
    /// # Errors
    /// [`NetnsError`]; `EEXIST` if a namespace is pinned there already.
    pub fn create(path: &Path) -> Result<Self, NetnsError> {
        pin::create(path)?;
        Self::open(path)
    }

    /// Opens the namespace at `path` (a pin or a `/proc/<pid>/ns/net`).
    ///
    /// # Errors
    /// [`NetnsError`]; see [`NetnsError::is_absent`].
    pub fn open(path: &Path) -> Result<Self, NetnsError> {
        let io = |source| NetnsError::Io { path: path.to_owned(), call: "open it", source };
        let file = File::open(path).map_err(io)?;
        let stat = rustix::fs::fstatfs(&file).map_err(|e| io(e.into()))?;
        if u64::try_from(stat.f_type).unwrap_or(0) != NSFS_MAGIC {
            return Err(NetnsError::NotANetns { path: path.to_owned() });
        }
        let meta = file.metadata().map_err(io)?;
        let id = NetnsId { device: meta.dev(), inode: meta.ino() };
        Ok(Self { path: path.to_owned(), fd: file.into(), id })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetnsError::Io`] if `/proc` is not mounted.
    pub fn current() -> Result<Self, NetnsError> {
        Self::open(Path::new(OWN))
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> NetnsId {
        self.id
    }

    /// Runs `work` on a one-shot thread inside the namespace and waits for it.
    ///
    /// # Errors
    /// [`NetnsError`] if the namespace cannot be entered or `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        one_shot(&self.path, || {
            move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|e| {
                NetnsError::Io { path: self.path.clone(), call: "enter it", source: e.into() }
            })?;
            Ok(work())
        })
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Runs `work` on a thread that ends with it. Its panic is an error, not ours.
pub(super) fn one_shot<T: Send>(
    path: &Path,
    work: impl FnOnce() -> Result<T, NetnsError> + Send,
) -> Result<T, NetnsError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, work).map_err(
            |source| NetnsError::Io { path: path.to_owned(), call: "start a thread for it", source },
        )?;
        thread.join().unwrap_or_else(|panic| {
            let message = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                .unwrap_or_else(|| "no message".to_owned());
            Err(NetnsError::Panicked { path: path.to_owned(), message })
        })
    })
}
