//! The mounts of a new machine, made by a thread that is inside it.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind,
    mount_change, move_mount, open_tree, unmount,
};

use super::plan::unwanted;

/// What is mounted in `/sys` and is the whole machine's.
const IN_SYS: [&str; 5] =
    ["/sys/fs/cgroup", "/sys/fs/bpf", "/sys/kernel/debug", "/sys/kernel/security", "/sys/kernel/tracing"];

/// Which files a machine sees in place of this one's.
#[derive(Debug, Clone, Default)]
pub struct Shared {
    /// Folders in place of others: what a program finds at the second path is the first. Both must exist.
    pub instead: Vec<(PathBuf, PathBuf)>,
    /// Folders whose mounts are others' business.
    pub foreign: Vec<PathBuf>,
    /// Paths that must stay as they are.
    pub keep: Vec<PathBuf>,
}

/// Cuts the calling thread's new mount namespace off from this machine's, and makes `/sys` that of its network.
pub(super) fn arrange(shared: &Shared) -> io::Result<()> {
    let all = MountPropagationFlags::REC;
    mount_change("/", MountPropagationFlags::PRIVATE | all)?;
    let mounted = crate::mountpoint::mounted().map_err(|e| e.source)?;
    for target in unwanted(&mounted, &shared.foreign, &shared.keep) {
        match unmount(&target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(e) => return Err(named("let go of", &target, e)),
        }
    }
    sys()?;
    for (from, to) in &shared.instead {
        mount_bind(from, to).map_err(|e| named("put something in place of", to, e))?;
    }
    // Pods that ask for it see what is mounted later, and may mount for others, as on any machine.
    Ok(mount_change("/", MountPropagationFlags::SHARED | all)?)
}

fn named(call: &str, path: &Path, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("cannot {call} {}: {error}", path.display()))
}

/// `/sys` shows the links of the network namespace of whoever mounted it.
fn sys() -> io::Result<()> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let mounted = crate::mountpoint::mounted().map_err(|e| e.source)?;
    let mut trees = Vec::new();
    for path in IN_SYS.into_iter().filter(|path| mounted.iter().any(|m| m.target == Path::new(path))) {
        trees.push((path, open_tree(CWD, path, flags).map_err(|e| named("copy", Path::new(path), e))?));
    }
    let options = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("sysfs", "/sys", "sysfs", options, None).map_err(|e| named("mount", Path::new("/sys"), e))?;
    for (path, tree) in trees {
        move_mount(&tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|e| named("mount", Path::new(path), e))?;
    }
    Ok(())
}
