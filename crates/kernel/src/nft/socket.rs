//! The netlink socket to nftables.

use std::io;
use std::mem::ManuallyDrop;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt;

use super::attr::{self, Head, Message, Writer};
use super::batch::Batch;
use super::error::NftError;
use crate::netns::Netns;

const NETLINK_NETFILTER: isize = 12;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
/// Set on an answer that carries attributes of its own after the error number.
const NLM_F_ACK_TLVS: u16 = 0x200;

/// How long the kernel may take to answer a question (it answers within the call, as a rule).
const ANSWER: Duration = Duration::from_secs(10);
/// Room for answers: a refused transaction may hold one for each operation.
const RECEIVE_BYTES: usize = 4 << 20;
/// Listings that a change interrupted are asked for again, so often.
const LIST_TRIES: usize = 10;

/// A socket to nftables, in the network namespace that its opener was in. One user at a time.
pub struct Nft {
    socket: ManuallyDrop<Socket>,
    send_bytes: usize,
}

impl std::fmt::Debug for Nft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nft").finish_non_exhaustive()
    }
}

impl Drop for Nft {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: it is taken once, here, and nothing of `self` is used afterwards.
        let socket = unsafe { ManuallyDrop::take(&mut self.socket) };
        // The kernel has whoever ends it wait for a grace period.
        crate::afterwards::end(socket);
    }
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> NftError {
    move |source| NftError::Socket { call, source }
}

