//! Runs a program with input, output and a deadline: a loop over three pipes and a pidfd, without threads. The
//! program gets its own process group, which is killed as a whole when the deadline passes.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// How long after the program's end its pipes may still be held open by a child that it left behind.
const PIPE_GRACE: Duration = Duration::from_millis(500);
/// Output beyond this is dropped (bytes per stream).
const MAX_OUTPUT: usize = 8 << 20;
/// A file that is being installed cannot be executed; it is tried again this often,
const BUSY_TRIES: u32 = 10;
/// with this pause.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// How a program ended, and what it said.
#[derive(Debug)]
pub struct Output {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// `exit status 3` or `signal 9`, for messages.
    #[must_use]
    pub fn how(&self) -> String {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "an unknown status".to_owned(),
        }
    }
}

/// Why a program gave no [`Output`].
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// It could not be started or waited for.
    #[error("cannot {call} {program}")]
    Io {
        /// The program.
        program: String,
        /// What was tried.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It did not end in time and was killed with its process group.
    #[error("{program} did not end within {} s and was killed; it wrote: {stderr:?}", after.as_secs_f32())]
    Deadline {
        /// The program.
        program: String,
        /// The deadline.
        after: Duration,
        /// The end of what it wrote to standard error.
        stderr: String,
    },
}

/// Runs `command` with `input` on its standard input and waits for its end, at most `deadline`.
///
/// # Errors
/// [`ExecError`].
pub fn run(command: &mut Command, input: &[u8], deadline: Duration) -> Result<Output, ExecError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let io = |call| {
        let program = program.clone();
        move |source| ExecError::Io { program, call, source }
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = spawn(command).map_err(io("execute"))?;
    let outcome = Conversation::start(&mut child, input)
        .and_then(|mut talk| talk.until(Instant::now() + deadline).map(|ended| (talk, ended)))
        .map_err(io("talk to"));
    let pid = Pid::from_child(&child);
    match outcome {
        Ok((talk, true)) => {
            let status = child.wait().map_err(io("wait for"))?;
            Ok(Output { status, stdout: talk.stdout.data, stderr: talk.stderr.data })
        }
        other => {
            // The leader is not reaped yet, so its group's id cannot be another's.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = child.wait();
            let (talk, _) = other?;
            let tail = talk.stderr.data.len().saturating_sub(1024);
            let stderr = String::from_utf8_lossy(&talk.stderr.data[tail..]).trim().to_owned();
            Err(ExecError::Deadline { program, after: deadline, stderr })
        }
    }
}

fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut tries = 0;
    loop {
        match command.spawn() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                tries += 1;
                std::thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

struct Stream {
    pipe: Option<std::fs::File>,
    data: Vec<u8>,
}

impl Stream {
    fn new(fd: Option<OwnedFd>) -> io::Result<Self> {
        if let Some(fd) = &fd {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        Ok(Self { pipe: fd.map(std::fs::File::from), data: Vec::new() })
    }

    /// Reads what is there; closes at the end.
    fn drain(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut chunk = [0; 16384];
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => break self.pipe = None,
                Ok(n) => {
                    let room = MAX_OUTPUT.saturating_sub(self.data.len());
                    self.data.extend_from_slice(&chunk[..n.min(room)]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => break self.pipe = None,
            }
        }
    }
}

struct Conversation<'a> {
    pidfd: OwnedFd,
    input: &'a [u8],
    stdin: Option<ChildStdin>,
    stdout: Stream,
    stderr: Stream,
}

impl<'a> Conversation<'a> {
    fn start(child: &mut Child, input: &'a [u8]) -> io::Result<Self> {
        let stdin = child.stdin.take();
        if let Some(pipe) = &stdin {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Self {
            pidfd: pidfd_open(Pid::from_child(child), PidfdFlags::empty())?,
            input,
            stdin,
            stdout: Stream::new(child.stdout.take().map(OwnedFd::from))?,
            stderr: Stream::new(child.stderr.take().map(OwnedFd::from))?,
        })
    }

    /// Talks until the program has ended and its pipes are closed (or the grace is over): true; or until `end`:
    /// false.
    fn until(&mut self, end: Instant) -> io::Result<bool> {
        let mut over: Option<Instant> = None;
        loop {
            if over.is_some() && self.stdout.pipe.is_none() && self.stderr.pipe.is_none() {
                return Ok(true);
            }
            let limit = over.map_or(end, |at| at + PIPE_GRACE);
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(over.is_some());
            }
            let ended = self.wait(left, over.is_none())?;
            self.write();
            self.stdout.drain();
            self.stderr.drain();
            if ended && over.is_none() {
                over = Some(Instant::now());
            }
        }
    }

    /// Waits for anything to happen; true if the program has ended.
    fn wait(&self, left: Duration, running: bool) -> io::Result<bool> {
        let mut fds = Vec::with_capacity(4);
        if running {
            fds.push(PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN));
        }
        for pipe in [&self.stdout.pipe, &self.stderr.pipe].into_iter().flatten() {
            fds.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN));
        }
        if let Some(stdin) = &self.stdin {
            fds.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT));
        }
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(running && fds[0].revents().contains(PollFlags::IN))
    }

    fn write(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        while !self.input.is_empty() {
            match stdin.write(self.input) {
                Ok(n) => self.input = &self.input[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // It does not want its input: its exit status says whether that is an error.
                Err(_) => break,
            }
        }
        self.stdin = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn input_and_output_larger_than_a_pipe_pass_through() {
        let input = vec![b'x'; 1 << 20];
        let output = run(&mut sh("cat; echo done >&2; exit 3"), &input, Duration::from_secs(20)).unwrap();
        assert_eq!(output.stdout, input);
        assert_eq!(output.stderr, b"done\n");
        assert_eq!(output.how(), "exit status 3");
    }

    #[test]
    fn a_program_that_ignores_its_input_is_no_error() {
        let output = run(&mut sh("exit 0"), &vec![b'x'; 1 << 20], Duration::from_secs(20)).unwrap();
        assert!(output.status.success());
    }

    #[test]
    fn a_program_past_its_deadline_is_killed_with_its_children() {
        let start = Instant::now();
        let error =
            run(&mut sh("echo stuck >&2; sleep 60 & sleep 60"), b"", Duration::from_millis(300)).unwrap_err();
        assert!(matches!(&error, ExecError::Deadline { stderr, .. } if stderr == "stuck"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_child_left_behind_with_the_pipes_does_not_hold_us_up() {
        let start = Instant::now();
        let output = run(&mut sh("sleep 5 & echo said"), b"", Duration::from_secs(20)).unwrap();
        assert_eq!(output.stdout, b"said\n");
        assert!(start.elapsed() < Duration::from_secs(4));
    }
}
