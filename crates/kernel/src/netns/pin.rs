//! Pins a namespace at a path by a bind mount, and unpins it.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::UnshareFlags;

use super::handle::{OWN, one_shot};
use super::{Netns, NetnsError};
use crate::testing::failpoint;

/// Makes a namespace and pins it at `path`.
pub(super) fn create(path: &Path) -> Result<(), NetnsError> {
    let io = |call: &'static str| move |source| NetnsError::Io { path: path.to_owned(), call, source };
    if Netns::open(path).is_ok() {
        return Err(io("create it")(io::Error::from(Errno::EXIST)));
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(io("create the folder of"))?;
    }
    OpenOptions::new().create(true).append(true).open(path).map_err(io("create the file of"))?;
    failpoint("netns: file");
    let pinned = one_shot(path, || {
        // SAFETY: CLONE_NEWNET touches no file table; this thread alone changes its namespace, and it ends here.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(|e| io("unshare")(e.into()))?;
        mount_bind(OWN, path).map_err(|e| io("pin")(e.into()))?;
        failpoint("netns: pinned");
        Ok(())
    });
    if pinned.is_err() {
        let _ = std::fs::remove_file(path);
    }
    pinned
}

/// Unpins and removes `path`; absent is success. The namespace itself dies with its last process, socket or handle,
/// and its links with it.
///
/// # Errors
/// [`NetnsError::Io`] if the path is there and cannot be removed.
pub fn delete(path: &Path) -> Result<(), NetnsError> {
    let io = |call: &'static str, e: io::Error| NetnsError::Io { path: path.to_owned(), call, source: e };
    // More than one mount may lie on the path after a crash between pin and record.
    loop {
        match unmount(path, UnmountFlags::DETACH) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => break,
            Err(e) => return Err(io("unpin", e.into())),
        }
    }
    failpoint("netns: unpinned");
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io("remove", e)),
        _ => Ok(()),
    }
}
