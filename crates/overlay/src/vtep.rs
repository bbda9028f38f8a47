//! The ends of tunnels. A node's end follows from what its Node says: its address leads there, and address and hardware address
//! within the tunnel follow from its first Pod range, which no two nodes share. So there is nothing to publish, nothing that could be
//! out of date after a restart, and a node is reached as soon as it has a range. Pure.

use std::net::IpAddr;

use trine_kernel::netlink::{Address, Cidr, Link, Mac, Vxlan};

use crate::plan::Me;

/// The UDP port: Linux's own default for VXLAN, and that of most networks for Kubernetes.
pub const PORT: u16 = 8472;
/// What a tunnel adds to a packet, in bytes: outer IP, UDP, VXLAN and inner Ethernet headers.
const OVERHEAD_4: u32 = 20 + 8 + 8 + 14;
const OVERHEAD_6: u32 = 40 + 8 + 8 + 14;
/// No link carries less (RFC 791), in bytes.
const LEAST_MTU: u32 = 68;

/// One end of the cluster's tunnels: a link of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// The link's name.
    pub name: String,
    /// What it is.
    pub vxlan: Vxlan,
    /// Its hardware address.
    pub mac: Mac,
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// Its addresses, one for each range of this node's Pods.
    pub addresses: Vec<Cidr>,
}

/// The name of the tunnel over IPv4 or IPv6.
#[must_use]
pub fn name(instance: &str, v6: bool) -> String {
    format!("tr{instance}vx{}", if v6 { 6 } else { 4 })
}

/// The names of all tunnels.
#[must_use]
pub fn names(instance: &str) -> [String; 2] {
    [name(instance, false), name(instance, true)]
}

/// The address of a node's end within the tunnel: the first of its range, which no Pod has.
#[must_use]
pub fn address(range: Cidr) -> IpAddr {
    range.network().addr
}

/// The hardware address of the end of a node with this first range.
#[must_use]
pub fn mac(range: Cidr) -> Mac {
    let [a, b, c, d] = match range.network().addr {
        IpAddr::V4(v4) => v4.octets(),
        // The last bits of a prefix of up to 64 are what differs between nodes; longer ones differ behind that.
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            let folded = (bits >> 64) ^ (bits << 16 >> 64);
            u32::try_from(folded & 0xffff_ffff).unwrap_or_default().to_be_bytes()
        }
    };
    Mac([0x02, 0x54, a, b, c, d])
}

impl Tunnel {
    /// The one whose packets may be `path` bytes long on the way.
    #[must_use]
    pub fn new(me: &Me, v6: bool, local: Option<IpAddr>, own: &[Cidr], path: u32) -> Self {
        let overhead = if v6 { OVERHEAD_6 } else { OVERHEAD_4 };
        Self {
            name: name(&me.instance, v6),
            vxlan: Vxlan { vni: me.vni & 0x00ff_ffff, port: PORT, local, v6, learning: false },
            mac: own.first().map_or(Mac([0x02, 0x54, 0, 0, 0, 0]), |range| mac(*range)),
            mtu: path.saturating_sub(overhead).max(LEAST_MTU),
            addresses: own.iter().map(|range| Cidr::host(address(*range))).collect(),
        }
    }
}

/// What to do for a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Make it.
    Make(Tunnel),
    /// Make it in the place of the link that has its name (an index).
    Remake(u32, Tunnel),
    /// Set on its link (an index) what is other than it should be.
    Adjust {
        /// The link.
        device: u32,
        /// A hardware address.
        mac: Option<Mac>,
        /// An MTU, in bytes.
        mtu: Option<u32>,
        /// It is down.
        up: bool,
        /// Addresses that are missing.
        add: Vec<Cidr>,
        /// Addresses that are too many.
        remove: Vec<Cidr>,
    },
}

/// What to do for the tunnels that should be. A link that is what it should be is kept, whoever made it.
#[must_use]
pub fn changes(wanted: &[Tunnel], links: &[Link], addresses: &[Address]) -> Vec<Change> {
    let change = |tunnel: &Tunnel| {
        let Some(link) = links.iter().find(|link| link.name == tunnel.name) else {
            return Some(Change::Make(tunnel.clone()));
        };
        if !link.vxlan.is_some_and(|there| same(there, tunnel.vxlan)) {
            return Some(Change::Remake(link.index, tunnel.clone()));
        }
        let there: Vec<Cidr> =
            addresses.iter().filter(|a| a.device == link.index && !a.link_scope).map(|a| a.addr).collect();
        let add: Vec<Cidr> = tunnel.addresses.iter().filter(|a| !there.contains(a)).copied().collect();
        let remove: Vec<Cidr> = there.into_iter().filter(|a| !tunnel.addresses.contains(a)).collect();
        let mac = (link.mac != Some(tunnel.mac)).then_some(tunnel.mac);
        let mtu = (link.mtu != tunnel.mtu).then_some(tunnel.mtu);
        let right = mac.is_none() && mtu.is_none() && link.up && add.is_empty() && remove.is_empty();
        (!right).then_some(Change::Adjust { device: link.index, mac, mtu, up: !link.up, add, remove })
    };
    wanted.iter().filter_map(change).collect()
}

