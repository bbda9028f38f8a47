//! One process in the keeper's care: a container's first one, or a further one.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::termios::{Winsize, tcsetwinsize};
use trine_kernel::container::Child;
use trine_kernel::proc::{ProcessId, SIGKILL, signal_group, signal_pidfd};

use super::log::{Log, Source};
use super::message::{Exit, Phase, Size};
use super::process::{Ends, now};

/// After a process has ended, its streams may stay open in others' hands for so long; then they are cut.
pub(super) const DRAIN: Duration = Duration::from_millis(1000);

/// Who waits for a step of a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    pub connection: u64,
    pub number: u64,
    pub deadline: Instant,
}

/// What a task is.
#[derive(Debug)]
pub(super) enum Role {
    /// A container's first process.
    Container { folder: PathBuf, oom_files: Vec<PathBuf>, oom_before: u64, stdin_once: bool },
    /// A further process, whose stream is this connection.
    Exec { connection: u64 },
}

#[derive(Debug)]
pub(super) struct Task {
    pub container: String,
    pub role: Role,
    pub child: Child,
    pub process: Option<ProcessId>,
    pub phase: Phase,
    pub waiter: Option<Waiter>,
    pub reports_open: bool,
    pub terminal: Option<OwnedFd>,
    pub ends: Ends,
    pub input: VecDeque<u8>,
    pub input_ends: bool,
    pub log: Option<Log>,
    pub error: Option<String>,
    pub started_at: i64,
    pub exit: Option<Exit>,
    pub drain_until: Option<Instant>,
    pub told: bool,
    /// Nobody wants to know of it any more: it goes when it has ended.
    pub forgotten: bool,
}

impl Task {
    pub(super) fn new(container: String, role: Role, child: Child, ends: Ends, waiter: Waiter) -> Self {
        let process = ProcessId::of(child.pid).ok();
        Self {
            container,
            role,
            child,
            process,
            phase: Phase::SettingUp,
            waiter: Some(waiter),
            reports_open: true,
            terminal: None,
            ends,
            input: VecDeque::new(),
            input_ends: false,
            log: None,
            error: None,
            started_at: 0,
            exit: None,
            drain_until: None,
            told: false,
            forgotten: false,
        }
    }

    pub(super) fn is_container(&self) -> bool {
        matches!(self.role, Role::Container { .. })
    }

    /// Lets the program run.
    pub(super) fn start(&mut self) {
        self.phase = Phase::Starting;
        // If the child has gone meanwhile, its end is reported as such.
        let _ = rustix::io::write(&self.child.start, &[1]);
    }

    pub(super) fn running(&mut self) {
        self.phase = Phase::Running;
        self.started_at = now();
    }

    pub(super) fn signal(&self, number: i32) -> std::io::Result<()> {
        if self.exit.is_some() { Ok(()) } else { signal_pidfd(&self.child.pidfd, number) }
    }

    /// Kills the process, and of a further one all that it started in its session's first group.
    pub(super) fn kill(&self) {
        if self.exit.is_none() {
            if !self.is_container() {
                let _ = signal_group(self.child.pid, SIGKILL);
            }
            let _ = signal_pidfd(&self.child.pidfd, SIGKILL);
        }
    }

    /// It has been reaped.
    pub(super) fn ended(&mut self, code: i32) {
        let ran = self.phase == Phase::Running || (self.phase == Phase::Starting && self.error.is_none());
        let oom = match &self.role {
            Role::Container { oom_files, oom_before, .. } => ran && oom_count(oom_files) > *oom_before,
            Role::Exec { .. } => false,
        };
        let error = self.error.clone().or_else(|| (!ran).then(|| "it ended before its start".to_owned()));
        let code = if error.is_some() { START_ERROR } else { code };
        let started_at = if ran && self.started_at == 0 { now() } else { self.started_at };
        self.exit = Some(Exit { code, oom, error, started_at, finished_at: now() });
        self.phase = Phase::Exited;
        self.drain_until = Some(Instant::now() + DRAIN);
        self.ends.stdin = None;
        self.input.clear();
    }

    /// Its streams are at their end, or it is too late for more.
    pub(super) fn drained(&self, now: Instant) -> bool {
        self.exit.is_some()
            && ((self.ends.stdout.is_none() && self.ends.stderr.is_none())
                || self.drain_until.is_some_and(|until| now >= until))
    }

    /// Writes what the process takes of its input now.
    pub(super) fn feed(&mut self) {
        let Some(fd) = &self.ends.stdin else {
            self.input.clear();
            return;
        };
        while !self.input.is_empty() {
            match rustix::io::write(fd, self.input.as_slices().0) {
                Ok(n) => {
                    self.input.drain(..n);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.input.clear();
                    self.ends.stdin = None;
                    return;
                }
            }
        }
        if self.input_ends {
            if self.terminal.is_some() {
                // A terminal has no end of input but the character for it.
                let _ = rustix::io::write(fd, &[4]);
            }
            self.ends.stdin = None;
        }
    }

    pub(super) fn resize(&self, size: Size) {
        if let Some(terminal) = &self.terminal {
            let _ = tcsetwinsize(
                terminal,
                Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 },
            );
        }
    }

    /// Reads what is there of a stream; at its end, or on an error, the stream is closed and nothing comes.
    pub(super) fn read(&mut self, source: Source, buffer: &mut [u8]) -> usize {
        let end = match source {
            Source::Stdout => &mut self.ends.stdout,
            Source::Stderr => &mut self.ends.stderr,
        };
        let Some(fd) = end else { return 0 };
        match rustix::io::read(fd, &mut *buffer) {
            Ok(n) if n > 0 => n,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            // A terminal whose last user has gone says EIO.
            _ => {
                *end = None;
                if let Some(log) = &mut self.log {
                    log.end(source, &stamp());
                }
                0
            }
        }
    }
}

/// What a shell says of a program that could not be started, and the kubelet expects of such a container.
const START_ERROR: i32 = 128;

/// The time for a log line.
pub(super) fn stamp() -> String {
    format!("{:.9}", jiff::Timestamp::now())
}

pub(super) fn oom_count(files: &[PathBuf]) -> u64 {
    let count = |text: String| {
        text.lines()
            .find_map(|line| line.strip_prefix("oom_kill ").and_then(|n| n.trim().parse::<u64>().ok()))
    };
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok().and_then(count)).sum::<u64>()
}
