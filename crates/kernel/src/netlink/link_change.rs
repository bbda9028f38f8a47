//! Links made, changed and removed.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkHeader, LinkInfo, LinkMessage,
};

use super::{LinkId, Mac, NetlinkError, Request, Route};

/// The far end of a [`Veth`].
#[derive(Debug, Clone)]
pub struct VethPeer<'a> {
    /// Its final name.
    pub name: &'a str,
    /// The namespace that it is made in; none for the socket's.
    pub netns: Option<BorrowedFd<'a>>,
    /// Its hardware address; the kernel's choice if none.
    pub mac: Option<Mac>,
}

/// A veth pair to make by one request: both ends named and in their namespaces, the near end up. The far end cannot
/// be set up before it has an other end: that takes a request in its namespace.
#[derive(Debug, Clone)]
pub struct Veth<'a> {
    /// The near end's name.
    pub name: &'a str,
    /// The near end's hardware address; the kernel's choice if none.
    pub mac: Option<Mac>,
    /// The MTU of both ends, in bytes; the kernel's default (1500) if none.
    pub mtu: Option<u32>,
    /// The far end.
    pub peer: VethPeer<'a>,
}

/// What to change on a link. Everything that is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct LinkChange<'a> {
    /// Up or down.
    pub up: Option<bool>,
    /// A new name; the link must be down, or the kernel new enough.
    pub name: Option<&'a str>,
    /// A new MTU, in bytes.
    pub mtu: Option<u32>,
    /// A new hardware address.
    pub mac: Option<Mac>,
    /// The index of the bridge to be a port of; 0 for none.
    pub master: Option<u32>,
    /// The namespace to move to.
    pub netns: Option<BorrowedFd<'a>>,
    /// A new alias.
    pub alias: Option<&'a str>,
    /// Promiscuous mode.
    pub promiscuous: Option<bool>,
    /// Takes in every multicast.
    pub all_multicast: Option<bool>,
    /// Frames that wait to be sent at most.
    pub transmit_queue: Option<u32>,
}

fn end(name: &str, mac: Option<Mac>, mtu: Option<u32>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    if let Some(mac) = mac {
        message.attributes.push(LinkAttribute::Address(mac.0.to_vec()));
    }
    if let Some(mtu) = mtu {
        message.attributes.push(LinkAttribute::Mtu(mtu));
    }
    message
}

impl Veth<'_> {
    /// The request that makes it. It fails if either name is taken.
    #[must_use]
    pub fn request(&self) -> Request {
        let mut peer = end(self.peer.name, self.peer.mac, self.mtu);
        peer.header = LinkHeader::default();
        if let Some(netns) = self.peer.netns {
            peer.attributes.push(LinkAttribute::NetNsFd(netns.as_raw_fd()));
        }
        let mut message = end(self.name, self.mac, self.mtu);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        let object = format!("veth {} with peer {}", self.name, self.peer.name);
        Request::new("make", object, NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewLink(message))
    }
}

impl LinkChange<'_> {
    /// The request that makes the change to `id`.
    #[must_use]
    pub fn request(&self, id: impl Into<LinkId>) -> Request {
        let id = id.into();
        let mut message = id.message();
        let mut flag = |flag, on: Option<bool>| {
            if let Some(on) = on {
                message.header.change_mask |= flag;
                message.header.flags.set(flag, on);
            }
        };
        flag(LinkFlags::Up, self.up);
        flag(LinkFlags::Promisc, self.promiscuous);
        flag(LinkFlags::Allmulti, self.all_multicast);
        let attributes = &mut message.attributes;
        attributes.extend(self.name.map(|name| LinkAttribute::IfName(name.to_owned())));
        attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        attributes.extend(self.transmit_queue.map(LinkAttribute::TxQueueLen));
        attributes.extend(self.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
        attributes.extend(self.master.map(LinkAttribute::Controller));
        attributes.extend(self.netns.map(|fd| LinkAttribute::NetNsFd(fd.as_raw_fd())));
        attributes.extend(self.alias.map(|alias| LinkAttribute::IfAlias(alias.to_owned())));
        Request::new("change", id.to_string(), 0, RouteNetlinkMessage::SetLink(message))
    }
}

impl Request {
    /// Makes the bridge `name`, up, with the given hardware address (fixed, so that it does not follow its ports).
    #[must_use]
    pub fn add_bridge(name: &str, mac: Option<Mac>, mtu: Option<u32>) -> Self {
        let mut message = end(name, mac, mtu);
        message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
        let message = RouteNetlinkMessage::NewLink(message);
        Self::new("make", format!("bridge {name}"), NLM_F_CREATE | NLM_F_EXCL, message)
    }

    /// Lets the bridge port `id` send frames back to where they came from, or not.
    #[must_use]
    pub fn hairpin(id: impl Into<LinkId>, on: bool) -> Self {
        let id = id.into();
        let mut message = id.message();
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::PortKind(InfoPortKind::Bridge),
            LinkInfo::PortData(InfoPortData::BridgePort(vec![InfoBridgePort::HairpinMode(on)])),
        ]));
        Self::new("set hairpin mode of", id.to_string(), 0, RouteNetlinkMessage::NewLink(message))
    }

    /// Removes the link `id`. A veth takes its other end along, and some 30 ms: where its namespace goes anyway,
    /// leave it to that.
    #[must_use]
    pub fn del_link(id: impl Into<LinkId>) -> Self {
        let id = id.into();
        Self::new("remove", id.to_string(), 0, RouteNetlinkMessage::DelLink(id.message()))
    }
}

impl Route {
    /// Makes a veth pair.
    ///
    /// # Errors
    /// [`NetlinkError`]; [`NetlinkError::already_exists`] if either name is taken.
    pub fn add_veth(&mut self, veth: &Veth<'_>) -> Result<(), NetlinkError> {
        self.run(&[veth.request()])
    }

    /// Changes a link.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn set_link(&mut self, id: impl Into<LinkId>, change: &LinkChange<'_>) -> Result<(), NetlinkError> {
        self.run(&[change.request(id)])
    }

    /// Removes a link; absent is success.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn del_link(&mut self, id: impl Into<LinkId>) -> Result<(), NetlinkError> {
        self.run(&[Request::del_link(id).or_absent()])
    }
}