/// The kernel does not say of which family a link is that has no address; its name does.
fn same(there: Vxlan, wanted: Vxlan) -> bool {
    Vxlan { v6: wanted.v6, ..there } == wanted
}

/// The links of tunnels that should not be (all of them, to clean up), by their indexes.
#[must_use]
pub fn superfluous(instance: &str, wanted: &[Tunnel], links: &[Link]) -> Vec<u32> {
    let ours = names(instance);
    let ours = links.iter().filter(|link| ours.contains(&link.name));
    ours.filter(|link| !wanted.iter().any(|tunnel| tunnel.name == link.name)).map(|link| link.index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Mode;
    use crate::testing::{self, cidr, link};

    fn tunnel() -> Tunnel {
        let local = Some([192, 0, 2, 1].into());
        Tunnel::new(&testing::me(Mode::Auto), false, local, &[cidr("10.244.7.0/24")], 1500)
    }

    #[test]
    fn ends_of_different_ranges_have_different_hardware_addresses() {
        let rows = [
            ("10.244.7.0/24", "02:54:0a:f4:07:00"),
            ("10.244.7.128/25", "02:54:0a:f4:07:80"),
            ("fd00:244:0:7::/64", "02:54:00:07:00:07"),
            ("fd00:244:7:0::/64", "02:54:00:07:00:00"),
            ("fd00:244::7:0:0:0/80", "02:54:00:00:00:07"),
        ];
        for (range, expected) in rows {
            assert_eq!(mac(cidr(range)).to_string(), expected, "{range}");
        }
    }

    #[test]
    fn a_link_that_is_right_is_kept_and_one_that_is_not_is_mended_or_made_anew() {
        let wanted = tunnel();
        let right = Link { mac: Some(wanted.mac), vxlan: Some(wanted.vxlan), ..link(5, &wanted.name, 1450) };
        let has = testing::address(5, "10.244.7.0/32");
        let old = testing::address(5, "10.244.3.0/32");
        let other = |vxlan: Vxlan| Link { vxlan: Some(vxlan), ..right.clone() };
        let remake = Some(Change::Remake(5, wanted.clone()));
        let adjust = |mac, mtu, up, add: &[Address], remove: &[Address]| {
            let (add, remove) =
                (add.iter().map(|a| a.addr).collect(), remove.iter().map(|a| a.addr).collect());
            Some(Change::Adjust { device: 5, mac, mtu, up, add, remove })
        };
        let right_mac = Some(wanted.mac);
        let rows = [
            ("nothing there", None, vec![], Some(Change::Make(wanted.clone()))),
            ("right", Some(right.clone()), vec![has], None),
            ("somebody else's", Some(Link { vxlan: None, ..right.clone() }), vec![has], remake.clone()),
            ("another number", Some(other(Vxlan { vni: 2, ..wanted.vxlan })), vec![has], remake.clone()),
            ("another port", Some(other(Vxlan { port: 4789, ..wanted.vxlan })), vec![has], remake.clone()),
            (
                "the node's old address",
                Some(other(Vxlan { local: Some([192, 0, 2, 2].into()), ..wanted.vxlan })),
                vec![has],
                remake.clone(),
            ),
            ("learning", Some(other(Vxlan { learning: true, ..wanted.vxlan })), vec![has], remake),
            (
                "renamed by udev",
                Some(Link { mac: Some(Mac([2, 0, 0, 0, 0, 1])), ..right.clone() }),
                vec![has],
                adjust(right_mac, None, false, &[], &[]),
            ),
            (
                "another MTU",
                Some(Link { mtu: 1500, ..right.clone() }),
                vec![has],
                adjust(None, Some(1450), false, &[], &[]),
            ),
            (
                "down",
                Some(Link { up: false, ..right.clone() }),
                vec![has],
                adjust(None, None, true, &[], &[]),
            ),
            ("the node's old range", Some(right), vec![old], adjust(None, None, false, &[has], &[old])),
        ];
        for (name, there, addresses, expected) in rows {
            let there: Vec<Link> = there.into_iter().collect();
            let found = changes(std::slice::from_ref(&wanted), &there, &addresses).pop();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn only_our_own_tunnels_are_superfluous() {
        let links =
            [link(2, "tr00aabbvx4", 1450), link(3, "tr00aabbvx6", 1430), link(4, "tr00ccddvx4", 1450)];
        assert_eq!(superfluous("00aabb", &[tunnel()], &links), [3]);
        assert_eq!(superfluous("00aabb", &[], &links), [2, 3]);
    }
}
