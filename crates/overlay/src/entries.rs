//! What the ways take in the kernel, and what changes: routes, and in the tunnels neighbours and forwarding entries. Pure.

use std::net::IpAddr;

use trine_kernel::netlink::{Cidr, Forward, Link, Neighbour, RouteEntry, RouteKind, TRINE_PROTOCOL};

use crate::plan::{By, Plan};
use crate::vtep;

/// Better routes have lower numbers; the low 24 bits are the instance, so that its routes can be found again.
const PRIORITY: u32 = 0x2000_0000;

/// The priority of an instance's routes.
#[must_use]
pub fn priority(instance: &str) -> u32 {
    PRIORITY | u32::from_str_radix(instance, 16).unwrap_or_default() & 0x00ff_ffff
}

/// True if a route is this instance's way to another node.
#[must_use]
pub fn is_ours(route: &RouteEntry, instance: &str) -> bool {
    route.protocol == TRINE_PROTOCOL
        && route.priority == Some(priority(instance))
        && route.kind == RouteKind::Unicast
}

/// Entries of the kernel's tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// Ways of packets.
    pub routes: Vec<RouteEntry>,
    /// Hardware addresses of other ends.
    pub neighbours: Vec<Neighbour>,
    /// Nodes of hardware addresses.
    pub forwards: Vec<Forward>,
}

/// The entries that should be there; `links` are those with the tunnels made.
#[must_use]
pub fn wanted(instance: &str, plan: &Plan, links: &[Link]) -> Entries {
    let mut entries = Entries::default();
    let index = |v6| links.iter().find(|link| link.name == vtep::name(instance, v6)).map(|link| link.index);
    for way in &plan.ways {
        let route = RouteEntry { priority: Some(priority(instance)), ..RouteEntry::to(way.range) };
        match way.by {
            By::Neighbour { gateway, device } => {
                entries.routes.push(RouteEntry { gateway: Some(gateway), device: Some(device), ..route });
            }
            By::Tunnel { to, mac } => {
                let Some(device) = index(to.is_ipv6()) else { continue };
                let addr = vtep::address(way.range);
                let source = source(plan, to.is_ipv6(), way.range);
                entries.neighbours.push(Neighbour { device, addr, mac: Some(mac), permanent: true });
                let forward = Forward { device, mac, to, permanent: true };
                if !entries.forwards.contains(&forward) {
                    entries.forwards.push(forward);
                }
                let gateway = Some(addr);
                entries.routes.push(RouteEntry {
                    gateway,
                    device: Some(device),
                    onlink: true,
                    source,
                    ..route
                });
            }
        }
    }
    entries
}

/// This node speaks to Pods behind a tunnel as one of its own range: their answers come back through the tunnel.
fn source(plan: &Plan, outer_v6: bool, range: Cidr) -> Option<IpAddr> {
    let tunnel = plan.tunnels.iter().find(|tunnel| tunnel.vxlan.v6 == outer_v6)?;
    tunnel.addresses.iter().map(|a| a.addr).find(|addr| addr.is_ipv6() == range.addr.is_ipv6())
}

/// What to set and what to remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Missing, or other than they should be.
    pub set: Entries,
    /// Ours, but wanted no more.
    pub remove: Entries,
}

impl Changes {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        let of = |e: &Entries| e.routes.len() + e.neighbours.len() + e.forwards.len();
        of(&self.set) + of(&self.remove)
    }
}

