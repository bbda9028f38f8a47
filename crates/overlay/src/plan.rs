//! Which way leads to each other node's Pods, and what that takes: routes, and tunnels with their entries.
//!
//! A node on the link of our own address is a neighbour: a route by its address. That holds for both ends alike, so answers come back
//! the way that questions went. Any other node is reached through a tunnel (VXLAN). A node that neither leads to stays behind the
//! proxy's guard, instead of being looked for behind the default route.

use std::net::IpAddr;

use trine_kernel::netlink::{Address, Cidr, Link, MAIN_TABLE, Mac, RouteEntry, RouteKind};

use crate::checksums::Checksums;
use crate::vtep::{self, Tunnel};

/// What Ethernet carries, in bytes, and the kernel's default for a Pod's link.
pub const USUAL_MTU: u32 = 1500;
/// The index of `lo`, which is the first link of every network namespace. Some nodes have their address there.
const LOOPBACK: u32 = 1;

/// Which ways may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Routes to neighbours, tunnels to others.
    #[default]
    Auto,
    /// Tunnels to all.
    Vxlan,
    /// Routes to neighbours; others are not reached.
    Direct,
}

/// A text that is no [`Mode`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of auto, vxlan, direct")]
pub struct ModeError(pub String);

impl std::str::FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        match text {
            "auto" => Ok(Self::Auto),
            "vxlan" => Ok(Self::Vxlan),
            "direct" => Ok(Self::Direct),
            other => Err(ModeError(other.to_owned())),
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Vxlan => "vxlan",
            Self::Direct => "direct",
        })
    }
}

/// What matters of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its addresses, as its status says (`InternalIP`).
    pub addresses: Vec<IpAddr>,
    /// The ranges of its Pods.
    pub ranges: Vec<Cidr>,
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Me {
    /// The instance id of six hex digits, which marks what is ours.
    pub instance: String,
    /// This node's name.
    pub node: String,
    /// The Pod ranges of the whole cluster: no node gets the traffic of anything else by claiming it.
    pub cluster: Vec<Cidr>,
    /// Which ways may be taken.
    pub mode: Mode,
    /// The number of the cluster's tunnels, 24 bits: clusters on one machine are told apart by it.
    pub vni: u32,
    /// Who computes the checksums of what goes through them.
    pub checksums: Checksums,
}

impl Plan {
    /// The addresses of the other ends of a tunnel, as far as this node has one of their family in it.
    #[must_use]
    pub fn ends(&self, tunnel: &Tunnel) -> Vec<IpAddr> {
        let has = |v6: bool| tunnel.addresses.iter().any(|own| own.addr.is_ipv6() == v6);
        let through = |way: &&Way| matches!(way.by, By::Tunnel { to, .. } if to.is_ipv6() == tunnel.vxlan.v6);
        let ends = self.ways.iter().filter(through).map(|way| vtep::address(way.range));
        ends.filter(|end| has(end.is_ipv6())).collect()
    }
}

impl Me {
    fn ranges<'a>(&self, node: &'a Peer) -> impl Iterator<Item = Cidr> + use<'a> {
        let cluster = self.cluster.clone();
        let inside = move |range: &Cidr| cluster.iter().any(|c| c.len <= range.len && c.contains(range.addr));
        node.ranges.iter().map(|range| range.network()).filter(inside)
    }
}

/// What is there on this node.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Its links.
    pub links: Vec<Link>,
    /// Their addresses.
    pub addresses: Vec<Address>,
    /// Its routes, of both families.
    pub routes: Vec<RouteEntry>,
}

/// How a range is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// By a neighbour on a link of ours (an index).
    Neighbour {
        /// Its address.
        gateway: IpAddr,
        /// The link.
        device: u32,
    },
    /// Through a tunnel.
    Tunnel {
        /// The address of the node at its end.
        to: IpAddr,
        /// The hardware address of that end.
        mac: Mac,
    },
}

/// The way to a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The range.
    pub range: Cidr,
    /// How.
    pub by: By,
}

/// What should be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// One way for each range that is reached.
    pub ways: Vec<Way>,
    /// The tunnels that these take, at most one for each family of the nodes' addresses.
    pub tunnels: Vec<Tunnel>,
    /// The largest packet that comes everywhere, in bytes, if it is not the usual: the MTU of new Pods.
    pub pod_mtu: Option<u32>,
}

/// What should be, for these nodes, on what is there.
#[must_use]
pub fn plan(me: &Me, nodes: &[Peer], seen: &Seen) -> Plan {
    let ground = Ground::new(me, nodes, seen);
    let mut ways: Vec<Way> = Vec::new();
    for node in nodes.iter().filter(|node| node.name != me.node) {
        for range in me.ranges(node) {
            // A range that two nodes claim is left to the first of them.
            let taken = ways.iter().any(|way| way.range == range) || ground.own.contains(&range);
            if let Some(by) = ground.way(me, node, range)
                && !taken
            {
                ways.push(Way { range, by });
            }
        }
    }
    let tunnels: Vec<Tunnel> =
        [false, true].into_iter().filter_map(|v6| ground.tunnel(me, &ways, v6)).collect();
    let pod_mtu = ground.pod_mtu(&ways, &tunnels);
    Plan { ways, tunnels, pod_mtu }
}

