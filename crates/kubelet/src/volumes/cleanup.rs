//! Removing folders of a Pod, never across a mount and never through a symlink.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use trine_kernel::mountpoint::{self, Mounted};

use super::metadata::absent_is_fine;
use crate::error::KubeletError;

/// What is mounted, oldest first.
///
/// # Errors
/// [`KubeletError::Io`].
pub fn mounts() -> Result<Vec<Mounted>, KubeletError> {
    mountpoint::mounted().map_err(mount_error("read the mount table of"))
}

/// A [`KubeletError::Io`] of a failed mount call.
pub fn mount_error(call: &'static str) -> impl FnOnce(mountpoint::MountError) -> KubeletError {
    move |error| {
        let text = format!("{}: {}", error.call, error.source);
        let source = std::io::Error::new(error.source.kind(), text);
        KubeletError::Io { call, path: error.path, source }
    }
}

/// Whether something is mounted exactly on `path`.
#[must_use]
pub fn is_mount_point(mounts: &[Mounted], path: &Path) -> bool {
    mounts.iter().any(|m| m.target == path)
}

/// Removes `dir` with all that is in it, unless something is mounted on or below it.
///
/// # Errors
/// [`KubeletError::Invalid`] if something is mounted; [`KubeletError::Io`].
pub fn remove_tree(dir: &Path) -> Result<(), KubeletError> {
    let device = match fs::symlink_metadata(dir) {
        Ok(meta) if meta.is_dir() => meta.dev(),
        Ok(_) => return absent_is_fine("remove", dir, fs::remove_file(dir)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(KubeletError::io("look at", dir)(e)),
    };
    if let Some(mounted) = mounts()?.iter().find(|m| m.target.starts_with(dir)) {
        let at = mounted.target.display();
        return Err(KubeletError::Invalid(format!("{} stays: {at} is mounted", dir.display())));
    }
    remove_below(dir, device)
}

/// The device number is checked again on the way, against a mount that comes in between.
fn remove_below(dir: &Path, device: u64) -> Result<(), KubeletError> {
    let meta = match fs::symlink_metadata(dir) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(KubeletError::io("look at", dir)(e)),
    };
    if !meta.is_dir() {
        return absent_is_fine("remove", dir, fs::remove_file(dir));
    }
    if meta.dev() != device {
        return Err(KubeletError::Invalid(format!("{} lies on another file system", dir.display())));
    }
    for entry in fs::read_dir(dir).map_err(KubeletError::io("read", dir))?.flatten() {
        remove_below(&entry.path(), device)?;
    }
    absent_is_fine("remove folder", dir, fs::remove_dir(dir))
}

/// Removes what is left of a Pod once its volumes are down: subpath binds first, then its folder.
///
/// # Errors
/// [`KubeletError`]; what could be removed is.
pub fn remove_pod(root: &Path, uid: &str) -> Result<(), KubeletError> {
    let dir = super::paths::pod(root, uid);
    let subpaths = dir.join("volume-subpaths");
    for mounted in mounts()?.iter().rev().filter(|m| m.target.starts_with(&subpaths)) {
        mountpoint::unmount_all(&mounted.target, true).map_err(mount_error("unmount"))?;
    }
    remove_tree(&dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_removed_but_not_what_its_links_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("data"), "x").unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        std::os::unix::fs::symlink(&precious, tree.join("a/link")).unwrap();
        remove_tree(&tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && precious.join("data").exists());
    }

    #[test]
    fn nothing_is_removed_while_something_is_mounted_below() {
        if !trine_kernel::testing::root("nothing_is_removed_while_something_is_mounted_below") {
            return;
        }
        struct Unmount(std::path::PathBuf);
        impl Drop for Unmount {
            fn drop(&mut self) {
                let _ = mountpoint::unmount_all(&self.0, true);
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let (data, tree) = (dir.path().join("data"), dir.path().join("tree"));
        fs::create_dir_all(tree.join("mount")).unwrap();
        fs::create_dir(&data).unwrap();
        fs::write(data.join("file"), "x").unwrap();
        mountpoint::bind(&data, &tree.join("mount"), false).unwrap();
        let guard = Unmount(tree.join("mount"));
        assert!(remove_tree(&tree).is_err());
        assert!(data.join("file").exists());
        drop(guard);
        remove_tree(&tree).unwrap();
        assert!(data.join("file").exists());
    }
}
