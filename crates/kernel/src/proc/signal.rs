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

/// False if the kernel would drop signal `number` sent to `pid` now, though it may not later: the first process of a
/// pid namespace gets none whose effect is the default one (pid_namespaces(7)), so also none that it is about to catch.
#[must_use]
pub fn is_heard(pid: i32, number: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).map_or(true, |status| hears(&status, number))
}

/// The same of the text of `/proc/<pid>/status` (proc_pid_status(5)).
fn hears(status: &str, number: i32) -> bool {
    if number == SIGKILL || number == libc::SIGSTOP {
        return true;
    }
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
    let is_first = field("NSpid:").split_ascii_whitespace().next_back() == Some("1");
    let holds = |name: &str| {
        let bits = u64::from_str_radix(field(name), 16).unwrap_or(0);
        u32::try_from(number - 1).is_ok_and(|bit| bits.checked_shr(bit).unwrap_or(0) & 1 == 1)
    };
    // One that is blocked waits for whoever unblocks or fetches it; one that is ignored is meant to be.
    !is_first || ["SigCgt:", "SigBlk:", "SigIgn:"].into_iter().any(holds)
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
    fn the_first_process_of_a_namespace_hears_only_what_it_asks_for() {
        let status = |pids: &str, blocked: u64, ignored: u64, caught: u64| {
            format!(
                "Name:\tx\nNSpid:\t{pids}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
            )
        };
        let (term, last) = (1 << 14, 1 << 63);
        for (text, signal, heard) in [
            (status("70\t1", 0, 0, 0), 15, false),
            (status("70\t1", 0, 0, term), 15, true),
            (status("70\t1", term, 0, 0), 15, true),
            (status("70\t1", 0, term, 0), 15, true),
            (status("70\t1", 0, 0, term), 2, false),
            (status("70\t1", 0, 0, last), 64, true),
            (status("70\t1", 0, 0, 0), 9, true),
            (status("70\t1", 0, 0, 0), 19, true),
            (status("70\t5", 0, 0, 0), 15, true),
            (status("70", 0, 0, 0), 15, true),
            (String::new(), 15, true),
        ] {
            assert_eq!(hears(&text, signal), heard, "{signal}: {text}");
        }
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(is_heard(own, SIGTERM));
    }

    #[test]
    fn no_signal_goes_to_everybody() {
        assert!(signal_pid(0, 9).is_err());
        assert!(signal_pid(-1, 9).is_err());
        assert!(signal_group(1, 9).is_err());
    }
}