/// What is known of this node.
struct Ground<'a> {
    seen: &'a Seen,
    /// Our own Pod ranges.
    own: Vec<Cidr>,
    /// Our own node addresses.
    ips: Vec<IpAddr>,
    /// The addresses of the links that we have them on.
    near: Vec<Address>,
}

impl<'a> Ground<'a> {
    fn new(me: &Me, nodes: &[Peer], seen: &'a Seen) -> Self {
        let node = nodes.iter().find(|node| node.name == me.node);
        let own = node.map(|node| me.ranges(node).collect()).unwrap_or_default();
        let ips = node.map(|node| node.addresses.clone()).unwrap_or_default();
        let tunnels = vtep::names(&me.instance);
        let usable = |a: &&Address| {
            let name = seen.links.iter().find(|l| l.index == a.device).map(|l| l.name.as_str());
            !a.addr.addr.is_loopback() && !a.link_scope && !tunnels.iter().any(|tunnel| name == Some(tunnel))
        };
        let all: Vec<Address> = seen.addresses.iter().filter(usable).copied().collect();
        let mut near: Vec<Address> = all.iter().filter(|a| ips.contains(&a.addr.addr)).copied().collect();
        if near.is_empty() {
            // Our address is not known yet, or not on any link of this machine: all links count.
            near = all;
        }
        Self { seen, own, ips, near }
    }

    fn is_ours(&self, address: IpAddr) -> bool {
        self.seen.addresses.iter().any(|a| a.addr.addr == address)
    }

    fn way(&self, me: &Me, node: &Peer, range: Cidr) -> Option<By> {
        // An address that is also ours leads nowhere.
        let addresses = || node.addresses.iter().copied().filter(|address| !self.is_ours(*address));
        let same_family = |address: &IpAddr| address.is_ipv6() == range.addr.is_ipv6();
        let direct = addresses().filter(same_family).find_map(|gateway| {
            let near = self.near.iter().filter(|a| a.addr.contains(gateway));
            let device = near.max_by_key(|a| a.addr.len)?.device;
            Some(By::Neighbour { gateway, device })
        });
        let tunnel = || {
            let mac = vtep::mac(me.ranges(node).next()?);
            // Both ends have to choose the same family.
            let both = |v6: bool| {
                let ours = self.ips.iter().any(|ip| ip.is_ipv6() == v6);
                addresses().find(|address| address.is_ipv6() == v6 && ours)
            };
            self.own.first()?;
            Some(By::Tunnel { to: both(false).or_else(|| both(true))?, mac })
        };
        match me.mode {
            Mode::Auto => direct.or_else(tunnel),
            Mode::Vxlan => tunnel(),
            Mode::Direct => direct,
        }
    }

    fn tunnel(&self, me: &Me, ways: &[Way], v6: bool) -> Option<Tunnel> {
        let ends = ways.iter().filter_map(|way| match way.by {
            By::Tunnel { to, .. } if to.is_ipv6() == v6 => Some(to),
            _ => None,
        });
        let path = ends.map(|to| self.path_mtu(me, to)).min()?;
        let local = self.ips.iter().copied().find(|ip| ip.is_ipv6() == v6 && self.is_ours(*ip));
        Some(Tunnel::new(me, v6, local, &self.own, path))
    }

    /// How large a packet to that address may be on its first link, in bytes.
    fn path_mtu(&self, me: &Me, to: IpAddr) -> u32 {
        let tunnels = vtep::names(&me.instance);
        let link = |device: Option<u32>| {
            self.seen.links.iter().find(|l| Some(l.index) == device && !tunnels.contains(&l.name))
        };
        let leads = |r: &&RouteEntry| {
            r.table == MAIN_TABLE
                && r.kind == RouteKind::Unicast
                && r.dst.contains(to)
                && link(r.device).is_some()
        };
        let best = self
            .seen
            .routes
            .iter()
            .filter(leads)
            .max_by_key(|r| (r.dst.len, std::cmp::Reverse(r.priority.unwrap_or(0))));
        let Some(best) = best else { return USUAL_MTU };
        let of_link = link(best.device).map_or(USUAL_MTU, |l| l.mtu);
        best.mtu.map_or(of_link, |mtu| mtu.min(of_link))
    }

    fn pod_mtu(&self, ways: &[Way], tunnels: &[Tunnel]) -> Option<u32> {
        let own = self.near.iter().filter(|a| self.ips.contains(&a.addr.addr)).map(|a| a.device);
        let own = own.filter(|device| *device != LOOPBACK);
        let direct = ways.iter().filter_map(|way| match way.by {
            By::Neighbour { device, .. } => Some(device),
            By::Tunnel { .. } => None,
        });
        let mtu = |device| self.seen.links.iter().find(|l| l.index == device).map(|l| l.mtu);
        let smallest = own.chain(direct).filter_map(mtu).chain(tunnels.iter().map(|t| t.mtu)).min();
        smallest.filter(|mtu| *mtu != USUAL_MTU)
    }
}

#[cfg(test)]
mod tests;
