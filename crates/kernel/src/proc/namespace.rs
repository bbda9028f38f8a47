//! What a single-threaded process does with its own namespaces.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::thread::{
    LinkNameSpaceType, ThreadNameSpaceType, UnshareFlags, move_into_link_name_space,
    move_into_thread_name_spaces, unshare_unsafe,
};

/// Moves into the network namespace pinned at `path`.
///
/// # Errors
/// What the kernel says.
pub fn enter_network(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Gets a new IPC namespace.
///
/// # Errors
/// What the kernel says.
pub fn new_ipc() -> io::Result<()> {
    // SAFETY: CLONE_NEWIPC does not touch the file table.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWIPC) }?)
}

/// Gets a new UTS namespace, with `hostname`.
///
/// # Errors
/// What the kernel says.
pub fn new_uts(hostname: &str) -> io::Result<()> {
    // SAFETY: CLONE_NEWUTS does not touch the file table.
    unsafe { unshare_unsafe(UnshareFlags::NEWUTS) }?;
    Ok(rustix::system::sethostname(hostname.as_bytes())?)
}

/// Makes this process's cgroups the root of a new cgroup namespace.
///
/// # Errors
/// What the kernel says.
pub fn new_cgroup() -> io::Result<()> {
    // SAFETY: CLONE_NEWCGROUP does not touch the file table.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWCGROUP) }?)
}

/// The pid namespace of `pid`.
///
/// # Errors
/// `NotFound` if the process is gone.
pub fn pid_namespace(pid: i32) -> io::Result<OwnedFd> {
    Ok(File::open(format!("/proc/{pid}/ns/pid"))?.into())
}

/// Runs `work`, whose children are born in the pid namespace `namespace`.
///
/// # Errors
/// What the kernel says, or `work`.
pub fn with_children_in<T>(namespace: impl AsFd, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let own = File::open("/proc/self/ns/pid")?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
    let result = work();
    move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
    result
}

/// Moves into the mount and cgroup namespaces of the process behind `pidfd`; its root becomes ours.
///
/// # Errors
/// What the kernel says.
pub fn enter_root_of(pidfd: impl AsFd) -> io::Result<()> {
    let kinds = ThreadNameSpaceType::MOUNT | ThreadNameSpaceType::CONTROL_GROUP;
    Ok(move_into_thread_name_spaces(pidfd.as_fd(), kinds)?)
}
