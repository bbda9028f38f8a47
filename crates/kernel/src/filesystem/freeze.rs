//! Holding a mounted file system still, so that what is on its device is whole.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::FilesystemError;

/// `_IOWR('X', 119, int)` and the next, from the kernel's fs.h.
const FIFREEZE: libc::c_ulong = 0xC004_5877;
const FITHAW: libc::c_ulong = 0xC004_5878;

/// A file system that stands still: everything is on its device, and who writes to it waits. It goes on when this is dropped. It
/// does not when the process dies: whoever comes next has to [`thaw`] it.
#[derive(Debug)]
pub struct Frozen {
    folder: File,
    path: PathBuf,
    left: bool,
}

impl Frozen {
    /// Leaves it frozen, as the death of the process would.
    pub fn leave(mut self) {
        self.left = true;
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        if let Err(error) = ask(&self.folder, FITHAW) {
            tracing::error!(path = %self.path.display(), %error, "a file system stays frozen");
        }
    }
}

/// Freezes the file system that is mounted at `mountpoint`.
///
/// # Errors
/// [`FilesystemError::Call`]; `EBUSY` if somebody else has frozen it.
pub fn freeze(mountpoint: &Path) -> Result<Frozen, FilesystemError> {
    let call = |call, source| FilesystemError::Call { call, path: mountpoint.to_owned(), source };
    let folder = File::open(mountpoint).map_err(|e| call("open", e))?;
    ask(&folder, FIFREEZE).map_err(|e| call("FIFREEZE", e))?;
    Ok(Frozen { folder, path: mountpoint.to_owned(), left: false })
}

/// Lets the file system at `mountpoint` go on, if it is frozen; gives whether it was.
///
/// # Errors
/// [`FilesystemError::Call`].
pub fn thaw(mountpoint: &Path) -> Result<bool, FilesystemError> {
    let call = |call, source| FilesystemError::Call { call, path: mountpoint.to_owned(), source };
    let folder = File::open(mountpoint).map_err(|e| call("open", e))?;
    match ask(&folder, FITHAW) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(e) => Err(call("FITHAW", e)),
    }
}

fn ask(folder: &File, request: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the request reads nothing.
    if unsafe { libc::ioctl(folder.as_raw_fd(), request, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
