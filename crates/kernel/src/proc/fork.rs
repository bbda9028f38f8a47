//! Forks a child that runs Rust code before it executes a program. Only for single-threaded processes: of a
//! threaded one the child would have just the calling thread, and the locks of the others for ever.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Which namespaces the child gets for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewNamespaces {
    /// A mount namespace of its own, at first a copy.
    pub mount: bool,
    /// A pid namespace in which it is process 1.
    pub pid: bool,
    /// A user namespace, still without users, whose the others are.
    pub user: bool,
    /// A network namespace.
    pub network: bool,
    /// An IPC namespace.
    pub ipc: bool,
    /// A UTS namespace.
    pub uts: bool,
}

impl NewNamespaces {
    fn flags(self) -> u64 {
        let all = [
            (self.mount, libc::CLONE_NEWNS),
            (self.pid, libc::CLONE_NEWPID),
            (self.user, libc::CLONE_NEWUSER),
            (self.network, libc::CLONE_NEWNET),
            (self.ipc, libc::CLONE_NEWIPC),
            (self.uts, libc::CLONE_NEWUTS),
        ];
        all.into_iter()
            .filter(|(wanted, _)| *wanted)
            .fold(0, |flags, (_, flag)| flags | u64::from(flag.cast_unsigned()))
    }
}

/// A child that was forked.
#[derive(Debug)]
pub struct Forked {
    /// Its pid in our pid namespace.
    pub pid: i32,
    /// Becomes readable when it ends.
    pub pidfd: OwnedFd,
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// The group that [`CloneArgs::cgroup`] names is meant (`linux/sched.h`).
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Forks. In the child all descriptors but 0, 1, 2 and `keep` are closed, then `child` runs, which never returns;
/// should it panic, the child ends with code 126. Nothing of the parent's is dropped in the child. It is born in the version 2
/// cgroup whose folder is `group`, if there is one.
///
/// # Errors
/// What the kernel says; `Unsupported` if this process has more than one thread.
pub fn fork(
    namespaces: NewNamespaces,
    group: Option<BorrowedFd<'_>>,
    keep: &[BorrowedFd<'_>],
    child: impl FnOnce() -> std::convert::Infallible,
) -> io::Result<Forked> {
    if threads()? != 1 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "fork from a process with threads"));
    }
    let mut flags = u64::from(libc::CLONE_PIDFD.cast_unsigned()) | namespaces.flags();
    let group = group.and_then(|group| u64::try_from(group.as_raw_fd()).ok());
    if group.is_some() {
        flags |= CLONE_INTO_CGROUP;
    }
    let mut pidfd: libc::c_int = -1;
    let args = CloneArgs {
        flags,
        cgroup: group.unwrap_or_default(),
        pidfd: std::ptr::from_mut(&mut pidfd) as u64,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        ..CloneArgs::default()
    };
    // SAFETY: no stack is given and no memory is shared, so this is a fork; the process has one thread, so every
    // lock of the allocator and of libc is free in the child. `args` outlives the call.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone3, std::ptr::from_ref(&args), std::mem::size_of::<CloneArgs>())
    };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            close_all_but(keep);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            match outcome {
                Ok(never) => match never {},
                Err(_) => exit_now(126),
            }
        }
        pid => {
            // SAFETY: the kernel has just made this descriptor for us.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Forked { pid: i32::try_from(pid).unwrap_or(i32::MAX), pidfd })
        }
    }
}

/// Ends this process at once: no destructors, no exit handlers (they are the parent's).
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// From now on this process reads nothing from its standard input and says nothing.
pub fn silence() {
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        for fd in 0..3 {
            // SAFETY: makes a standard descriptor one of `null`; nobody has it in an owner that would notice.
            unsafe { libc::dup2(null.as_raw_fd(), fd) };
        }
    }
}

/// Has the kernel reap this process's children by itself, or has them wait for their parent, which is what a new program expects.
pub fn children_are_reaped(by_kernel: bool) {
    let action = if by_kernel { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: neither action installs a handler.
    unsafe { libc::signal(libc::SIGCHLD, action) };
}

fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Closes every descriptor above 2 but `keep`.
fn close_all_but(keep: &[BorrowedFd<'_>]) {
    let mut kept: Vec<u32> = keep.iter().filter_map(|fd| u32::try_from(fd.as_raw_fd()).ok()).collect();
    kept.sort_unstable();
    let mut from = 3;
    for fd in kept.into_iter().filter(|fd| *fd >= 3) {
        if fd > from {
            close_range(from, fd - 1);
        }
        from = fd + 1;
    }
    close_range(from, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: the child never uses or drops what it closes here: its code sees only `keep`, and it ends by `_exit`
    // or by executing a program.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Stays as process 1 of a pid namespace, which lives as long as it does: lets the kernel reap its orphans, and ends
/// with its parent.
pub fn hold_pid_namespace() -> ! {
    children_are_reaped(true);
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    loop {
        // SAFETY: waits for a signal; takes and returns nothing that matters.
        unsafe { libc::pause() };
    }
}
