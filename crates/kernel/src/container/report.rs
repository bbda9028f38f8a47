//! What the child says on its way, over a socket that keeps messages apart and closes when the program runs.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Longest message, bytes.
const MAX_TEXT: usize = 4096;

/// A word of the child.
#[derive(Debug)]
pub enum Report {
    /// The terminal's other end.
    Console(OwnedFd),
    /// Something that could not be had and does not matter enough to fail.
    Note(String),
    /// Everything is set up; it waits for the word to start.
    Ready,
    /// It failed, and has ended or is about to.
    Failed(String),
    /// It has closed the socket: the program runs, or the child has died without a word.
    Closed,
}

pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// The child's end.
pub(super) struct Reporter<'a>(pub &'a OwnedFd);

impl Reporter<'_> {
    /// Sends a word; that the caller is gone is found out elsewhere.
    pub(super) fn say(&self, report: &Report) {
        let (kind, text): (u8, &str) = match report {
            Report::Console(_) => (b'C', ""),
            Report::Note(text) => (b'N', text),
            Report::Ready => (b'R', ""),
            Report::Failed(text) => (b'F', text),
            Report::Closed => return,
        };
        let mut message = vec![kind];
        message.extend(text.bytes().take(MAX_TEXT - 1));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = if let Report::Console(fd) = report { vec![fd.as_fd()] } else { Vec::new() };
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let _ = sendmsg(self.0, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL);
    }
}

/// The next word, without waiting; none if there is none yet.
#[must_use]
pub fn receive(socket: &OwnedFd) -> Option<Report> {
    let mut text = [0; MAX_TEXT];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let length = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, flags) {
            Ok(message) => break message.bytes,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return None,
            Err(_) => return Some(Report::Closed),
        }
    };
    let passed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let rest = || String::from_utf8_lossy(text.get(1..length).unwrap_or_default()).into_owned();
    Some(match (text.first().filter(|_| length > 0), passed) {
        (Some(b'C'), Some(fd)) => Report::Console(fd),
        (Some(b'N'), _) => Report::Note(rest()),
        (Some(b'R'), _) => Report::Ready,
        (Some(b'F'), _) => Report::Failed(rest()),
        _ => Report::Closed,
    })
}
