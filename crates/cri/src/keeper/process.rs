//! Pipes of a process, and how it ended.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::WaitStatus;
use trine_kernel::container::Stdio;

/// The keeper's ends of a process's streams.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
}

/// Pipes for a process without a terminal.
pub(super) fn pipes(stdin: bool) -> io::Result<(Stdio, Ends)> {
    let (out_read, out_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (err_read, err_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (in_read, in_write) = if stdin {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        (Some(read), Some(write))
    } else {
        (None, None)
    };
    let ends = Ends { stdin: in_write, stdout: Some(out_read), stderr: Some(err_read) };
    for fd in [&ends.stdin, &ends.stdout, &ends.stderr].into_iter().flatten() {
        never_wait(fd)?;
    }
    Ok((Stdio { stdin: in_read, stdout: Some(out_write), stderr: Some(err_write) }, ends))
}

/// Makes reads and writes of `fd` return at once.
pub(super) fn never_wait(fd: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// A shell's number for how a process ended.
pub(super) fn exit_code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(255)
}

/// Now, ns since 1970.
pub(super) fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
