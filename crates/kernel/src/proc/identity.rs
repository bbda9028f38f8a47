//! Which process is it, and does it still live?

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

/// Place of the start time among the fields after the program's name in `/proc/<pid>/stat` (proc(5): field 22).
const START_TIME: usize = 19;

/// A process of this boot: the start time tells it from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its pid in our pid namespace.
    pub pid: i32,
    /// Clock ticks after boot.
    pub start_time: u64,
}

impl ProcessId {
    /// The identity of a living `pid`.
    ///
    /// # Errors
    /// `NotFound` if there is no such process.
    pub fn of(pid: i32) -> io::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let start_time = stat_fields(&stat)
            .nth(START_TIME)
            .and_then(|field| field.parse().ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat")))?;
        Ok(Self { pid, start_time })
    }

    /// The identity of this process.
    ///
    /// # Errors
    /// If `/proc` is not mounted.
    pub fn own() -> io::Result<Self> {
        Self::of(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// True if it runs; false if it is gone, a zombie, or its pid is another process's now.
    #[must_use]
    pub fn lives(&self) -> bool {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        let mut fields = stat_fields(&stat);
        let state = fields.next().unwrap_or("X");
        let start = fields.nth(START_TIME - 1).and_then(|field| field.parse().ok());
        !matches!(state, "Z" | "X") && start == Some(self.start_time)
    }

    /// A handle by which the process can be awaited and signalled without the risk of meeting another.
    ///
    /// # Errors
    /// `NotFound` if it is gone.
    pub fn open(&self) -> io::Result<OwnedFd> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, format!("process {} is gone", self.pid));
        let pid = Pid::from_raw(self.pid).ok_or_else(gone)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?;
        if Self::of(self.pid).is_ok_and(|now| now == *self) { Ok(pidfd) } else { Err(gone()) }
    }
}

fn stat_fields(stat: &str) -> impl Iterator<Item = &str> {
    // The program's name may hold blanks and parentheses; only its last parenthesis is certain.
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace()
}

/// This boot's id.
///
/// # Errors
/// If `/proc` is not mounted.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Makes this process the new parent of all orphans among its descendants.
///
/// # Errors
/// What the kernel says.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        let fields: Vec<_> = stat_fields(stat).collect();
        assert_eq!((fields[0], fields[START_TIME]), ("S", "4242"));
    }

    #[test]
    fn this_process_lives_and_one_with_another_start_time_does_not() {
        let own = ProcessId::own().unwrap();
        assert!(own.lives());
        assert!(own.open().is_ok());
        let other = ProcessId { start_time: own.start_time + 1, ..own };
        assert!(!other.lives());
        assert_eq!(other.open().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_zombie_does_not_live() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        for _ in 0..200 {
            if !id.lives() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(!id.lives());
        child.wait().unwrap();
    }
}