impl Nft {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NftError::Socket`].
    pub fn open() -> Result<Self, NftError> {
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(failed("socket"))?;
        socket.bind_auto().map_err(failed("bind"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(failed("connect"))?;
        // Both are for better errors only; a kernel without them is fine.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER))
            .map_err(|e| failed("setsockopt")(e.into()))?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BYTES).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BYTES);
        }
        Ok(Self { socket: ManuallyDrop::new(socket), send_bytes: 0 })
    }

    /// Opens a socket in another network namespace; the caller's never changes.
    ///
    /// # Errors
    /// [`NftError::Netns`], [`NftError::Socket`].
    pub fn open_in(netns: &Netns) -> Result<Self, NftError> {
        netns.run(Self::open)?
    }

    /// Applies a transaction whole, or not at all. An empty one is success.
    ///
    /// # Errors
    /// [`NftError::Refused`] names the first operation that the kernel did not take.
    pub fn commit(&mut self, mut batch: Batch) -> Result<(), NftError> {
        if batch.is_empty() {
            return Ok(());
        }
        let (bytes, last) = batch.finish();
        self.make_room(bytes.len());
        self.send(bytes)?;
        // The kernel works within the send: what it has to say is there already.
        let mut refused: Option<Answer> = None;
        let mut others = 0;
        let mut done = false;
        while let Some(datagram) = self.receive_now()? {
            for message in attr::messages(&datagram).filter(|m| m.kind == NLMSG_ERROR) {
                let Some(answer) = Answer::read(&message) else { continue };
                if answer.errno == 0 {
                    done |= answer.sequence == last;
                } else if refused.is_none() {
                    refused = Some(answer);
                } else {
                    others += 1;
                }
            }
        }
        match refused {
            Some(answer) => {
                let operation = batch.operation(answer.sequence);
                Err(answer.refused(operation, others))
            }
            None if done => Ok(()),
            None => Err(NftError::NoAnswer { operation: batch.operation(last) }),
        }
    }

    /// Makes the send buffer hold `bytes` in one message; needs `CAP_NET_ADMIN` above the system's limit.
    fn make_room(&mut self, bytes: usize) {
        let wanted = bytes + (64 << 10);
        if wanted <= self.send_bytes {
            return;
        }
        if sockopt::set_socket_send_buffer_size_force(&*self.socket, wanted).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(&*self.socket, wanted);
        }
        self.send_bytes = wanted;
    }

    fn send(&self, bytes: &[u8]) -> Result<(), NftError> {
        match self.socket.send(bytes, 0) {
            Ok(sent) if sent == bytes.len() => Ok(()),
            Ok(_) => Err(failed("sendmsg")(io::ErrorKind::WriteZero.into())),
            Err(source) => Err(failed("sendmsg")(source)),
        }
    }

    /// One datagram that is there already, if any.
    fn receive_now(&self) -> Result<Option<Vec<u8>>, NftError> {
        match self.receive(libc::MSG_DONTWAIT) {
            Ok(datagram) => Ok(Some(datagram)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(source) => Err(failed("recvmsg")(source)),
        }
    }

    fn receive(&self, flags: libc::c_int) -> io::Result<Vec<u8>> {
        let mut buffer: Vec<u8> = Vec::with_capacity(64 << 10);
        self.socket.recv(&mut buffer, flags)?;
        Ok(buffer)
    }

    /// Asks for a listing and gives each answer's attributes to `each`; asks again if a change came between.
    pub(super) fn dump<T>(
        &mut self,
        kind: u16,
        family: super::Family,
        what: &str,
        body: impl Fn(&mut Writer),
        each: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NftError> {
        for _ in 0..LIST_TRIES {
            let mut out = Writer::default();
            let flags = NLM_F_REQUEST | NLM_F_DUMP;
            out.message(Head { kind, flags, sequence: 1, family: family as u8, resource: 0 }, &body);
            self.send(out.bytes())?;
            if let Some(found) = self.answers(what, &each)? {
                return Ok(found);
            }
        }
        Err(NftError::NoAnswer { operation: format!("list {what}: it changes without pause") })
    }

    /// Asks for one thing to be done outside of a transaction.
    pub(super) fn order(
        &mut self,
        kind: u16,
        family: super::Family,
        operation: &str,
        body: impl Fn(&mut Writer),
    ) -> Result<(), NftError> {
        let mut out = Writer::default();
        let flags = NLM_F_REQUEST | NLM_F_ACK;
        out.message(Head { kind, flags, sequence: 1, family: family as u8, resource: 0 }, &body);
        self.send(out.bytes())?;
        let datagram = self.receive(0).map_err(failed("recvmsg"))?;
        let answer = attr::messages(&datagram).find(|m| m.kind == NLMSG_ERROR).and_then(|m| Answer::read(&m));
        outcome(operation.to_owned(), answer)
    }

    /// The answers up to the end of a listing; nothing if it was interrupted.
    fn answers<T>(&self, what: &str, each: impl Fn(&[u8]) -> Option<T>) -> Result<Option<Vec<T>>, NftError> {
        let mut found = Vec::new();
        let mut interrupted = false;
        loop {
            let datagram = self.receive(0).map_err(failed("recvmsg"))?;
            for message in attr::messages(&datagram) {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_DONE => return Ok((!interrupted).then_some(found)),
                    NLMSG_ERROR => {
                        let answer = Answer::read(&message);
                        return outcome(format!("list {what}"), answer).map(|()| Some(found));
                    }
                    _ => found.extend(message.payload.get(attr::GENERIC..).and_then(&each)),
                }
            }
        }
    }
}

/// What came of an operation that is answered once.
fn outcome(operation: String, answer: Option<Answer>) -> Result<(), NftError> {
    match answer {
        None => Err(NftError::NoAnswer { operation }),
        Some(answer) if answer.errno == 0 => Ok(()),
        Some(answer) => Err(answer.refused(operation, 0)),
    }
}

/// What an `NLMSG_ERROR` message says.
struct Answer {
    sequence: u32,
    /// Zero is success.
    errno: i32,
    reason: Option<String>,
}

impl Answer {
    fn read(message: &Message<'_>) -> Option<Self> {
        let errno = -i32::from_ne_bytes(message.payload.get(..4)?.try_into().ok()?);
        // The failed message's header follows, then attributes if the flag says so (the rest is cut off by cap_ack).
        let tail = message.payload.get(4 + attr::HEADER..).unwrap_or_default();
        let reason =
            (message.flags & NLM_F_ACK_TLVS != 0).then(|| attr::find(tail, 1).map(attr::string)).flatten();
        Some(Self { sequence: message.sequence, errno, reason })
    }

    fn refused(self, operation: String, others: usize) -> NftError {
        let source = io::Error::from_raw_os_error(self.errno);
        NftError::Refused { operation, reason: self.reason, others, source }
    }
}
