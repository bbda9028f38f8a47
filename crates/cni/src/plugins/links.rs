//! Names, hardware addresses and marks of the links that we make.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sha2::{Digest, Sha256};
use trine_kernel::afterwards;
use trine_kernel::netlink::{
    Cidr, Link, LinkChange, LinkId, Mac, NetlinkError, Request as Change, Route, RouteEntry, Scope,
};
use trine_kernel::sysctl;

use super::inside;
use crate::spec::{AttachmentId, CniError, CniResult, Code, Request};

/// The alphabet of names: 32 letters, so that seven of them tell 35 bits apart.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Letters of a name that come from the attachment.
const SUFFIX: usize = 7;
/// How long a namespace has to take its veth along before the veth is removed by hand.
const REMOVAL_DELAY: Duration = Duration::from_millis(500);
/// In a route that goes: whichever it has (`RT_SCOPE_NOWHERE`).
const ANY_SCOPE: Scope = Scope::Other(255);
/// The longest name of a link.
const NAME_MAX: usize = 15;
/// Names of links that belong to nobody any more begin with it.
const REMOVED: &str = "trx";

fn digest(network: &str, id: &AttachmentId) -> [u8; 32] {
    Sha256::digest(format!("{network}/{}/{}", id.container_id, id.ifname)).into()
}

/// The host's link of an attachment: always the same, so that DEL finds it without a record.
pub fn host_name(prefix: &str, network: &str, id: &AttachmentId) -> Result<String, CniError> {
    if prefix.len() + SUFFIX > NAME_MAX {
        let msg = format!("link prefix {prefix:?} is longer than {} characters", NAME_MAX - SUFFIX);
        return Err(CniError::new(Code::InvalidConfig, msg));
    }
    let letters = digest(network, id);
    let letters = letters.iter().take(SUFFIX).map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
    Ok(prefix.chars().chain(letters).collect())
}

/// The hardware address of an attachment's own link: locally administered, always the same.
pub fn pod_mac(network: &str, id: &AttachmentId) -> Mac {
    let digest = digest(network, id);
    Mac([0x02, digest[27], digest[28], digest[29], digest[30], digest[31]])
}

/// The mark on a host link: GC knows by it whose the link is.
fn alias(network: &str, id: &AttachmentId) -> String {
    format!("trine-cni {network} {} {}", id.container_id, id.ifname)
}

/// Gives a link that was made in the container under the name `made` its own. That name may be one of the host's, which older
/// kernels take for a conflict when the link is made.
pub fn give_name(pod: &mut Route, made: &str, ifname: &str) -> Result<Link, CniError> {
    let index = pod.link(made)?.index;
    let renamed = pod.set_link(index, &LinkChange { name: Some(ifname), ..LinkChange::default() });
    renamed.and_then(|()| pod.link(index)).map_err(|e| {
        let _ = pod.del_link(index);
        if e.already_exists() {
            let msg = format!("the container has a link {ifname} already");
            return CniError::new(Code::InvalidEnvironment, msg).because(e);
        }
        e.into()
    })
}

/// The request that marks a link.
pub fn mark(link: impl Into<LinkId>, network: &str, id: &AttachmentId) -> Change {
    LinkChange { alias: Some(&alias(network, id)), ..LinkChange::default() }.request(link)
}

/// Makes a link of the host's, named `name` by [`host_name`], and marks it in the same call: who is killed leaves none that GC does
/// not know. One of that name that is there is the attachment's own.
pub fn make_marked(
    host: &mut Route,
    make: Change,
    name: &str,
    network: &str,
    id: &AttachmentId,
) -> Result<(), NetlinkError> {
    host.run(&[make, mark(name, network, id).or_absent()])
}

/// The request that marks the link `index` as one that belongs to nobody any more.
pub fn mark_removed(index: u32, network: &str) -> Change {
    LinkChange { alias: Some(&format!("trine-cni {network}  ")), ..LinkChange::default() }.request(index)
}

