//! Routes.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::addr::family;
use super::{Cidr, NetlinkError, Request, Route};

/// The main table.
pub const MAIN_TABLE: u32 = 254;
/// The protocol number of the routes that Trine makes: unused in `rt_protos` of iproute2 and by known daemons.
pub const TRINE_PROTOCOL: u8 = 84;

/// What happens to a packet that takes the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RouteKind {
    /// It goes on.
    #[default]
    Unicast,
    /// It is for this machine.
    Local,
    /// Its sender hears that there is no way.
    Unreachable,
    /// It vanishes.
    Blackhole,
    /// Its sender hears that it may not.
    Prohibit,
    /// The next table is asked.
    Throw,
}

impl RouteKind {
    const fn wire(self) -> RouteType {
        match self {
            Self::Unicast => RouteType::Unicast,
            Self::Local => RouteType::Local,
            Self::Unreachable => RouteType::Unreachable,
            Self::Blackhole => RouteType::BlackHole,
            Self::Prohibit => RouteType::Prohibit,
            Self::Throw => RouteType::Throw,
        }
    }

    const fn from_wire(kind: RouteType) -> Option<Self> {
        match kind {
            RouteType::Unicast => Some(Self::Unicast),
            RouteType::Local => Some(Self::Local),
            RouteType::Unreachable => Some(Self::Unreachable),
            RouteType::BlackHole => Some(Self::Blackhole),
            RouteType::Prohibit => Some(Self::Prohibit),
            RouteType::Throw => Some(Self::Throw),
            _ => None,
        }
    }
}

/// How far away the destination is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Anywhere.
    #[default]
    Universe,
    /// On the link.
    Link,
    /// This machine.
    Host,
    /// Another number.
    Other(u8),
}

impl Scope {
    /// The scope of a number of `rtnetlink(7)`.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Universe,
            253 => Self::Link,
            254 => Self::Host,
            other => Self::Other(other),
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Universe => 0,
            Self::Link => 253,
            Self::Host => 254,
            Self::Other(number) => number,
        }
    }
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteEntry {
    /// Where to.
    pub dst: Cidr,
    /// By which neighbour.
    pub gateway: Option<IpAddr>,
    /// By which link (an index).
    pub device: Option<u32>,
    /// The source address of our own packets.
    pub source: Option<IpAddr>,
    /// The table; [`MAIN_TABLE`] by default.
    pub table: u32,
    /// Who made it; [`TRINE_PROTOCOL`] by default.
    pub protocol: u8,
    /// How far.
    pub scope: Scope,
    /// What happens.
    pub kind: RouteKind,
    /// The gateway is on the link even though no address says so.
    pub onlink: bool,
    /// The lower, the better; none is 0 (IPv4) or 1024 (IPv6).
    pub priority: Option<u32>,
    /// The path MTU, in bytes.
    pub mtu: Option<u32>,
    /// The MSS to advertise, in bytes.
    pub advmss: Option<u32>,
}

impl RouteEntry {
    /// A unicast route of Trine's to `dst` in the main table, to be completed by struct update.
    #[must_use]
    pub fn to(dst: Cidr) -> Self {
        Self {
            dst,
            gateway: None,
            device: None,
            source: None,
            table: MAIN_TABLE,
            protocol: TRINE_PROTOCOL,
            scope: Scope::Universe,
            kind: RouteKind::Unicast,
            onlink: false,
            priority: None,
            mtu: None,
            advmss: None,
        }
    }

    /// The request that adds it; it fails if an equal one is there.
    #[must_use]
    pub fn add(&self) -> Request {
        let message = RouteNetlinkMessage::NewRoute(self.message());
        Request::new("add route to", self.to_string(), NLM_F_CREATE | NLM_F_EXCL, message)
    }

    /// The request that adds it, before others to the same destination that go another way; it fails if the same is there.
    #[must_use]
    pub fn prepend(&self) -> Request {
        let message = RouteNetlinkMessage::NewRoute(self.message());
        Request::new("add route to", self.to_string(), NLM_F_CREATE, message)
    }

    /// The request that adds it or replaces the one to the same destination.
    #[must_use]
    pub fn replace(&self) -> Request {
        let message = RouteNetlinkMessage::NewRoute(self.message());
        Request::new("set route to", self.to_string(), NLM_F_CREATE | NLM_F_REPLACE, message)
    }

