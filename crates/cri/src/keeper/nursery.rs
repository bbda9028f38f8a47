//! Where keepers come from: one process that is loaded and linked, and then forks a keeper whenever the daemon asks for one. A
//! program of this size takes milliseconds and megabytes of its own to be executed; a fork takes neither. It ends with the daemon,
//! the keepers do not.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use trine_kernel::proc::{NewNamespaces, children_are_reaped, exit_now, fork};

/// The word that makes a keeper process the nursery.
pub(super) const WORD: &str = "--nursery";
/// Longest order, bytes; below what a socket takes in one piece.
const MAX_ORDER: usize = 128 * 1024;
/// The keepers' log, which all of them append to, begins anew at this size, bytes.
const MAX_LOG: i64 = 1 << 20;
/// The descriptors of an order.
const STREAMS: usize = 2;

/// What a keeper reads and writes: the lock that it holds, and where it says that it is ready.
pub(super) type Streams = [OwnedFd; STREAMS];

/// The nursery, from its first instruction to its end. Standard input is the daemon's socket, standard error the keepers' log;
/// `keep` is what a keeper does with its sandbox's folder and settings.
pub(super) fn run(keep: impl Fn(&Path, &[u8]) -> ExitCode) -> ExitCode {
    let _ = rustix::thread::set_name(c"trine-nursery");
    match serve(keep) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("keepers' nursery: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(keep: impl Fn(&Path, &[u8]) -> ExitCode) -> io::Result<()> {
    // A terminal's signals are for the daemon, whose end is this one's.
    let _ = rustix::process::setsid();
    let daemon = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null: OwnedFd = File::options().read(true).write(true).open("/dev/null")?.into();
    place([&null, &null])?;
    children_are_reaped(true);
    while let Some((folder, settings, streams)) = order(&daemon)? {
        trim(rustix::stdio::stderr());
        // A fork keeps these, the log, and no other.
        let forked = place(streams.each_ref()).and_then(|()| {
            fork(NewNamespaces::default(), None, &[], || {
                children_are_reaped(false);
                exit_now(i32::from(keep(&folder, &settings) != ExitCode::SUCCESS))
            })
        });
        place([&null, &null])?;
        match forked {
            Ok(child) => send(&daemon, &0_i32.to_le_bytes(), &[child.pidfd.as_fd()])?,
            Err(error) => {
                let number = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                send(&daemon, &(-number).to_le_bytes(), &[])?;
            }
        }
    }
    Ok(())
}

fn place([stdin, stdout]: [&OwnedFd; STREAMS]) -> io::Result<()> {
    rustix::stdio::dup2_stdin(stdin)?;
    Ok(rustix::stdio::dup2_stdout(stdout)?)
}

/// That it cannot be done is no reason to make no keeper.
fn trim(log: BorrowedFd<'_>) {
    if rustix::fs::fstat(log).is_ok_and(|stat| stat.st_size > MAX_LOG) {
        let _ = rustix::fs::ftruncate(log, 0);
    }
}

/// The next keeper that is wanted: its folder, its settings, its streams; none if the daemon is gone.
fn order(daemon: &OwnedFd) -> io::Result<Option<(PathBuf, Vec<u8>, Streams)>> {
    let mut text = vec![0; MAX_ORDER];
    let (length, fds) = receive(daemon, &mut text)?;
    if length == 0 {
        return Ok(None);
    }
    text.truncate(length);
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let streams = Streams::try_from(fds).map_err(|_| broken())?;
    let end = text.iter().position(|byte| *byte == 0).ok_or_else(broken)?;
    let settings = text.split_off(end + 1);
    text.truncate(end);
    Ok(Some((PathBuf::from(std::ffi::OsString::from_vec(text)), settings, streams)))
}

fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            result => break result?.bytes,
        }
    };
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds.collect::<Vec<_>>()),
        _ => None,
    });
    Ok((length, fds.flatten().collect()))
}

/// The daemon's end of a nursery, which is started when it is first needed, and again if it has died.
#[derive(Debug)]
pub(crate) struct Nursery {
    program: PathBuf,
    /// Told to the process, so that whoever looks for the processes of this state finds it.
    state_dir: PathBuf,
    life: Mutex<Life>,
}

