//! The routes which keep packets for Pods and virtual addresses off the default route. Pure.
//!
//! - The Pod range is unreachable, except where a better route says otherwise.
//! - The Service range leads to `lo`: the host's own `connect()` needs a route before the address is translated. What
//!   was not translated is rejected by the table's filter chains. In IPv6 a route to `lo` that is not the host's own would
//!   refuse everything, so there the range is the host's own.

use std::net::IpAddr;

use trine_kernel::netlink::{RouteEntry, RouteKind, Scope, TRINE_PROTOCOL};

use crate::config::Ranges;

/// The index of `lo`, which is the first link of every network namespace.
const LOOPBACK: u32 = 1;
/// Better routes have lower numbers; the low 24 bits are the instance, so that its routes can be found again.
const PRIORITY: u32 = 0x4000_0000;

/// The priority of an instance's routes.
#[must_use]
pub fn priority(instance: &str) -> u32 {
    let id = u32::from_str_radix(instance, 16).unwrap_or_else(|_| {
        let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        instance.bytes().fold(0x811c_9dc5, hash)
    });
    PRIORITY | (id & 0x00ff_ffff)
}

/// The routes of one family that should be there.
#[must_use]
pub fn wanted(instance: &str, ranges: &Ranges, node_ips: &[IpAddr]) -> [RouteEntry; 2] {
    let priority = Some(priority(instance));
    let pods = RouteEntry { kind: RouteKind::Unreachable, priority, ..RouteEntry::to(ranges.pods.network()) };
    let (kind, scope) =
        if ranges.v6() { (RouteKind::Local, Scope::Universe) } else { (RouteKind::Unicast, Scope::Link) };
    let services = RouteEntry {
        device: Some(LOOPBACK),
        source: node_ips.iter().copied().find(|ip| ip.is_ipv6() == ranges.v6()),
        kind,
        scope,
        priority,
        ..RouteEntry::to(ranges.services.network())
    };
    [pods, services]
}

/// Routes to set and to remove.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RouteChanges {
    /// Missing, or other than they should be.
    pub set: Vec<RouteEntry>,
    /// Of this instance, but wanted no more.
    pub remove: Vec<RouteEntry>,
}

/// True if a route is this instance's guard.
fn is_ours(route: &RouteEntry, instance: &str) -> bool {
    route.protocol == TRINE_PROTOCOL && route.priority == Some(priority(instance))
}

fn same(a: &RouteEntry, b: &RouteEntry) -> bool {
    let device = |r: &RouteEntry| if r.kind == RouteKind::Unicast { r.device } else { None };
    a.dst == b.dst && a.kind == b.kind && a.source == b.source && device(a) == device(b)
}

/// From what is there to what should be there (nothing, to clean up).
#[must_use]
pub fn changes(instance: &str, there: &[RouteEntry], wanted: &[RouteEntry]) -> RouteChanges {
    let ours: Vec<_> = there.iter().filter(|route| is_ours(route, instance)).collect();
    let set = wanted.iter().filter(|route| !ours.iter().any(|other| same(route, other))).cloned().collect();
    let remove = ours.into_iter().filter(|route| !wanted.iter().any(|other| same(route, other))).cloned();
    RouteChanges { set, remove: remove.collect() }
}

#[cfg(test)]
mod tests {
    use trine_kernel::netlink::Cidr;

    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn only_what_differs_is_touched_and_only_what_is_ours() {
        let wanted = |instance: &str, pods: &str, services: &str, source: &str| {
            let ranges = Ranges::pairs(&cidr(pods).into(), &cidr(services).into(), None);
            wanted(instance, &ranges[0], &[source.parse().unwrap()]).to_vec()
        };
        let want = wanted("00aabb", "10.244.0.0/16", "10.96.0.0/16", "192.0.2.1");
        let other = wanted("00aacc", "10.245.0.0/16", "10.97.0.0/16", "192.0.2.1");
        let moved = wanted("00aabb", "10.244.0.0/16", "10.96.0.0/16", "192.0.2.9");
        let default = RouteEntry { protocol: 3, ..RouteEntry::to(cidr("0.0.0.0/0")) };
        let rows = [
            ("nothing there", vec![default.clone()], want.clone(), want.clone(), vec![]),
            ("all there", [want.clone(), other.clone()].concat(), want.clone(), vec![], vec![]),
            ("another source", moved.clone(), want.clone(), vec![want[1].clone()], vec![moved[1].clone()]),
            ("clean up", [want.clone(), other, vec![default]].concat(), vec![], vec![], want),
        ];
        for (name, there, wanted, set, remove) in rows {
            assert_eq!(changes("00aabb", &there, &wanted), RouteChanges { set, remove }, "{name}");
        }
    }
}
