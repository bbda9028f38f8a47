//! Links of further kinds.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::link::{
    AfSpecBridge, BridgeVlanInfo, BridgeVlanInfoFlags, InfoBridge, InfoBridgePort, InfoData, InfoKind,
    InfoMacVlan, InfoPortData, InfoPortKind, InfoVlan, InfoVrf, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage, MacVlanMode,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{LinkId, Mac, Request, Vxlan};

/// Which of a macvlan's neighbours it reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacvlanMode {
    /// Those on the same link below, directly.
    Bridge,
    /// None of them.
    Private,
    /// Those that the next switch sends back.
    Vepa,
    /// It is the only one.
    Passthru,
}

impl MacvlanMode {
    const fn wire(self) -> MacVlanMode {
        match self {
            Self::Bridge => MacVlanMode::Bridge,
            Self::Private => MacVlanMode::Private,
            Self::Vepa => MacVlanMode::Vepa,
            Self::Passthru => MacVlanMode::Passthrough,
        }
    }

    pub(super) fn of(data: &[InfoMacVlan]) -> Option<Self> {
        data.iter().find_map(|info| match info {
            InfoMacVlan::Mode(MacVlanMode::Bridge) => Some(Self::Bridge),
            InfoMacVlan::Mode(MacVlanMode::Private) => Some(Self::Private),
            InfoMacVlan::Mode(MacVlanMode::Vepa) => Some(Self::Vepa),
            InfoMacVlan::Mode(MacVlanMode::Passthrough) => Some(Self::Passthru),
            _ => None,
        })
    }
}

/// What a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewKind {
    /// A hardware address more on the link below.
    Macvlan {
        /// Whom it reaches.
        mode: MacvlanMode,
        /// Frames of broadcasts that wait at most; the kernel's default (1000) if none.
        broadcast_queue: Option<u32>,
    },
    /// One VLAN of the link below (needs 802.1Q in the kernel).
    Vlan {
        /// Its id, 0 to 4094.
        id: u16,
    },
    /// A routing domain of its own (needs VRF in the kernel).
    Vrf {
        /// Its table.
        table: u32,
    },
    /// A queue that other links' frames are led through.
    Ifb,
    /// Frames go in datagrams to other machines.
    Vxlan(Vxlan),
}

/// A link to make.
#[derive(Debug, Clone)]
pub struct NewLink<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is.
    pub kind: NewKind,
    /// The link below (an index in the socket's namespace).
    pub parent: Option<u32>,
    /// The namespace that it is made in; none for the socket's.
    pub netns: Option<BorrowedFd<'a>>,
    /// Its hardware address; the kernel's choice if none.
    pub mac: Option<Mac>,
    /// Its MTU, in bytes; that of the link below if none.
    pub mtu: Option<u32>,
    /// Set up at once.
    pub up: bool,
}

impl NewLink<'_> {
    /// The request that makes it. It fails if the name is taken.
    #[must_use]
    pub fn request(&self) -> Request {
        let mut message = LinkMessage::default();
        if self.up {
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
        }
        let attributes = &mut message.attributes;
        attributes.push(LinkAttribute::IfName(self.name.to_owned()));
        attributes.extend(self.parent.map(LinkAttribute::Link));
        attributes.extend(self.netns.map(|fd| LinkAttribute::NetNsFd(fd.as_raw_fd())));
        attributes.extend(self.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
        attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        let (kind, data) = match self.kind {
            NewKind::Macvlan { mode, broadcast_queue } => {
                let queue = broadcast_queue.map(InfoMacVlan::BcQueueLen);
                let data = std::iter::once(InfoMacVlan::Mode(mode.wire())).chain(queue).collect();
                (InfoKind::MacVlan, Some(InfoData::MacVlan(data)))
            }
            NewKind::Vlan { id } => (InfoKind::Vlan, Some(InfoData::Vlan(vec![InfoVlan::Id(id)]))),
            NewKind::Vrf { table } => (InfoKind::Vrf, Some(InfoData::Vrf(vec![InfoVrf::TableId(table)]))),
            NewKind::Ifb => (InfoKind::Ifb, None),
            NewKind::Vxlan(vxlan) => (InfoKind::Vxlan, Some(InfoData::Vxlan(vxlan.wire()))),
        };
        let info = std::iter::once(LinkInfo::Kind(kind)).chain(data.map(LinkInfo::Data)).collect();
        attributes.push(LinkAttribute::LinkInfo(info));
        let message = RouteNetlinkMessage::NewLink(message);
        Request::new("make", format!("link {}", self.name), NLM_F_CREATE | NLM_F_EXCL, message)
    }
}

/// VLANs of a bridge's port, or of the bridge itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortVlans {
    /// The first id.
    pub first: u16,
    /// The last id; the first for one alone.
    pub last: u16,
    /// Frames without a VLAN get this one, and lose it on the way out. One id only.
    pub native: bool,
}

impl PortVlans {
    fn wire(self) -> Vec<AfSpecBridge> {
        let native = if self.native {
            BridgeVlanInfoFlags::Pvid | BridgeVlanInfoFlags::Untagged
        } else {
            BridgeVlanInfoFlags::empty()
        };
        let info = |vid, flags| AfSpecBridge::VlanInfo(BridgeVlanInfo { flags: native | flags, vid });
        if self.first == self.last {
            return vec![info(self.first, BridgeVlanInfoFlags::empty())];
        }
        vec![
            info(self.first, BridgeVlanInfoFlags::RangeBegin),
            info(self.last, BridgeVlanInfoFlags::RangeEnd),
        ]
    }
}

