//! A part of a volume, mounted elsewhere without ever resolving its path twice: what a Pod puts into its own
//! volume (symlinks, renames) cannot lead the bind outside of it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::{MoveMountFlags, OpenTreeFlags};

/// A call about a part of a volume that failed.
#[derive(Debug, thiserror::Error)]
#[error("{call} {path} in {root}")]
pub struct SubpathError {
    /// What was tried.
    pub call: &'static str,
    /// The part.
    pub path: PathBuf,
    /// The volume.
    pub root: PathBuf,
    /// What the kernel said; `EXDEV` or `ELOOP` if the part leads outside of the volume.
    pub source: io::Error,
}

/// An open part of a volume.
pub struct Subpath {
    part: OwnedFd,
    root: PathBuf,
    path: PathBuf,
    directory: bool,
}

/// Opens `path` beneath `root`; folders that are missing are made with `mode`. Symlinks are followed as long as
/// they stay beneath `root`, which those of a ConfigMap do.
///
/// # Errors
/// [`SubpathError`].
pub fn open(root: &Path, path: &Path, mode: u32) -> Result<Subpath, SubpathError> {
    let error = |call: &'static str| {
        move |e: rustix::io::Errno| SubpathError {
            call,
            path: path.to_owned(),
            root: root.to_owned(),
            source: e.into(),
        }
    };
    let top = rustix::fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(error("open"))?;
    let mut done = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir | Component::RootDir => continue,
            Component::Normal(name) => done.push(name),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(error("leave the volume by")(rustix::io::Errno::INVAL));
            }
        }
        match beneath(&top, &done) {
            Ok(_) => {}
            Err(rustix::io::Errno::NOENT) => make(&top, &done, mode).map_err(error("create"))?,
            Err(e) => return Err(error("open")(e)),
        }
    }
    let part = if done.as_os_str().is_empty() { top } else { beneath(&top, &done).map_err(error("open"))? };
    let stat = rustix::fs::fstat(&part).map_err(error("look at"))?;
    let directory = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    Ok(Subpath { part, root: root.to_owned(), path: path.to_owned(), directory })
}

/// Where `path` of a file system that nobody changes is on this machine: symlinks, absolute ones too, are followed as if
/// `root` were the root.
///
/// # Errors
/// [`SubpathError`]; `ENOENT` if it is not there.
pub fn within(root: &Path, path: &Path) -> Result<PathBuf, SubpathError> {
    let error = |e: rustix::io::Errno| SubpathError {
        call: "find",
        path: path.to_owned(),
        root: root.to_owned(),
        source: e.into(),
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let top = rustix::fs::open(root, flags, Mode::empty()).map_err(error)?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = rustix::fs::openat2(&top, path, flags, Mode::empty(), resolve).map_err(error)?;
    let name =
        rustix::fs::readlink(format!("/proc/self/fd/{}", found.as_raw_fd()), Vec::new()).map_err(error)?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(name.into_bytes())))
}

fn beneath(top: &impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat2(
        top,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    )
}

fn make(top: &impl AsFd, path: &Path, mode: u32) -> rustix::io::Result<()> {
    let name = path.file_name().unwrap_or(OsStr::new("."));
    let parent = match path.parent().filter(|p| !p.as_os_str().is_empty()) {
        Some(parent) => beneath(top, parent)?,
        None => rustix::fs::openat(top, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
    };
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
        Err(rustix::io::Errno::EXIST) | Ok(()) => Ok(()),
        Err(e) => Err(e),
    }
}

impl Subpath {
    /// Whether it is a folder; the mount point must be of the same kind.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.directory
    }

    /// Mounts it on `target`, with what is mounted below it.
    ///
    /// # Errors
    /// [`SubpathError`].
    pub fn mount(&self, target: &Path) -> Result<(), SubpathError> {
        let error = |call: &'static str| {
            move |e: rustix::io::Errno| SubpathError {
                call,
                path: self.path.clone(),
                root: self.root.clone(),
                source: e.into(),
            }
        };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = rustix::mount::open_tree(&self.part, "", flags).map_err(error("clone"))?;
        rustix::mount::move_mount(&tree, "", rustix::fs::CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(error("mount"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mountpoint, testing};

    #[test]
    fn a_part_is_opened_made_or_refused_when_it_leads_outside() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("v");
        std::fs::create_dir_all(root.join("..data")).unwrap();
        std::fs::write(root.join("..data/key"), "x").unwrap();
        std::os::unix::fs::symlink("..data/key", root.join("key")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
        std::os::unix::fs::symlink("../..", root.join("up")).unwrap();
        assert!(!open(&root, Path::new("key"), 0o750).unwrap().is_dir());
        assert!(open(&root, Path::new("new/deep"), 0o750).unwrap().is_dir());
        assert!(root.join("new/deep").is_dir());
        for bad in ["out/passwd", "up/x", "../v", "a/../../b"] {
            assert!(open(&root, Path::new(bad), 0o750).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_is_found_as_if_the_root_were_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("v");
        std::fs::create_dir_all(root.join("etc/deep")).unwrap();
        std::os::unix::fs::symlink("/etc/deep", root.join("absolute")).unwrap();
        std::os::unix::fs::symlink("../../../etc", root.join("up")).unwrap();
        for (path, expected) in [
            ("etc", "etc"),
            ("/etc/", "etc"),
            ("absolute", "etc/deep"),
            ("up/deep", "etc/deep"),
            ("etc/../../../etc", "etc"),
        ] {
            assert_eq!(within(&root, Path::new(path)).unwrap(), root.join(expected), "{path}");
        }
        let absent = within(&root, Path::new("usr")).unwrap_err();
        assert_eq!(absent.source.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_part_is_mounted_even_if_its_path_changes_meanwhile() {
        if !testing::root("a_part_is_mounted_even_if_its_path_changes_meanwhile") {
            return;
        }
        struct Unmount(PathBuf);
        impl Drop for Unmount {
            fn drop(&mut self) {
                let _ = mountpoint::unmount_all(&self.0, true);
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let (root, target) = (dir.path().join("v"), dir.path().join("t"));
        std::fs::create_dir_all(root.join("part")).unwrap();
        std::fs::create_dir(&target).unwrap();
        std::fs::write(root.join("part/file"), "x").unwrap();
        let part = open(&root, Path::new("part"), 0o750).unwrap();
        std::fs::rename(root.join("part"), root.join("moved")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("part")).unwrap();
        let _guard = Unmount(target.clone());
        part.mount(&target).unwrap();
        assert_eq!(std::fs::read_to_string(target.join("file")).unwrap(), "x");
    }
}
