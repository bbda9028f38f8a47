//! What changes on the network, as the kernel tells it.

use std::os::fd::AsFd;

use netlink_packet_core::{NetlinkBuffer, ParseableParametrized};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressScope;
use netlink_packet_route::link::LinkAttribute;
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::socket::HEADER;
use super::{NetlinkError, RouteEntry};
use crate::netns::Netns;

// Groups of `linux/rtnetlink.h`.
const LINKS: u32 = 1;
const NEIGHBOURS: u32 = 3;
const ADDRESSES_4: u32 = 5;
const ROUTES_4: u32 = 7;
const ADDRESSES_6: u32 = 9;
const ROUTES_6: u32 = 11;

/// Something that is other than it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A link was made or changed.
    Link {
        /// Its index.
        device: u32,
        /// Its name.
        name: String,
    },
    /// A link has gone.
    LinkGone {
        /// Its index.
        device: u32,
        /// Its name.
        name: String,
    },
    /// An address came or went.
    Address {
        /// Of which link (an index).
        device: u32,
        /// Valid on that link only, as the kernel gives one to every link.
        link_local: bool,
    },
    /// A neighbour, or a forwarding entry, came, changed or went.
    Neighbour {
        /// On which link (an index).
        device: u32,
        /// It went.
        gone: bool,
    },
    /// A route was set.
    Route(RouteEntry),
    /// A route has gone.
    RouteGone(RouteEntry),
    /// More happened than could be told.
    Missed,
}

/// A socket that the kernel tells what changes in the namespace that it was opened in.
pub struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

impl Monitor {
    /// Listens in the calling thread's namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn open() -> Result<Self, NetlinkError> {
        let error = |source| NetlinkError::Socket { call: "listen", source };
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(error)?;
        socket.set_non_blocking(true).map_err(error)?;
        socket.bind(&SocketAddr::new(0, 0)).map_err(error)?;
        for group in [LINKS, NEIGHBOURS, ADDRESSES_4, ADDRESSES_6, ROUTES_4, ROUTES_6] {
            socket.add_membership(group).map_err(error)?;
        }
        Ok(Self { socket, buffer: vec![0; 1 << 15] })
    }

    /// Listens in `netns`.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn open_in(netns: &Netns) -> Result<Self, NetlinkError> {
        netns.run(Self::open)?
    }

    /// Waits for what the kernel tells; none as soon as `stop` can be read, or its other end is closed.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`].
    pub fn wait(&mut self, stop: impl AsFd) -> Result<Option<Vec<Event>>, NetlinkError> {
        loop {
            let stop = stop.as_fd();
            let mut both =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
            match poll(&mut both, None) {
                Ok(_) if !both[1].revents().is_empty() => return Ok(None),
                Ok(_) => return self.events().map(Some),
                Err(Errno::INTR) => {}
                Err(e) => return Err(failed(e)),
            }
        }
    }

    /// What has been told since the last call; nothing if there is nothing to read.
    fn events(&mut self) -> Result<Vec<Event>, NetlinkError> {
        let mut events = Vec::new();
        loop {
            match recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((_, length)) => read(&self.buffer[..length.min(self.buffer.len())], &mut events),
                Err(Errno::WOULDBLOCK) => return Ok(events),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => events.push(Event::Missed),
                Err(e) => return Err(failed(e)),
            }
        }
    }
}

fn failed(errno: Errno) -> NetlinkError {
    NetlinkError::Socket { call: "hear what changes", source: errno.into() }
}

fn read(mut rest: &[u8], events: &mut Vec<Event>) {
    while rest.len() >= HEADER {
        let Ok(packet) = NetlinkBuffer::new_checked(rest) else { return };
        let size = packet.length() as usize;
        // What cannot be read is no reason to say that nothing happened.
        let event = match RouteNetlinkMessage::parse_with_param(packet.payload(), packet.message_type()) {
            Ok(message) => event(&message),
            Err(_) => Some(Event::Missed),
        };
        events.extend(event);
        rest = &rest[size.next_multiple_of(4).clamp(HEADER, rest.len())..];
    }
}

fn event(message: &RouteNetlinkMessage) -> Option<Event> {
    let neighbour =
        |message: &NeighbourMessage, gone| Event::Neighbour { device: message.header.ifindex, gone };
    Some(match message {
        RouteNetlinkMessage::NewLink(link) => {
            Event::Link { device: link.header.index, name: name(&link.attributes) }
        }
        RouteNetlinkMessage::DelLink(link) => {
            Event::LinkGone { device: link.header.index, name: name(&link.attributes) }
        }
        RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address) => {
            let link_local = address.header.scope == AddressScope::Link;
            Event::Address { device: address.header.index, link_local }
        }
        RouteNetlinkMessage::NewNeighbour(message) => neighbour(message, false),
        RouteNetlinkMessage::DelNeighbour(message) => neighbour(message, true),
        RouteNetlinkMessage::NewRoute(route) => Event::Route(RouteEntry::from_message(route)?),
        RouteNetlinkMessage::DelRoute(route) => Event::RouteGone(RouteEntry::from_message(route)?),
        _ => return None,
    })
}

fn name(attributes: &[LinkAttribute]) -> String {
    attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        })
        .unwrap_or_default()
}