impl Request {
    /// Makes the bridge `name`, up, which keeps VLANs apart (needs bridge VLAN filtering in the kernel).
    #[must_use]
    pub fn add_vlan_bridge(name: &str, mac: Option<Mac>, mtu: Option<u32>) -> Self {
        let mut request = Self::add_bridge(name, mac, mtu);
        if let RouteNetlinkMessage::NewLink(message) = &mut request.message {
            for attribute in &mut message.attributes {
                if let LinkAttribute::LinkInfo(info) = attribute {
                    info.push(LinkInfo::Data(InfoData::Bridge(vec![InfoBridge::VlanFiltering(true)])));
                }
            }
        }
        request
    }

    /// Adds VLANs to the bridge port `id`, or to the bridge `id` itself.
    #[must_use]
    pub fn add_port_vlans(id: impl Into<LinkId>, vlans: PortVlans, bridge_itself: bool) -> Self {
        Self::port_vlans("add VLANs to", id.into(), vlans, bridge_itself, true)
    }

    /// Takes VLANs from the bridge port `id`, or from the bridge `id` itself.
    #[must_use]
    pub fn del_port_vlans(id: impl Into<LinkId>, vlans: PortVlans, bridge_itself: bool) -> Self {
        Self::port_vlans("take VLANs from", id.into(), vlans, bridge_itself, false)
    }

    fn port_vlans(call: &'static str, id: LinkId, vlans: PortVlans, itself: bool, add: bool) -> Self {
        let mut message = id.message();
        message.header.interface_family = AddressFamily::Bridge;
        let mut spec = vlans.wire();
        if itself {
            // `BRIDGE_FLAGS_SELF`
            spec.insert(0, AfSpecBridge::Flags(2.into()));
        }
        message.attributes.push(LinkAttribute::AfSpecBridge(spec));
        let object = format!("{id} ({} to {})", vlans.first, vlans.last);
        let message =
            if add { RouteNetlinkMessage::SetLink(message) } else { RouteNetlinkMessage::DelLink(message) };
        Self::new(call, object, 0, message)
    }

    /// Keeps the bridge port `id` from other isolated ports, or not.
    #[must_use]
    pub fn isolate(id: impl Into<LinkId>, on: bool) -> Self {
        let id = id.into();
        let mut message = id.message();
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::PortKind(InfoPortKind::Bridge),
            LinkInfo::PortData(InfoPortData::BridgePort(vec![InfoBridgePort::Isolated(on)])),
        ]));
        Self::new("isolate", id.to_string(), 0, RouteNetlinkMessage::NewLink(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(request: &Request) -> Vec<u8> {
        use netlink_packet_core::Emitable;
        let (RouteNetlinkMessage::NewLink(m)
        | RouteNetlinkMessage::SetLink(m)
        | RouteNetlinkMessage::DelLink(m)) = &request.message
        else {
            panic!("not about a link")
        };
        let mut bytes = vec![0; m.buffer_len()];
        m.emit(&mut bytes);
        bytes
    }

    fn contains(bytes: &[u8], part: &[u8]) -> bool {
        bytes.windows(part.len()).any(|window| window == part)
    }

    // What this machine's kernel may lack is held to the form of `linux/if_link.h` and `linux/if_bridge.h`.
    #[test]
    fn links_that_this_kernel_may_lack_are_asked_for_in_its_headers_form() {
        let link = |kind| NewLink {
            name: "eth0",
            kind,
            parent: Some(7),
            netns: None,
            mac: None,
            mtu: None,
            up: true,
        };
        let vlan = bytes(&link(NewKind::Vlan { id: 0x123 }).request());
        assert!(contains(&vlan, b"vlan"));
        // IFLA_VLAN_ID (1), length 6.
        assert!(contains(&vlan, &[6, 0, 1, 0, 0x23, 0x01]));
        // IFLA_LINK (5), length 8.
        assert!(contains(&vlan, &[8, 0, 5, 0, 7, 0, 0, 0]));
        let vrf = bytes(&link(NewKind::Vrf { table: 0x0102 }).request());
        assert!(contains(&vrf, b"vrf"));
        assert!(contains(&vrf, &[8, 0, 1, 0, 2, 1, 0, 0]));
        let bridge = bytes(&Request::add_vlan_bridge("br0", None, None));
        // IFLA_BR_VLAN_FILTERING (7), length 5.
        assert!(contains(&bridge, &[5, 0, 7, 0, 1]));
    }

    #[test]
    fn vlans_of_ports_are_asked_for_one_by_one_as_ranges_and_of_the_bridge_itself() {
        let native = PortVlans { first: 100, last: 100, native: true };
        let port = bytes(&Request::add_port_vlans(9, native, false));
        assert_eq!(port[0], 7, "AF_BRIDGE");
        // IFLA_BRIDGE_VLAN_INFO (2), length 8: flags PVID | UNTAGGED, then the id.
        assert!(contains(&port, &[8, 0, 2, 0, 6, 0, 100, 0]));
        assert!(!contains(&port, &[6, 0, 0, 0, 2, 0]));
        let range = PortVlans { first: 200, last: 250, native: false };
        let itself = bytes(&Request::add_port_vlans("br0", range, true));
        // IFLA_BRIDGE_FLAGS (0), length 6: BRIDGE_FLAGS_SELF.
        assert!(contains(&itself, &[6, 0, 0, 0, 2, 0]));
        assert!(contains(&itself, &[8, 0, 2, 0, 8, 0, 200, 0]));
        assert!(contains(&itself, &[8, 0, 2, 0, 16, 0, 250, 0]));
    }
}
