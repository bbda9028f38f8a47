//! Addresses of links.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Cidr, NetlinkError, Request, Route};

/// An address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The link's index.
    pub device: u32,
    /// The address and the length of its on-link prefix.
    pub addr: Cidr,
    /// Valid on this link only.
    pub link_scope: bool,
    /// Not usable yet: it is being looked for on the link.
    pub tentative: bool,
    /// Not usable at all: somebody else on the link has it.
    pub duplicate: bool,
}

pub(super) fn family(addr: IpAddr) -> AddressFamily {
    if addr.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn message(device: u32, addr: Cidr) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(addr.addr);
    message.header.prefix_len = addr.len;
    message.header.index = device;
    message.attributes.push(AddressAttribute::Local(addr.addr));
    if addr.addr.is_ipv4() {
        message.attributes.push(AddressAttribute::Address(addr.addr));
    }
    message
}

/// The last address of an IPv4 range, by which all of it are spoken to; two addresses and fewer have none. The kernel does not
/// fill it in, programs set it.
fn broadcast(addr: Cidr) -> Option<Ipv4Addr> {
    match addr.addr {
        IpAddr::V4(v4) if addr.len < 31 && !v4.is_loopback() => {
            Some(Ipv4Addr::from_bits(v4.to_bits() | (u32::MAX >> addr.len)))
        }
        _ => None,
    }
}

impl Request {
    /// Gives the link `device` (an index) an address; it fails if it is there. IPv6 addresses are usable at once:
    /// they are centrally allocated, so duplicate detection would only cost a second.
    #[must_use]
    pub fn add_address(device: u32, addr: Cidr) -> Self {
        Self::new_address(device, addr, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// As [`Request::add_address`], but there already is success.
    #[must_use]
    pub fn replace_address(device: u32, addr: Cidr) -> Self {
        Self::new_address(device, addr, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// As [`Request::add_address`], but the kernel makes no route to the rest of the prefix.
    #[must_use]
    pub fn add_address_alone(device: u32, addr: Cidr) -> Self {
        let alone = AddressFlags::Noprefixroute;
        let nodad = if addr.addr.is_ipv6() { AddressFlags::Nodad } else { AddressFlags::empty() };
        Self::flagged_address(device, addr, NLM_F_CREATE | NLM_F_EXCL, alone | nodad)
    }

    /// As [`Request::add_address`], but an IPv6 address is looked for on the link first: until then it is tentative.
    #[must_use]
    pub fn add_address_with_detection(device: u32, addr: Cidr) -> Self {
        Self::flagged_address(device, addr, NLM_F_CREATE | NLM_F_EXCL, AddressFlags::empty())
    }

    fn new_address(device: u32, addr: Cidr, flags: u16) -> Self {
        let nodad = if addr.addr.is_ipv6() { AddressFlags::Nodad } else { AddressFlags::empty() };
        Self::flagged_address(device, addr, flags, nodad)
    }

    fn flagged_address(device: u32, addr: Cidr, flags: u16, own: AddressFlags) -> Self {
        let mut message = message(device, addr);
        match addr.addr {
            IpAddr::V4(v4) if v4.is_link_local() => message.header.scope = AddressScope::Link,
            IpAddr::V4(v4) if v4.is_loopback() => message.header.scope = AddressScope::Host,
            _ => {}
        }
        if own.contains(AddressFlags::Nodad) {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        if !own.is_empty() {
            message.attributes.push(AddressAttribute::Flags(own));
        }
        if let Some(broadcast) = broadcast(addr) {
            message.attributes.push(AddressAttribute::Broadcast(broadcast));
        }
        let object = format!("{addr} on link {device}");
        Self::new("add address", object, flags, RouteNetlinkMessage::NewAddress(message))
    }

    /// Takes an address from the link `device` (an index).
    #[must_use]
    pub fn del_address(device: u32, addr: Cidr) -> Self {
        let object = format!("{addr} on link {device}");
        let message = RouteNetlinkMessage::DelAddress(message(device, addr));
        Self::new("remove address", object, 0, message)
    }
}

impl Route {
    /// Gives a link an address.
    ///
    /// # Errors
    /// [`NetlinkError`]; [`NetlinkError::already_exists`].
    pub fn add_address(&mut self, device: u32, addr: Cidr) -> Result<(), NetlinkError> {
        self.run(&[Request::add_address(device, addr)])
    }

    /// Takes an address from a link; absent is success.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn del_address(&mut self, device: u32, addr: Cidr) -> Result<(), NetlinkError> {
        self.run(&[Request::del_address(device, addr).or_absent()])
    }

    /// The addresses of the link `device` (an index), or of all.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn addresses(&mut self, device: Option<u32>) -> Result<Vec<Address>, NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.index = device.unwrap_or(0);
        let message = RouteNetlinkMessage::GetAddress(message);
        let answers = self.dump(&Request::new("list", "addresses".to_owned(), 0, message))?;
        let all = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => from_message(message),
            _ => None,
        });
        Ok(all.filter(|a| device.is_none_or(|device| a.device == device)).collect())
    }
}

fn from_message(message: &AddressMessage) -> Option<Address> {
    // Of a point-to-point address, ADDRESS is the other end and LOCAL is ours.
    let local = message.attributes.iter().find_map(|a| match a {
        AddressAttribute::Local(addr) => Some(*addr),
        _ => None,
    });
    let addr = local.or_else(|| {
        message.attributes.iter().find_map(|a| match a {
            AddressAttribute::Address(addr) => Some(*addr),
            _ => None,
        })
    })?;
    Some(Address {
        device: message.header.index,
        addr: Cidr { addr, len: message.header.prefix_len },
        link_scope: message.header.scope == AddressScope::Link,
        tentative: message.header.flags.contains(AddressHeaderFlags::Tentative),
        duplicate: message.header.flags.contains(AddressHeaderFlags::Dadfailed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_more_than_two_has_a_broadcast_address() {
        for (addr, expected) in [
            ("10.77.0.9/24", Some("10.77.0.255")),
            ("10.77.0.2/30", Some("10.77.0.3")),
            ("10.0.0.1/0", Some("255.255.255.255")),
            ("10.77.0.2/31", None),
            ("10.77.0.2/32", None),
            ("127.0.0.1/8", None),
            ("fd00::1/64", None),
        ] {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(broadcast(addr.parse().unwrap()), expected, "{addr}");
        }
    }
}
