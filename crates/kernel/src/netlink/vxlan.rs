//! VXLAN: a link whose frames go in datagrams to other machines, and which machine has which hardware address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::link::InfoVxlan;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Mac, NetlinkError, Request, Route};

/// What makes a VXLAN link the one that it is. None of it is changed while it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vxlan {
    /// The number of the network, 24 bits.
    pub vni: u32,
    /// The UDP port, here and there.
    pub port: u16,
    /// The address that its datagrams come from; the kernel's choice if none.
    pub local: Option<IpAddr>,
    /// Its datagrams are IPv6's.
    pub v6: bool,
    /// It learns who has which hardware address from what comes in.
    pub learning: bool,
}

impl Vxlan {
    pub(super) fn wire(self) -> Vec<InfoVxlan> {
        let mut data =
            vec![InfoVxlan::Id(self.vni), InfoVxlan::Port(self.port), InfoVxlan::Learning(self.learning)];
        match self.local {
            Some(IpAddr::V4(v4)) => data.push(InfoVxlan::Local(v4)),
            Some(IpAddr::V6(v6)) => data.push(InfoVxlan::Local6(v6)),
            // Nobody, but of that family.
            None if self.v6 => data.push(InfoVxlan::Group6(Ipv6Addr::UNSPECIFIED)),
            None => data.push(InfoVxlan::Group(Ipv4Addr::UNSPECIFIED)),
        }
        data
    }

    pub(super) fn of(data: &[InfoVxlan]) -> Self {
        let mut vxlan = Self { vni: 0, port: 0, local: None, v6: false, learning: false };
        for info in data {
            match info {
                InfoVxlan::Id(vni) => vxlan.vni = *vni,
                InfoVxlan::Port(port) => vxlan.port = *port,
                InfoVxlan::Local(v4) => vxlan.local = Some(IpAddr::V4(*v4)),
                InfoVxlan::Local6(v6) => (vxlan.local, vxlan.v6) = (Some(IpAddr::V6(*v6)), true),
                InfoVxlan::Group6(_) => vxlan.v6 = true,
                InfoVxlan::Learning(learning) => vxlan.learning = *learning,
                _ => {}
            }
        }
        vxlan
    }
}

/// Where the frames for a hardware address go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// The VXLAN link's index.
    pub device: u32,
    /// The hardware address.
    pub mac: Mac,
    /// The machine that has it.
    pub to: IpAddr,
    /// Put there by hand, and kept.
    pub permanent: bool,
}

fn message(device: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = device;
    message
}

fn entry(device: u32, mac: Mac) -> NeighbourMessage {
    let mut message = message(device);
    message.header.flags = NeighbourFlags::Own;
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
    message
}

impl Request {
    /// Sends frames for `mac` on the VXLAN link `device` (an index) to the machine `to` for good, in place of any other.
    #[must_use]
    pub fn set_forward(device: u32, mac: Mac, to: IpAddr) -> Self {
        let mut message = entry(device, mac);
        message.header.state = NeighbourState::Permanent;
        message.attributes.push(NeighbourAttribute::Destination(to.into()));
        let object = format!("{mac} to {to} on link {device}");
        let message = RouteNetlinkMessage::NewNeighbour(message);
        Self::new("forward", object, NLM_F_CREATE | NLM_F_REPLACE, message)
    }

    /// Forgets where `mac` is on the VXLAN link `device` (an index).
    #[must_use]
    pub fn del_forward(device: u32, mac: Mac) -> Self {
        let object = format!("{mac} on link {device}");
        let message = RouteNetlinkMessage::DelNeighbour(entry(device, mac));
        Self::new("stop forwarding", object, 0, message)
    }
}

impl Route {
    /// Where the VXLAN link `device` (an index) sends which frames.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn forwards(&mut self, device: u32) -> Result<Vec<Forward>, NetlinkError> {
        let message = RouteNetlinkMessage::GetNeighbour(message(device));
        let answers = self.dump(&Request::new("list", "forwarding entries".to_owned(), 0, message))?;
        let all = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(message) => from_message(message),
            _ => None,
        });
        Ok(all.filter(|entry| entry.device == device).collect())
    }
}

fn from_message(message: &NeighbourMessage) -> Option<Forward> {
    let mut mac = None;
    let mut to = None;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok().map(Mac),
            NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => to = address(bytes),
            _ => {}
        }
    }
    let permanent = message.header.state == NeighbourState::Permanent;
    Some(Forward { device: message.header.ifindex, mac: mac?, to: to?, permanent })
}

/// An address of either family: the message says none.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}
