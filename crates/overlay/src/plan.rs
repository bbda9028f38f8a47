//! Which routes lead to the other nodes' Pods. A node that is on no link of ours gets none: its Pods stay unreachable, as
//! the proxy's guard says, instead of being looked for behind the default route.

use std::net::IpAddr;

use trine_kernel::netlink::{Address, Cidr, RouteEntry, RouteKind, TRINE_PROTOCOL};

/// Better routes have lower numbers; the low 24 bits are the instance, so that its routes can be found again.
const PRIORITY: u32 = 0x2000_0000;

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

/// The priority of an instance's routes.
#[must_use]
pub fn priority(instance: &str) -> u32 {
    PRIORITY | u32::from_str_radix(instance, 16).unwrap_or_default() & 0x00ff_ffff
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Me {
    /// The instance id of six hex digits, which marks the routes.
    pub instance: String,
    /// This node's name.
    pub node: String,
    /// The Pod range of the whole cluster: no node gets the traffic of anything else by claiming it.
    pub cluster: Cidr,
}

/// The routes that should be there; `links` are the addresses of our links.
#[must_use]
pub fn wanted(me: &Me, peers: &[Peer], links: &[Address]) -> Vec<RouteEntry> {
    let mut routes: Vec<RouteEntry> = Vec::new();
    let inside = |range: &&Cidr| me.cluster.len <= range.len && me.cluster.contains(range.addr);
    for peer in peers.iter().filter(|peer| peer.name != me.node) {
        for range in peer.ranges.iter().filter(inside) {
            let way = peer.addresses.iter().find_map(|address| Some((*address, link_of(*address, links)?)));
            // A range that two nodes claim is left to the first of them.
            let taken = routes.iter().any(|r| r.dst == range.network());
            if let Some((gateway, device)) = way
                && !taken
            {
                routes.push(RouteEntry {
                    gateway: Some(gateway),
                    device: Some(device),
                    priority: Some(priority(&me.instance)),
                    ..RouteEntry::to(range.network())
                });
            }
        }
    }
    routes
}

/// The link on which an address is a neighbour; none for our own addresses.
fn link_of(address: IpAddr, links: &[Address]) -> Option<u32> {
    if links.iter().any(|l| l.addr.addr == address) {
        return None;
    }
    let near = links.iter().filter(|l| !l.addr.addr.is_loopback() && l.addr.contains(address));
    near.max_by_key(|l| l.addr.len).map(|l| l.device)
}

/// Routes to set and to remove.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Missing, or other than they should be.
    pub set: Vec<RouteEntry>,
    /// Of this instance, but wanted no more.
    pub remove: Vec<RouteEntry>,
}

/// From what is there to what should be there (nothing, to clean up).
#[must_use]
pub fn changes(instance: &str, there: &[RouteEntry], wanted: &[RouteEntry]) -> Changes {
    let is_ours = |r: &&RouteEntry| {
        r.protocol == TRINE_PROTOCOL && r.priority == Some(priority(instance)) && r.kind == RouteKind::Unicast
    };
    let same = |a: &RouteEntry, b: &RouteEntry| (a.dst, a.gateway, a.device) == (b.dst, b.gateway, b.device);
    let ours: Vec<_> = there.iter().filter(is_ours).collect();
    let set = wanted.iter().filter(|route| !ours.iter().any(|other| same(other, route))).cloned().collect();
    // To the same destination the new route takes the old one's place.
    let remove = ours.into_iter().filter(|other| !wanted.iter().any(|route| route.dst == other.dst));
    Changes { set, remove: remove.cloned().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn peer(name: &str, address: &str, range: &str) -> Peer {
        Peer {
            name: name.to_owned(),
            addresses: vec![address.parse().unwrap()],
            ranges: if range.is_empty() { Vec::new() } else { vec![cidr(range)] },
        }
    }

    fn link(device: u32, addr: &str) -> Address {
        Address { device, addr: cidr(addr), link_scope: false, tentative: false, duplicate: false }
    }

    fn me(instance: &str) -> Me {
        Me { instance: instance.to_owned(), node: "n1".to_owned(), cluster: cidr("10.244.0.0/16") }
    }

    #[test]
    fn a_node_is_reached_over_the_link_that_it_is_on() {
        let links = [link(1, "127.0.0.1/8"), link(2, "192.0.2.1/24"), link(3, "10.222.0.1/16")];
        let peers = [
            peer("n1", "10.222.0.1", "10.244.0.0/24"),
            peer("n2", "10.222.0.2", "10.244.1.0/24"),
            peer("near", "192.0.2.9", "10.244.2.0/24"),
            peer("far", "198.51.100.9", "10.244.3.0/24"),
            peer("fresh", "10.222.0.5", ""),
            peer("twin", "10.222.0.6", "10.244.1.0/24"),
            peer("greedy", "10.222.0.7", "0.0.0.0/0"),
            peer("other-family", "10.222.0.8", "fd00::/64"),
        ];
        let routes = wanted(&me("00aabb"), &peers, &links);
        let seen: Vec<String> = routes.iter().map(ToString::to_string).collect();
        assert_eq!(seen, ["10.244.1.0/24 via 10.222.0.2 on link 3", "10.244.2.0/24 via 192.0.2.9 on link 2"]);
        assert!(routes.iter().all(|r| r.priority == Some(0x2000_aabb)));
    }

    #[test]
    fn an_address_that_is_also_ours_leads_nowhere() {
        let links = [link(2, "10.222.0.1/16")];
        assert_eq!(wanted(&me("00aabb"), &[peer("n2", "10.222.0.1", "10.244.1.0/24")], &links), []);
    }

    #[test]
    fn only_what_differs_is_touched_and_only_what_is_ours() {
        let links = [link(3, "10.222.0.1/16")];
        let of = |address: &str, range: &str| wanted(&me("00aabb"), &[peer("n", address, range)], &links);
        let (want, moved) = (of("10.222.0.2", "10.244.1.0/24"), of("10.222.0.9", "10.244.1.0/24"));
        let old = of("10.222.0.2", "10.244.7.0/24");
        let other = wanted(&me("00aacc"), &[peer("n", "10.222.0.2", "10.244.1.0/24")], &links);
        let guard = RouteEntry {
            kind: RouteKind::Unreachable,
            priority: Some(priority("00aabb")),
            ..RouteEntry::to(cidr("10.244.0.0/16"))
        };
        let rows = [
            ("nothing there", vec![guard.clone()], want.clone(), want.clone(), vec![]),
            ("all there", [want.clone(), other.clone()].concat(), want.clone(), vec![], vec![]),
            ("by another address", moved, want.clone(), want.clone(), vec![]),
            ("another node", old.clone(), want.clone(), want.clone(), old),
            ("clean up", [want.clone(), other, vec![guard]].concat(), vec![], vec![], want),
        ];
        for (name, there, wanted, set, remove) in rows {
            assert_eq!(changes("00aabb", &there, &wanted), Changes { set, remove }, "{name}");
        }
    }
}