#[derive(Debug)]
enum Life {
    NotYet,
    Running(Child, OwnedFd),
    Over,
}

impl Nursery {
    /// One that runs `program`; its log and its keepers' is `keepers.log` in `state_dir`.
    pub(crate) fn new(program: PathBuf, state_dir: PathBuf) -> Self {
        Self { program, state_dir, life: Mutex::new(Life::NotYet) }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it, so that the first Pod need not wait for that. It blocks.
    pub(crate) fn warm_up(&self) {
        let mut life = self.life();
        if matches!(*life, Life::NotYet) {
            match self.start() {
                Ok((child, socket)) => *life = Life::Running(child, socket),
                // Whoever needs it is told.
                Err(error) => tracing::warn!(%error, "the keepers' nursery does not start"),
            }
        }
    }

    /// Ends it for good; its keepers live on. It blocks until it has gone.
    pub(crate) fn close(&self) {
        end(std::mem::replace(&mut *self.life(), Life::Over));
    }

    /// Forks a keeper for the sandbox in `folder`. Its pidfd. It blocks, for as long as a fork takes.
    pub(super) fn fork(&self, folder: &Path, settings: &[u8], streams: &Streams) -> io::Result<OwnedFd> {
        let order = [folder.as_os_str().as_bytes(), settings].join(&0);
        if order.len() > MAX_ORDER {
            return Err(io::Error::from(io::ErrorKind::ArgumentListTooLong));
        }
        let mut life = self.life();
        match &*life {
            Life::Over => return Err(io::Error::other("the runtime ends")),
            Life::Running(_, socket) => match ask(socket, &order, streams) {
                Err(error) if is_gone(&error) => {}
                answered => return answered,
            },
            Life::NotYet => {}
        }
        end(std::mem::replace(&mut *life, Life::NotYet));
        let (child, socket) = self.start()?;
        let answered = ask(&socket, &order, streams);
        *life = Life::Running(child, socket);
        answered
    }

    fn start(&self) -> io::Result<(Child, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let log = File::options().create(true).append(true).open(self.state_dir.join("keepers.log"))?;
        let mut command = Command::new(&self.program);
        command.args(["keeper", WORD]).arg(&self.state_dir).env_clear().current_dir("/");
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::from(log));
        Ok((command.spawn()?, ours))
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        self.close();
    }
}

/// Lets go of the socket, which ends the process.
fn end(life: Life) {
    if let Life::Running(mut child, socket) = life {
        drop(socket);
        let _ = child.wait();
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    [BrokenPipe, ConnectionReset, UnexpectedEof].contains(&error.kind())
}

fn ask(socket: &OwnedFd, order: &[u8], streams: &Streams) -> io::Result<OwnedFd> {
    send(socket, order, &streams.each_ref().map(AsFd::as_fd))?;
    let mut number = [0; 4];
    let (length, fds) = receive(socket, &mut number)?;
    let number = i32::from_le_bytes(number);
    match (length, number, fds.into_iter().next()) {
        (_, _, Some(pidfd)) => Ok(pidfd),
        (4, error, None) => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_begins_anew_when_it_is_long() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (length, stays) in [(10, 10), (u64::try_from(MAX_LOG).unwrap() + 1, 0)] {
            file.as_file().set_len(length).unwrap();
            trim(file.as_fd());
            assert_eq!(file.as_file().metadata().unwrap().len(), stays);
        }
    }

    #[test]
    fn an_order_arrives_with_its_streams_and_the_end_of_the_daemon_too() {
        let (daemon, nursery) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "x").unwrap();
        let streams: Streams = std::array::from_fn(|_| File::open(file.path()).unwrap().into());
        let fds = streams.each_ref().map(AsFd::as_fd);
        send(&daemon, b"/a/folder\0{}", &fds).unwrap();
        send(&daemon, b"/no/streams\0", &[]).unwrap();
        drop(daemon);
        let (folder, settings, [lock, ..]) = order(&nursery).unwrap().unwrap();
        assert_eq!((folder.as_path(), settings.as_slice()), (Path::new("/a/folder"), &b"{}"[..]));
        assert_eq!(std::io::read_to_string(File::from(lock)).unwrap(), "x");
        assert_eq!(order(&nursery).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(order(&nursery).unwrap().is_none());
    }
}
