//! Signals, by number: containers name real-time ones that have no constant.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Ends a process without asking it.
pub const SIGKILL: i32 = libc::SIGKILL;
/// Asks a process to end.
pub const SIGTERM: i32 = libc::SIGTERM;

/// Sends signal `number` to the process behind `pidfd`; gone is success.
///
/// # Errors
/// What the kernel says.
pub fn signal_pidfd(pidfd: impl AsFd, number: i32) -> io::Result<()> {
    // SAFETY: takes integers and a null siginfo only; the descriptor is borrowed for the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_fd().as_raw_fd(),
            number,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    gone_is_success(result)
}

/// Sends signal `number` to `pid`, which the caller knows to be unreaped or still the same; gone is success.
///
/// # Errors
/// What the kernel says; a `pid` below 1 is refused.
pub fn signal_pid(pid: i32, number: i32) -> io::Result<()> {
    if pid < 1 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: takes integers only.
    gone_is_success(unsafe { libc::kill(pid, number) }.into())
}

/// Sends signal `number` to the process group led by `pid`; gone is success.
///
/// # Errors
/// What the kernel says; a `pid` below 2 is refused.
pub fn signal_group(pid: i32, number: i32) -> io::Result<()> {
    if pid < 2 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: takes integers only.
    gone_is_success(unsafe { libc::kill(-pid, number) }.into())
}

fn gone_is_success(result: libc::c_long) -> io::Result<()> {
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

const NAMES: [(&str, i32); 32] = [
    ("ABRT", libc::SIGABRT),
    ("ALRM", libc::SIGALRM),
    ("BUS", libc::SIGBUS),
    ("CHLD", libc::SIGCHLD),
    ("CLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("FPE", libc::SIGFPE),
    ("HUP", libc::SIGHUP),
    ("ILL", libc::SIGILL),
    ("INT", libc::SIGINT),
    ("IO", libc::SIGIO),
    ("IOT", libc::SIGABRT),
    ("KILL", libc::SIGKILL),
    ("PIPE", libc::SIGPIPE),
    ("POLL", libc::SIGIO),
    ("PROF", libc::SIGPROF),
    ("PWR", libc::SIGPWR),
    ("QUIT", libc::SIGQUIT),
    ("SEGV", libc::SIGSEGV),
    ("STOP", libc::SIGSTOP),
    ("SYS", libc::SIGSYS),
    ("TERM", libc::SIGTERM),
    ("TRAP", libc::SIGTRAP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("VTALRM", libc::SIGVTALRM),
    ("WINCH", libc::SIGWINCH),
    ("XCPU", libc::SIGXCPU),
];

/// The number of a signal as people write it: `SIGTERM`, `term`, `15`, `SIGRTMIN+3`, `RTMAX-1`.
#[must_use]
pub fn signal_number(text: &str) -> Option<i32> {
    let name = text.trim().to_ascii_uppercase();
    if let Ok(number) = name.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    // SIGSTKFLT and SIGXFSZ are not on every architecture's list above.
    let number = match name {
        "STKFLT" => Some(16),
        "XFSZ" => Some(libc::SIGXFSZ),
        "RTMIN" => Some(libc::SIGRTMIN()),
        "RTMAX" => Some(libc::SIGRTMAX()),
        _ => NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number),
    };
    let relative = |base: &str, of: i32, sign: i32| {
        let step = name.strip_prefix(base)?.parse::<i32>().ok()?;
        Some(of + sign * step)
    };
    number
        .or_else(|| relative("RTMIN+", libc::SIGRTMIN(), 1))
        .or_else(|| relative("RTMAX-", libc::SIGRTMAX(), -1))
        .filter(|number| (1..=64).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_as_people_write_them() {
        for (text, number) in [
            ("SIGTERM", Some(15)),
            ("term", Some(15)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("RTMAX-14", Some(50)),
            ("SIGNOPE", None),
            ("0", None),
            ("RTMIN+99", None),
            ("", None),
        ] {
            assert_eq!(signal_number(text), number, "{text}");
        }
    }

    #[test]
    fn no_signal_goes_to_everybody() {
        assert!(signal_pid(0, 9).is_err());
        assert!(signal_pid(-1, 9).is_err());
        assert!(signal_group(1, 9).is_err());
    }
}
