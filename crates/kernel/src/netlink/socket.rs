//! The socket: requests out, answers in, matched by sequence number.

use std::io;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, ParseableParametrized,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::NetlinkError;
use crate::netns::Netns;

/// The kernel answers within the call; a silence this long is an error.
const SILENCE: Duration = Duration::from_secs(10);
/// Requests per datagram: their answers must fit the receive buffer.
const BATCH: usize = 64;
/// A dump that was changed while it ran is repeated this often, then taken as it is.
const DUMP_TRIES: u32 = 5;
/// Size of a netlink header, in bytes.
pub(super) const HEADER: usize = 16;
/// `NLMSGERR_ATTR_MSG` of `linux/netlink.h`: the kernel's own words.
const ATTR_MSG: u16 = 1;
/// `NLM_F_ACK_TLVS` of `linux/netlink.h`: attributes follow the error.
const ACK_TLVS: u16 = 0x200;

/// One change, with the words for its error.
#[derive(Debug, Clone)]
pub struct Request {
    pub(super) call: &'static str,
    pub(super) object: String,
    pub(super) flags: u16,
    pub(super) message: RouteNetlinkMessage,
    pub(super) absent_is_success: bool,
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.call, self.object)
    }
}

impl Request {
    pub(super) fn new(call: &'static str, object: String, flags: u16, message: RouteNetlinkMessage) -> Self {
        Self { call, object, flags, message, absent_is_success: false }
    }

    /// The same request, for which "not there" is success.
    #[must_use]
    pub fn or_absent(mut self) -> Self {
        self.absent_is_success = true;
        self
    }

    fn answer(&self, problem: impl ToString) -> NetlinkError {
        NetlinkError::Answer { call: self.call, object: self.object.clone(), problem: problem.to_string() }
    }
}

/// A `NETLINK_ROUTE` socket. It stays in the namespace that it was opened in, whoever uses it.
pub struct Route {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl Route {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Self, NetlinkError> {
        let error = |source| NetlinkError::Socket { call: "open a socket", source };
        let socket = Socket::new(NETLINK_ROUTE).map_err(error)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(SILENCE)).map_err(|e| error(e.into()))?;
        socket.set_ext_ack(true).map_err(error)?;
        socket.set_cap_ack(true).map_err(error)?;
        // Dumps filtered by the kernel: older kernels refuse, and then we filter alone.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, sequence: 0, buffer: vec![0; 1 << 16] })
    }

    /// Opens a socket in `netns`, by a one-shot thread.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn open_in(netns: &Netns) -> Result<Self, NetlinkError> {
        netns.run(Self::open)?
    }

    /// Performs `requests` in order, many per system call. The kernel goes on after a failed one; the first
    /// error is returned, so put into one call only what does not build on each other's success.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn run(&mut self, requests: &[Request]) -> Result<(), NetlinkError> {
        let mut first = None;
        for batch in requests.chunks(BATCH) {
            for (request, result) in batch.iter().zip(self.exchange(batch, NLM_F_ACK)?) {
                match result {
                    Err(e) if request.absent_is_success && e.not_found() => {}
                    Err(e) => first = first.or(Some(e)),
                    Ok(_) => {}
                }
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Asks for one object.
    pub(super) fn get(&mut self, request: &Request) -> Result<RouteNetlinkMessage, NetlinkError> {
        let mut results = self.exchange(std::slice::from_ref(request), NLM_F_ACK)?;
        let answers = results.pop().unwrap_or_else(|| Ok(Vec::new()))?;
        answers.into_iter().next().ok_or_else(|| request.answer("it is empty"))
    }

    /// Asks for all objects.
    pub(super) fn dump(&mut self, request: &Request) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        for last in (0..DUMP_TRIES).map(|n| n + 1 == DUMP_TRIES) {
            let (result, interrupted) = self.dump_once(request)?;
            if last || !interrupted {
                return result;
            }
        }
        Ok(Vec::new())
    }

    fn dump_once(
        &mut self,
        request: &Request,
    ) -> Result<(Result<Vec<RouteNetlinkMessage>, NetlinkError>, bool), NetlinkError> {
        let first = self.send(std::slice::from_ref(request), NLM_F_DUMP)?;
        let mut collected = Collected::new(std::slice::from_ref(request), first);
        while !collected.complete() {
            self.receive(&mut collected)?;
        }
        let result = collected.results.pop().flatten().unwrap_or_else(|| Ok(Vec::new()));
        Ok((result, collected.interrupted))
    }

    fn exchange(
        &mut self,
        requests: &[Request],
        flags: u16,
    ) -> Result<Vec<Result<Vec<RouteNetlinkMessage>, NetlinkError>>, NetlinkError> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.send(requests, flags)?;
        let mut collected = Collected::new(requests, first);
        while !collected.complete() {
            self.receive(&mut collected)?;
        }
        Ok(collected.results.into_iter().flatten().collect())
    }

    fn send(&mut self, requests: &[Request], flags: u16) -> Result<u32, NetlinkError> {
        let first = self.sequence.wrapping_add(1);
        let mut datagram = Vec::with_capacity(256 * requests.len());
        for request in requests {
            self.sequence = self.sequence.wrapping_add(1);
            let mut header = NetlinkHeader::default();
            header.flags = NLM_F_REQUEST | flags | request.flags;
            header.sequence_number = self.sequence;
            let mut message =
                NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request.message.clone()));
            message.finalize();
            let start = datagram.len();
            datagram.resize((start + message.buffer_len()).next_multiple_of(4), 0);
            message.serialize(&mut datagram[start..start + message.buffer_len()]);
        }
        send(&self.socket, &datagram, SendFlags::empty())
            .map_err(|e| NetlinkError::Socket { call: "send", source: e.into() })?;
        Ok(first)
    }

    fn receive(&mut self, collected: &mut Collected<'_>) -> Result<(), NetlinkError> {
        let error = |source| NetlinkError::Socket { call: "receive", source };
        let (_, length) = recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC)
            .map_err(|e| error(io::Error::from(e)))?;
        if length > self.buffer.len() {
            return Err(error(io::Error::other("a truncated answer")));
        }
        let mut rest = &self.buffer[..length];
        while rest.len() >= HEADER {
            let Ok(packet) = NetlinkBuffer::new_checked(rest) else { break };
            let size = packet.length() as usize;
            collected.take(&packet);
            rest = &rest[size.next_multiple_of(4).clamp(HEADER, rest.len())..];
        }
        Ok(())
    }
}