    /// The request that removes it.
    #[must_use]
    pub fn del(&self) -> Request {
        Request::new("remove route to", self.to_string(), 0, RouteNetlinkMessage::DelRoute(self.message()))
    }

    fn message(&self) -> RouteMessage {
        let dst = self.dst.network();
        let mut message = RouteMessage::default();
        message.header.address_family = family(dst.addr);
        message.header.destination_prefix_length = dst.len;
        message.header.table = u8::try_from(self.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
        message.header.protocol = RouteProtocol::from(self.protocol);
        message.header.scope = RouteScope::from(self.scope.number());
        message.header.kind = self.kind.wire();
        if self.onlink {
            message.header.flags |= RouteFlags::Onlink;
        }
        let attributes = &mut message.attributes;
        if dst.len > 0 {
            attributes.push(RouteAttribute::Destination(dst.addr.into()));
        }
        attributes.push(RouteAttribute::Table(self.table));
        attributes.extend(self.gateway.map(|addr| RouteAttribute::Gateway(addr.into())));
        attributes.extend(self.device.map(RouteAttribute::Oif));
        attributes.extend(self.source.map(|addr| RouteAttribute::PrefSource(addr.into())));
        attributes.extend(self.priority.map(RouteAttribute::Priority));
        let metrics: Vec<_> =
            self.mtu.map(RouteMetric::Mtu).into_iter().chain(self.advmss.map(RouteMetric::Advmss)).collect();
        if !metrics.is_empty() {
            attributes.push(RouteAttribute::Metrics(metrics));
        }
        message
    }

    pub(super) fn from_message(message: &RouteMessage) -> Option<Self> {
        let header = &message.header;
        let v6 = header.address_family == AddressFamily::Inet6;
        let mut dst = Cidr::default_route(v6);
        dst.len = header.destination_prefix_length;
        let mut route = Self {
            table: header.table.into(),
            protocol: header.protocol.into(),
            scope: Scope::from_number(header.scope.into()),
            kind: RouteKind::from_wire(header.kind)?,
            onlink: header.flags.contains(RouteFlags::Onlink),
            ..Self::to(dst)
        };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(addr) => route.dst.addr = ip(addr)?,
                RouteAttribute::Gateway(addr) => route.gateway = ip(addr),
                RouteAttribute::PrefSource(addr) => route.source = ip(addr),
                RouteAttribute::Oif(index) => route.device = Some(*index),
                RouteAttribute::Table(table) => route.table = *table,
                RouteAttribute::Priority(priority) => route.priority = Some(*priority),
                RouteAttribute::Metrics(metrics) => {
                    for metric in metrics {
                        match metric {
                            RouteMetric::Mtu(mtu) => route.mtu = Some(*mtu),
                            RouteMetric::Advmss(advmss) => route.advmss = Some(*advmss),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Some(route)
    }
}

fn ip(addr: &RouteAddress) -> Option<IpAddr> {
    match addr {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(Ipv6Addr::from(v6.octets()))),
        _ => None,
    }
}

impl fmt::Display for RouteEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dst)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(device) = self.device {
            write!(f, " on link {device}")?;
        }
        if self.table != MAIN_TABLE {
            write!(f, " in table {}", self.table)?;
        }
        Ok(())
    }
}

impl Route {
    /// Adds a route or replaces the one to the same destination.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn replace_route(&mut self, route: &RouteEntry) -> Result<(), NetlinkError> {
        self.run(&[route.replace()])
    }

    /// Removes a route; absent is success.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn del_route(&mut self, route: &RouteEntry) -> Result<(), NetlinkError> {
        self.run(&[route.del().or_absent()])
    }

    /// The routes of one family in all tables, the kernel's own included.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn routes(&mut self, v6: bool) -> Result<Vec<RouteEntry>, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        let message = RouteNetlinkMessage::GetRoute(message);
        let answers = self.dump(&Request::new("list", "routes".to_owned(), 0, message))?;
        let routes = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => RouteEntry::from_message(message),
            _ => None,
        });
        Ok(routes.collect())
    }
}
