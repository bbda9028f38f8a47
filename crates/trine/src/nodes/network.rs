//! The bridges that the nodes of this machine are on, and each node's link to one of them. Everything is looked at first, so that a
//! restart changes nothing.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Context;
use std::os::fd::AsFd;
use trine_kernel::netlink::{Cidr, Cidrs, LinkChange, Mac, Request, Route, RouteEntry, Veth, VethPeer};
use trine_kernel::netns::Netns;

use super::plan::{MOST_LINKS, Member, bridge, bridges};
use crate::identity::Identity;

/// The link of a node in its machine.
const LINK: &str = "eth0";

/// Makes the bridges, if this machine has several nodes; gives the host's addresses on the first.
///
/// # Errors
/// What the kernel says.
pub fn prepare(identity: &Identity) -> anyhow::Result<Option<Cidrs>> {
    let bridges = bridges(identity);
    for (name, own) in &bridges {
        ensure_bridge(name, own).with_context(|| format!("cannot make the bridge {name}"))?;
    }
    Ok(bridges.into_iter().next().map(|(_, own)| own))
}

fn ensure_bridge(name: &str, own: &Cidrs) -> anyhow::Result<()> {
    let mut route = Route::open()?;
    let link = match route.find_link(name)? {
        Some(link) => link,
        None => {
            route.run(&[Request::add_bridge(name, Some(mac(own.primary().addr)), None)])?;
            route.link(name)?
        }
    };
    let mut changes = Vec::new();
    if !link.up {
        changes.push(LinkChange { up: Some(true), ..LinkChange::default() }.request(&link));
    }
    for own in own.iter() {
        changes.extend(only_address(&mut route, link.index, own)?);
    }
    Ok(route.run(&changes)?)
}

/// What makes an address the only one of its family on a link. The nodes may have been spread over other links before.
fn only_address(route: &mut Route, device: u32, own: Cidr) -> anyhow::Result<Vec<Request>> {
    let there = route.addresses(Some(device))?;
    let other = |addr: &Cidr| *addr != own && addr.addr.is_ipv4() == own.addr.is_ipv4();
    let others = there.iter().filter(|a| !a.link_scope).map(|a| a.addr).filter(other);
    let mut changes: Vec<Request> =
        others.map(|addr| Request::del_address(device, addr).or_absent()).collect();
    if there.iter().all(|a| a.addr != own) {
        changes.push(Request::add_address(device, own));
    }
    Ok(changes)
}

/// A hardware address of the host's own choice for an address, so that neighbours' caches stay true over restarts.
fn mac(address: IpAddr) -> Mac {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            Mac([0x02, 0x54, a, b, c, d])
        }
        IpAddr::V6(v6) => {
            let [.., a, b, c, d] = v6.octets();
            Mac([0x02, 0x54, a, b, c, d])
        }
    }
}

/// Joins a node's machine to its bridge, unless it is joined.
///
/// # Errors
/// What the kernel says.
pub fn join(member: &Member, netns: &Path) -> anyhow::Result<()> {
    let (mut host, netns) = (Route::open()?, Netns::open(netns)?);
    let mut inside = Route::open_in(&netns)?;
    let port = host.find_link(&member.link)?;
    let end = inside.find_link(LINK)?;
    if port.is_none() || end.is_none() {
        // One end without the other is of a machine that is gone.
        if port.is_some() {
            host.del_link(&member.link)?;
        }
        let peer = VethPeer {
            name: LINK,
            netns: Some(netns.as_fd()),
            mac: Some(mac(member.address.primary().addr)),
        };
        host.add_veth(&Veth { name: &member.link, mac: None, mtu: None, peer })?;
    }
    let bridge = host.link(member.bridge.as_str())?;
    let port = host.link(&member.link)?;
    if port.master != Some(bridge.index) {
        let change = LinkChange { master: Some(bridge.index), up: Some(true), ..LinkChange::default() };
        host.set_link(&port, &change)?;
    }
    // Where `br_netfilter` is on, what is translated back to the node that it came from never leaves the bridge, which would
    // drop it: a node's Pod through this host's address to a Pod of the same node.
    host.run(&[Request::hairpin(member.link.as_str(), true)])?;
    let (lo, end) = (inside.link("lo")?, inside.link(LINK)?);
    let up = LinkChange { up: Some(true), ..LinkChange::default() };
    let mut changes = vec![up.request(&lo), up.request(&end)];
    for own in member.address.iter() {
        changes.extend(only_address(&mut inside, end.index, own)?);
    }
    inside.run(&changes)?;
    for gateway in member.gateway.iter() {
        let out = RouteEntry {
            gateway: Some(gateway.addr),
            device: Some(end.index),
            ..RouteEntry::to(Cidr::default_route(gateway.is_v6()))
        };
        inside.replace_route(&out)?;
    }
    Ok(())
}

/// Removes the host's end of a node's link; the other end goes with it. Absent is success.
///
/// # Errors
/// What the kernel says.
pub fn leave(member: &Member) -> anyhow::Result<()> {
    Ok(Route::open()?.del_link(&member.link)?)
}

/// Removes the bridges. Absent is success.
///
/// # Errors
/// What the kernel says.
pub fn remove(identity: &Identity) -> anyhow::Result<()> {
    let all = (0..MOST_LINKS).map(|link| Request::del_link(&bridge(identity, link)).or_absent());
    Ok(Route::open()?.run(&all.collect::<Vec<_>>())?)
}
