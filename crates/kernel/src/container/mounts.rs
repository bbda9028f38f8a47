//! Single mounts of a container, made detached and then moved to their place, so that no path is resolved twice.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_bind, mount_bind_recursive, move_mount,
    open_tree,
};

use super::options::{Bind, Options, Propagation};

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Shows the owners of files of the detached mount at `fd` as the user namespace `users` has them, without what is mounted below;
/// for reading only if `readonly`.
pub(crate) fn show_owners(fd: BorrowedFd<'_>, users: BorrowedFd<'_>, readonly: bool) -> Result<(), Errno> {
    let userns_fd = u64::try_from(users.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let mut set = MountAttrFlags::MOUNT_ATTR_IDMAP;
    set.set(MountAttrFlags::MOUNT_ATTR_RDONLY, readonly);
    let set = set.bits().into();
    change(fd, &MountAttr { set, clear: 0, propagation: 0, userns_fd }, false)
}

/// Changes flags and propagation of the mount at `fd`, and of all below it if `recursive`.
fn set_attributes(
    fd: BorrowedFd<'_>,
    attributes: MountAttrFlags,
    propagation: Option<Propagation>,
    recursive: bool,
) -> Result<(), Errno> {
    let atime = MountAttrFlags::MOUNT_ATTR_NOATIME | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
    let clear = if attributes.intersects(atime) { MountAttrFlags::MOUNT_ATTR__ATIME.bits() } else { 0 };
    let propagation = match propagation {
        None => 0,
        Some(Propagation::Private) => libc::MS_PRIVATE,
        Some(Propagation::Slave) => libc::MS_SLAVE,
        Some(Propagation::Shared) => libc::MS_SHARED,
    };
    change(
        fd,
        &MountAttr { set: attributes.bits().into(), clear: clear.into(), propagation, userns_fd: 0 },
        recursive,
    )
}

fn change(fd: BorrowedFd<'_>, attr: &MountAttr, recursive: bool) -> Result<(), Errno> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, `attr` has the size that is passed, both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            std::mem::size_of::<MountAttr>(),
        )
    };
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// A detached copy of the mount that `source` lies on, from `source` downwards.
pub(super) fn copy_of(source: &Path, bind: Bind) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if bind == Bind::Recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, source, flags)
}

/// Binds `source` on `target`, with what is mounted below if `options` say so. It stays one of the source's peers.
pub(super) fn attach(source: &OwnedFd, target: &OwnedFd, options: &Options) -> Result<(), Errno> {
    let path = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    match options.bind {
        Some(Bind::Recursive) => mount_bind_recursive(path(source), path(target)),
        _ => mount_bind(path(source), path(target)),
    }
}

/// Sets what `options` say of flags and propagation on a detached mount.
pub(super) fn apply(mount: &OwnedFd, options: &Options) -> Result<(), Errno> {
    let recursive = options.bind == Some(Bind::Recursive);
    if !options.attributes.is_empty() {
        set_attributes(mount.as_fd(), options.attributes, None, false)?;
    }
    if !options.recursive.is_empty() {
        set_attributes(mount.as_fd(), options.recursive, None, true)?;
    }
    if options.propagation.is_some() {
        set_attributes(mount.as_fd(), MountAttrFlags::empty(), options.propagation, recursive)?;
    }
    Ok(())
}

/// A new file system, detached.
pub(super) fn new_file_system(kind: &str, source: &Path, options: &Options) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    if !source.as_os_str().is_empty() {
        fsconfig_set_string(context.as_fd(), "source", source)?;
    }
    for (key, value) in &options.data {
        match value {
            Some(value) => fsconfig_set_string(context.as_fd(), key.as_str(), value.as_str())?,
            None => fsconfig_set_flag(context.as_fd(), key.as_str())?,
        }
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, options.attributes)
}

/// Puts a detached mount on `target`.
pub(super) fn place(mount: &OwnedFd, target: &OwnedFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount.as_fd(), "", target.as_fd(), "", flags)
}

/// Makes the mount at `path` read-only.
pub(super) fn make_readonly(path: &Path) -> Result<(), Errno> {
    let fd = rustix::fs::open(path, rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC, 0.into())?;
    set_attributes(fd.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, None, false)
}
