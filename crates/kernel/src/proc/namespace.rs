//! What a single-threaded process does with its own namespaces.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Gid, Uid};
use rustix::thread::{
    LinkNameSpaceType, ThreadNameSpaceType, UnshareFlags, move_into_link_name_space,
    move_into_thread_name_spaces, set_thread_gid, set_thread_uid, unshare_unsafe,
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

/// Pins the namespace `kind` (`user`, `net`) of `pid` at `path`, a file, so that it lives without a process.
///
/// # Errors
/// What the kernel says.
pub fn pin(pid: i32, kind: &str, path: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_bind(format!("/proc/{pid}/ns/{kind}"), path)?)
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

/// Moves into the network, IPC and UTS namespaces of the process behind `pidfd`, as far as they are asked for.
///
/// # Errors
/// What the kernel says.
pub fn enter_shared_of(pidfd: impl AsFd, network: bool, ipc: bool, uts: bool) -> io::Result<()> {
    let mut kinds = ThreadNameSpaceType::empty();
    kinds.set(ThreadNameSpaceType::NETWORK, network);
    kinds.set(ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION, ipc);
    kinds.set(ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME, uts);
    if kinds.is_empty() {
        return Ok(());
    }
    Ok(move_into_thread_name_spaces(pidfd.as_fd(), kinds)?)
}

/// Becomes the root of the user namespace that it is in, instead of somebody outside of it.
fn become_root() -> io::Result<()> {
    set_thread_gid(Gid::from_raw(0))?;
    Ok(set_thread_uid(Uid::from_raw(0))?)
}

/// Moves into the user namespace behind `users` for good, as its root with all capabilities, and into a mount namespace of its own
/// there: what is mounted now can be covered in it, but not be taken away.
///
/// # Errors
/// What the kernel says.
pub fn enter_users(users: impl AsFd) -> io::Result<()> {
    move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))?;
    become_root()?;
    // SAFETY: CLONE_NEWNS does not touch the file table.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?)
}

/// Moves into the mount and cgroup namespaces of the process behind `pidfd`, its root becomes ours; into its user namespace too, if
/// it has one of its own (`users`).
///
/// # Errors
/// What the kernel says.
pub fn enter_root_of(pidfd: impl AsFd, users: bool) -> io::Result<()> {
    let mut kinds = ThreadNameSpaceType::MOUNT | ThreadNameSpaceType::CONTROL_GROUP;
    kinds.set(ThreadNameSpaceType::USER, users);
    move_into_thread_name_spaces(pidfd.as_fd(), kinds)?;
    if users { become_root() } else { Ok(()) }
}