/// The request that frees the name of the link `index`.
pub fn rename_removed(index: u32) -> Change {
    LinkChange { name: Some(&format!("{REMOVED}{index}")), ..LinkChange::default() }
        .request(index)
        .or_absent()
}

/// Removes the link `index` after a while, on a thread of its own, unless its namespace takes it along before; or, in a program, when
/// it has answered.
///
/// # Errors
/// The thread could not be started.
pub fn remove_later(mut host: Route, index: u32) -> std::io::Result<()> {
    let when_answered = move || {
        let _ = Route::open().and_then(|mut host| host.del_link(index));
    };
    if afterwards::put_off(when_answered) {
        return Ok(());
    }
    let removal = move || {
        std::thread::sleep(REMOVAL_DELAY);
        if let Err(error) = host.del_link(index) {
            tracing::warn!(%error, "a removed Pod's link stays until GC");
        }
    };
    std::thread::Builder::new().name("veth-removal".to_owned()).stack_size(128 << 10).spawn(removal).map(drop)
}

/// Takes an attachment's veth away by its host's end, or, if somebody else has named that, by the container's. Absent is success.
///
/// # Errors
/// What is left.
pub fn remove_host_link(request: &Request, prefix: &str) -> Result<(), CniError> {
    let name = host_name(prefix, &request.network, &request.attachment())?;
    let mut host = Route::open()?;
    let Some(link) = host.find_link(&name)? else { return remove_by_inner_end(request) };
    if (request.in_daemon || afterwards::is_program()) && set_aside(request, &mut host, &link).is_ok() {
        let index = link.index;
        if remove_later(host, index).is_ok() {
            return Ok(());
        }
        // `host` may be gone with the thread that could not be started.
        return Ok(Route::open()?.del_link(index)?);
    }
    Ok(host.del_link(&link)?)
}

fn remove_by_inner_end(request: &Request) -> Result<(), CniError> {
    let Some((_, mut pod)) = inside::open_if_there(request)? else { return Ok(()) };
    match pod.find_link(&request.env.ifname)? {
        Some(link) if link.kind.as_deref() == Some("veth") => Ok(pod.del_link(&link)?),
        _ => Ok(()),
    }
}

/// Has a veth be nobody's: no addresses, other names.
fn set_aside(request: &Request, host: &mut Route, link: &Link) -> Result<(), CniError> {
    if let (Ok(Some((_, mut pod))), Some(peer)) = (inside::open_if_there(request), link.peer) {
        let addrs = pod.addresses(Some(peer))?;
        let mut changes: Vec<_> =
            addrs.iter().map(|a| Change::del_address(peer, a.addr).or_absent()).collect();
        changes.push(rename_removed(peer));
        pod.run(&changes)?;
    }
    let addrs = host.addresses(Some(link.index))?;
    let mut changes: Vec<_> =
        addrs.iter().map(|a| Change::del_address(link.index, a.addr).or_absent()).collect();
    // `ptp` has routes by it.
    let ips = request.prev_result.iter().flat_map(CniResult::container_ips);
    changes.extend(ips.map(|(addr, _)| {
        let route =
            RouteEntry { device: Some(link.index), scope: ANY_SCOPE, ..RouteEntry::to(Cidr::host(addr)) };
        route.del().or_absent()
    }));
    changes.push(mark_removed(link.index, &request.network));
    changes.push(rename_removed(link.index));
    Ok(host.run(&changes)?)
}

/// Removes every marked link of `network` that belongs to none of `valid`. Links of Pods begin with `prefix`: those of another
/// Trine on this machine, whose network has the same name, are not ours to judge.
pub fn remove_unmarked(request: &Request, prefix: &str) -> Result<(), CniError> {
    let valid = request.valid_attachments()?;
    let kept: Vec<String> = valid.iter().map(|id| alias(&request.network, id)).collect();
    let mut host = Route::open()?;
    let stale: Vec<_> = host
        .links()?
        .into_iter()
        .filter(|link| {
            let alias = link.alias.as_deref().unwrap_or_default();
            is_stale(&link.name, alias, prefix, &request.network, &kept)
        })
        .inspect(|link| tracing::info!(link = link.name, alias = link.alias, "stale link is removed"))
        .map(|link| Change::del_link(&link).or_absent())
        .collect();
    Ok(host.run(&stale)?)
}