type Answers = Result<Vec<RouteNetlinkMessage>, NetlinkError>;

/// The answers so far; those of an earlier, abandoned call are left out by their sequence number.
struct Collected<'a> {
    requests: &'a [Request],
    first: u32,
    messages: Vec<Vec<RouteNetlinkMessage>>,
    results: Vec<Option<Answers>>,
    interrupted: bool,
}

impl<'a> Collected<'a> {
    fn new(requests: &'a [Request], first: u32) -> Self {
        let messages = requests.iter().map(|_| Vec::new()).collect();
        let results = requests.iter().map(|_| None).collect();
        Self { requests, first, messages, results, interrupted: false }
    }

    fn complete(&self) -> bool {
        self.results.iter().all(Option::is_some)
    }

    fn take(&mut self, packet: &NetlinkBuffer<&[u8]>) {
        let index = packet.sequence_number().wrapping_sub(self.first) as usize;
        let Some(request) = self.requests.get(index) else { return };
        self.interrupted |= packet.flags() & NLM_F_DUMP_INTR != 0;
        match packet.message_type() {
            NLMSG_ERROR => self.finish(index, refusal(request, packet)),
            NLMSG_DONE => self.finish(index, None),
            kind => match RouteNetlinkMessage::parse_with_param(packet.payload(), kind) {
                Ok(message) => self.messages[index].push(message),
                // One odd object must not hide the others.
                Err(error) => tracing::debug!(call = request.call, %error, "netlink answer left out"),
            },
        }
    }

    fn finish(&mut self, index: usize, refusal: Option<NetlinkError>) {
        let messages = std::mem::take(&mut self.messages[index]);
        self.results[index] = Some(refusal.map_or(Ok(messages), Err));
    }
}

fn refusal(request: &Request, packet: &NetlinkBuffer<&[u8]>) -> Option<NetlinkError> {
    let payload = packet.payload();
    let code = payload.get(..4).and_then(|b| b.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if code == 0 {
        return None;
    }
    let hint = if packet.flags() & ACK_TLVS == 0 { None } else { payload.get(4 + HEADER..).and_then(words) };
    Some(NetlinkError::Refused {
        call: request.call,
        object: request.object.clone(),
        hint: hint.unwrap_or_default(),
        source: io::Error::from_raw_os_error(-code),
    })
}

/// The kernel's own words among the attributes of an error.
fn words(mut attributes: &[u8]) -> Option<String> {
    while attributes.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([attributes[0], attributes[1]]));
        let kind = u16::from_ne_bytes([attributes[2], attributes[3]]);
        let value = attributes.get(4..length)?;
        if kind == ATTR_MSG {
            let text = value.split(|b| *b == 0).next().unwrap_or_default();
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}