/// From what is there to what should be there (nothing, to clean up). Of neighbours and forwarding entries only those of our tunnels
/// are given here.
#[must_use]
pub fn changes(instance: &str, there: &Entries, wanted: &Entries) -> Changes {
    let same = |a: &RouteEntry, b: &RouteEntry| {
        (a.dst, a.gateway, a.device, a.source) == (b.dst, b.gateway, b.device, b.source)
    };
    let ours: Vec<_> = there.routes.iter().filter(|route| is_ours(route, instance)).collect();
    let missing = |route: &&RouteEntry| !ours.iter().any(|other| same(other, route));
    // To the same destination the new route takes the old one's place.
    let stale = |route: &&&RouteEntry| !wanted.routes.iter().any(|other| other.dst == route.dst);
    let set = Entries {
        routes: wanted.routes.iter().filter(missing).cloned().collect(),
        neighbours: wanted.neighbours.iter().filter(|n| !there.neighbours.contains(n)).copied().collect(),
        forwards: wanted.forwards.iter().filter(|f| !there.forwards.contains(f)).copied().collect(),
    };
    // What the kernel keeps by itself (multicast) is not permanent.
    let known = |n: &Neighbour| wanted.neighbours.iter().any(|w| (w.device, w.addr) == (n.device, n.addr));
    let aimed = |f: &Forward| wanted.forwards.iter().any(|w| (w.device, w.mac) == (f.device, f.mac));
    let remove = Entries {
        routes: ours.iter().filter(stale).map(|route| (*route).clone()).collect(),
        neighbours: there.neighbours.iter().filter(|n| n.permanent && !known(n)).copied().collect(),
        forwards: there.forwards.iter().filter(|f| !aimed(f)).copied().collect(),
    };
    Changes { set, remove }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Mode, Peer, Seen, plan};
    use crate::testing::{address, cidr, link, me, node};

    const ID: &str = "00aabb";

    fn entries_of(nodes: &[Peer]) -> Entries {
        let seen = Seen {
            links: vec![link(2, "eth0", 1500)],
            addresses: vec![address(2, "192.0.2.1/24")],
            routes: Vec::new(),
        };
        let mut all = vec![node("me", &["192.0.2.1"], &["10.244.0.0/24"])];
        all.extend(nodes.iter().cloned());
        let plan = plan(&me(Mode::Auto), &all, &seen);
        wanted(ID, &plan, &[seen.links, vec![link(7, "tr00aabbvx4", 1450)]].concat())
    }

    fn near(range: &str) -> Entries {
        entries_of(&[node("near", &["192.0.2.2"], &[range])])
    }

    fn far(to: &str, range: &str) -> Entries {
        entries_of(&[node("far", &[to], &[range])])
    }

    #[test]
    fn a_way_through_a_tunnel_takes_a_neighbour_a_forwarding_entry_and_a_route() {
        let entries = far("198.51.100.9", "10.244.3.0/24");
        let addr = "10.244.3.0".parse().unwrap();
        let mac = "02:54:0a:f4:03:00".parse().unwrap();
        assert_eq!(entries.neighbours, [Neighbour { device: 7, addr, mac: Some(mac), permanent: true }]);
        let to = "198.51.100.9".parse().unwrap();
        assert_eq!(entries.forwards, [Forward { device: 7, mac, to, permanent: true }]);
        let route = RouteEntry {
            gateway: Some(addr),
            device: Some(7),
            source: Some("10.244.0.0".parse().unwrap()),
            onlink: true,
            priority: Some(0x2000_aabb),
            ..RouteEntry::to(cidr("10.244.3.0/24"))
        };
        assert_eq!(entries.routes, [route]);
        assert_eq!(near("10.244.3.0/24").routes[0].to_string(), "10.244.3.0/24 via 192.0.2.2 on link 2");
    }

    #[test]
    fn only_what_differs_is_touched_and_only_what_is_ours() {
        let tunnel = far("198.51.100.9", "10.244.3.0/24");
        let moved = far("198.51.100.8", "10.244.3.0/24");
        let ranged = far("198.51.100.9", "10.244.4.0/24");
        let direct = near("10.244.3.0/24");
        let guard = RouteEntry {
            kind: RouteKind::Unreachable,
            priority: Some(priority(ID)),
            ..RouteEntry::to(cidr("10.244.0.0/16"))
        };
        let foreign = RouteEntry { priority: Some(priority("00ccdd")), ..direct.routes[0].clone() };
        let multicast = Neighbour {
            device: 7,
            addr: "ff02::16".parse().unwrap(),
            mac: Some("33:33:00:00:00:16".parse().unwrap()),
            permanent: false,
        };
        let others =
            Entries { routes: vec![guard, foreign], neighbours: vec![multicast], ..Entries::default() };
        let with_others = |entries: &Entries| Entries {
            routes: [entries.routes.clone(), others.routes.clone()].concat(),
            neighbours: [entries.neighbours.clone(), others.neighbours.clone()].concat(),
            forwards: entries.forwards.clone(),
        };
        let none = Entries::default;
        let ends = |entries: &Entries| Entries { routes: Vec::new(), ..entries.clone() };
        let rows = [
            ("nothing there", none(), tunnel.clone(), tunnel.clone(), none()),
            ("all there", tunnel.clone(), tunnel.clone(), none(), none()),
            ("no tunnel any more", tunnel.clone(), direct.clone(), direct.clone(), ends(&tunnel)),
            ("no neighbour any more", direct.clone(), tunnel.clone(), tunnel.clone(), none()),
            (
                "another address",
                moved,
                tunnel.clone(),
                Entries { forwards: tunnel.forwards.clone(), ..none() },
                none(),
            ),
            ("another range", ranged.clone(), tunnel.clone(), tunnel.clone(), ranged),
            ("gone", tunnel.clone(), none(), none(), tunnel.clone()),
            (
                "an entry taken",
                Entries { forwards: Vec::new(), ..tunnel.clone() },
                tunnel.clone(),
                Entries { forwards: tunnel.forwards.clone(), ..none() },
                none(),
            ),
        ];
        for (name, there, wanted, set, remove) in rows {
            assert_eq!(changes(ID, &with_others(&there), &wanted), Changes { set, remove }, "{name}");
        }
    }
}