fn is_stale(name: &str, alias: &str, prefix: &str, network: &str, kept: &[String]) -> bool {
    let ours = name.starts_with(prefix) || name.starts_with(REMOVED);
    ours && alias.starts_with(&format!("trine-cni {network} ")) && !kept.iter().any(|k| k == alias)
}

/// The words for a veth that could not be made.
pub fn veth_error(error: NetlinkError, host: &str, ifname: &str) -> CniError {
    if error.already_exists() {
        let msg = format!("the container has a link {ifname} already, or the host has {host}");
        return CniError::new(Code::InvalidEnvironment, msg).because(error);
    }
    error.into()
}

/// Lets the host pass on packets of the families of `addrs`.
pub fn forward(addrs: &[Cidr]) -> Result<(), CniError> {
    for v6 in [false, true] {
        if addrs.iter().any(|a| a.addr.is_ipv6() == v6) {
            sysctl::forward(v6)?;
        }
    }
    Ok(())
}

/// Checks that the link `ifname` has the addresses of `result` that are its own.
pub fn check_addresses(route: &mut Route, ifname: &str, result: &CniResult) -> Result<(), CniError> {
    let differs = |what: String| CniError::new(Code::Internal, what);
    let link = route.find_link(ifname)?.ok_or_else(|| differs(format!("link {ifname} is gone")))?;
    if !link.up {
        return Err(differs(format!("link {ifname} is down")));
    }
    let there = route.addresses(Some(link.index))?;
    for (addr, len) in result.container_ips() {
        let wanted = Cidr { addr, len };
        if !there.iter().any(|a| a.addr == wanted) {
            return Err(differs(format!("address {wanted} is missing on {ifname}")));
        }
    }
    Ok(())
}

/// The gateway that every routed Pod has: an address that exists nowhere, answered for by a permanent neighbour entry.
pub const fn link_local_gateway(v6: bool) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1))
    } else {
        IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_another_trine_are_not_judged() {
        let id = |c: &str| AttachmentId { container_id: c.to_owned(), ifname: "eth0".to_owned() };
        let (lives, gone) = (alias("trine", &id("lives")), alias("trine", &id("gone")));
        let kept = [lives.clone()];
        let rows = [
            ("tr0a1b2cx", lives.as_str(), false),
            ("tr0a1b2cy", &gone, true),
            ("trffffffy", &gone, false),
            ("trx7", "trine-cni trine  ", true),
            ("tr0a1b2cz", "", false),
            ("tr0a1b2cz", "trine-cni other gone eth0", false),
        ];
        for (name, alias, stale) in rows {
            assert_eq!(is_stale(name, alias, "tr0a1b2c", "trine", &kept), stale, "{name} {alias}");
        }
    }

    #[test]
    fn names_are_short_steady_and_differ() {
        let id = |c: &str| AttachmentId { container_id: c.to_owned(), ifname: "eth0".to_owned() };
        let name = host_name("tr0a1b2c", "n", &id("c")).unwrap();
        assert_eq!(name.len(), 15);
        assert_eq!(name, host_name("tr0a1b2c", "n", &id("c")).unwrap());
        assert_ne!(name, host_name("tr0a1b2c", "m", &id("c")).unwrap());
        assert_ne!(name, host_name("tr0a1b2c", "n", &id("d")).unwrap());
        assert!(host_name("tr0a1b2cd", "n", &id("c")).is_err());
        assert_eq!(pod_mac("n", &id("c")).0[0], 2);
    }
}
