//! Links as they are.

use std::fmt;
use std::str::FromStr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoVlan, InfoVrf, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};

use super::{MacvlanMode, NetlinkError, Request, Route, Vxlan};

/// A hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

/// A text that is no [`Mac`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a hardware address")]
pub struct MacError(pub String);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let bytes: Option<Vec<u8>> = text
            .split([':', '-'])
            .map(|part| Some(part).filter(|p| p.len() == 2).and_then(|p| u8::from_str_radix(p, 16).ok()))
            .collect();
        bytes.and_then(|b| b.try_into().ok()).map(Self).ok_or_else(|| MacError(text.to_owned()))
    }
}

/// Which link is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkId {
    /// By name.
    Name(String),
    /// By index.
    Index(u32),
}

impl From<&str> for LinkId {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<&String> for LinkId {
    fn from(name: &String) -> Self {
        Self::Name(name.clone())
    }
}

impl From<u32> for LinkId {
    fn from(index: u32) -> Self {
        Self::Index(index)
    }
}

impl From<&Link> for LinkId {
    fn from(link: &Link) -> Self {
        Self::Index(link.index)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "link {name}"),
            Self::Index(index) => write!(f, "link {index}"),
        }
    }
}

impl LinkId {
    /// A message about this link.
    pub(super) fn message(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        match self {
            Self::Name(name) => message.attributes.push(LinkAttribute::IfName(name.clone())),
            Self::Index(index) => message.header.index = *index,
        }
        message
    }
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Set up by an administrator.
    pub up: bool,
    /// In promiscuous mode by an administrator.
    pub promiscuous: bool,
    /// Able to pass packets: up, and so is its other end.
    pub running: bool,
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// Its hardware address.
    pub mac: Option<Mac>,
    /// `veth`, `bridge` and so on; none for a plain device and the loopback.
    pub kind: Option<String>,
    /// The index of the bridge (or other controller) that it is a port of.
    pub master: Option<u32>,
    /// The index of the link below, or of the other end of a veth.
    pub peer: Option<u32>,
    /// The namespace id of `peer`, as seen from here; none if it is in this one.
    pub peer_netns: Option<i32>,
    /// Its free-text alias.
    pub alias: Option<String>,
    /// Takes in every multicast, by an administrator.
    pub all_multicast: bool,
    /// Frames that wait to be sent at most.
    pub transmit_queue: u32,
    /// Whom a macvlan reaches.
    pub macvlan: Option<MacvlanMode>,
    /// The table of a VRF.
    pub vrf_table: Option<u32>,
    /// The id of a VLAN.
    pub vlan: Option<u16>,
    /// A bridge that keeps VLANs apart.
    pub vlan_filtering: bool,
    /// What a VXLAN link is.
    pub vxlan: Option<Vxlan>,
}

impl Link {
    fn from_message(message: &LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            up: flags.contains(LinkFlags::Up),
            promiscuous: flags.contains(LinkFlags::Promisc),
            running: flags.contains(LinkFlags::LowerUp) && flags.contains(LinkFlags::Running),
            mtu: 0,
            mac: None,
            kind: None,
            master: None,
            peer: None,
            peer_netns: None,
            alias: None,
            all_multicast: flags.contains(LinkFlags::Allmulti),
            transmit_queue: 0,
            macvlan: None,
            vrf_table: None,
            vlan: None,
            vlan_filtering: false,
            vxlan: None,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Address(bytes) => link.mac = bytes.as_slice().try_into().ok().map(Mac),
                LinkAttribute::Controller(index) => link.master = Some(*index),
                LinkAttribute::Link(index) => link.peer = Some(*index),
                LinkAttribute::LinkNetNsId(id) => link.peer_netns = Some(*id),
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
                LinkAttribute::TxQueueLen(frames) => link.transmit_queue = *frames,
                LinkAttribute::LinkInfo(infos) => infos.iter().for_each(|info| link.take(info)),
                _ => {}
            }
        }
        link
    }

    fn take(&mut self, info: &LinkInfo) {
        match info {
            LinkInfo::Kind(kind) => self.kind = Some(kind.to_string()),
            LinkInfo::Data(InfoData::MacVlan(data)) => self.macvlan = MacvlanMode::of(data),
            LinkInfo::Data(InfoData::Vrf(data)) => {
                self.vrf_table = data.iter().find_map(|info| match info {
                    InfoVrf::TableId(table) => Some(*table),
                    _ => None,
                });
            }
            LinkInfo::Data(InfoData::Vlan(data)) => {
                self.vlan = data.iter().find_map(|info| match info {
                    InfoVlan::Id(id) => Some(*id),
                    _ => None,
                });
            }
            LinkInfo::Data(InfoData::Vxlan(data)) => self.vxlan = Some(Vxlan::of(data)),
            LinkInfo::Data(InfoData::Bridge(data)) => {
                self.vlan_filtering = data.contains(&InfoBridge::VlanFiltering(true));
            }
            _ => {}
        }
    }
}

impl Route {
    /// The link `id`.
    ///
    /// # Errors
    /// [`NetlinkError`]; [`NetlinkError::not_found`] if there is none.
    pub fn link(&mut self, id: impl Into<LinkId>) -> Result<Link, NetlinkError> {
        let id = id.into();
        let message = RouteNetlinkMessage::GetLink(id.message());
        let request = Request::new("get", id.to_string(), 0, message);
        match self.get(&request)? {
            RouteNetlinkMessage::NewLink(message) => Ok(Link::from_message(&message)),
            _ => Err(NetlinkError::Answer {
                call: "get",
                object: id.to_string(),
                problem: "it is not about a link".to_owned(),
            }),
        }
    }

    /// The link `id`, or none.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn find_link(&mut self, id: impl Into<LinkId>) -> Result<Option<Link>, NetlinkError> {
        match self.link(id) {
            Ok(link) => Ok(Some(link)),
            Err(e) if e.not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// All links.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.dump(&Request::new("list", "links".to_owned(), 0, message))?;
        let links = answers.iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => Some(Link::from_message(message)),
            _ => None,
        });
        Ok(links.collect())
    }
}
