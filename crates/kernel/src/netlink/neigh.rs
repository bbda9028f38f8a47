//! Neighbours: which hardware address an address has.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};

use super::addr::family;
use super::{Mac, NetlinkError, Request, Route};

/// A neighbour on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// The link's index.
    pub device: u32,
    /// The neighbour's address.
    pub addr: IpAddr,
    /// Its hardware address; none while it is not known.
    pub mac: Option<Mac>,
    /// Put there by hand, and kept.
    pub permanent: bool,
}

fn message(device: u32, addr: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(addr);
    message.header.ifindex = device;
    message.attributes.push(NeighbourAttribute::Destination(addr.into()));
    message
}

impl Request {
    /// Makes `addr` on the link `device` (an index) permanently known as `mac`.
    #[must_use]
    pub fn add_neighbour(device: u32, addr: IpAddr, mac: Mac) -> Self {
        let mut message = message(device, addr);
        message.header.state = NeighbourState::Permanent;
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        let object = format!("{addr} at {mac} on link {device}");
        let message = RouteNetlinkMessage::NewNeighbour(message);
        Self::new("add neighbour", object, NLM_F_CREATE | NLM_F_REPLACE, message)
    }

    /// Forgets `addr` on the link `device` (an index).
    #[must_use]
    pub fn del_neighbour(device: u32, addr: IpAddr) -> Self {
        let object = format!("{addr} on link {device}");
        let message = RouteNetlinkMessage::DelNeighbour(message(device, addr));
        Self::new("remove neighbour", object, 0, message)
    }
}

impl Route {
    /// The neighbours on the link `device` (an index).
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn neighbours(&mut self, device: u32) -> Result<Vec<Neighbour>, NetlinkError> {
        let message = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let answers = self.dump(&Request::new("list", "neighbours".to_owned(), 0, message))?;
        let all = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(message) => from_message(message),
            _ => None,
        });
        Ok(all.filter(|n| n.device == device).collect())
    }
}

fn from_message(message: &NeighbourMessage) -> Option<Neighbour> {
    let mut addr = None;
    let mut mac = None;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => addr = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => addr = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok().map(Mac),
            _ => {}
        }
    }
    let permanent = message.header.state == NeighbourState::Permanent;
    Some(Neighbour { device: message.header.ifindex, addr: addr?, mac, permanent })
}
