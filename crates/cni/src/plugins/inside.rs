//! The container's own link: what it is given, what is said of it, and whether it still has it. Plugins whose link lies in the
//! container alone (`macvlan`, `tap`, `vlan`, `host-device`) differ only in how they make it.

use std::path::Path;

use serde::Deserialize;
use trine_kernel::netlink::{Link, LinkChange, Mac, Request as Change, Route, RouteEntry, Scope};
use trine_kernel::netns::Netns;
use trine_kernel::sysctl;
use trine_kernel::testing::failpoint;

use super::delegate::Ipam;
use super::links;
use crate::invoke::Prefer;
use crate::spec::{CniError, CniResult, Code, Command, Interface, Request, RouteConfig};

/// The hardware address that somebody wants: `runtimeConfig.mac`, `args.cni.mac`, `MAC` of the arguments, `mac`, in this order.
pub fn wanted_mac(request: &Request) -> Result<Option<Mac>, CniError> {
    let at = |path: &str| request.config.pointer(path).and_then(|mac| mac.as_str()).map(str::to_owned);
    let wish = at("/runtimeConfig/mac").or_else(|| at("/args/cni/mac"));
    let wish = wish.or_else(|| request.arg("MAC")).or_else(|| at("/mac"));
    wish.filter(|mac| !mac.is_empty())
        .map(|mac| mac.parse())
        .transpose()
        .map_err(|e| CniError::new(Code::InvalidConfig, "the requested hardware address is none").because(e))
}

/// What such plugins have in common in their configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Below {
    /// The link below.
    pub master: String,
    /// Its MTU, in bytes; that of the link below if 0.
    pub mtu: i64,
    /// The link below is in the container, too.
    pub link_in_container: bool,
}

impl Below {
    /// The link below, and the socket of its namespace, and the MTU if one is wanted.
    ///
    /// # Errors
    /// If there is no such link, or it passes less.
    pub fn find(&self, request: &Request) -> Result<(Route, Link, Option<u32>), CniError> {
        let mut route = if self.link_in_container { open(request)?.1 } else { Route::open()? };
        let link = if self.master.is_empty() {
            default_link(&mut route)?
        } else {
            route.find_link(&self.master)?.ok_or_else(|| {
                CniError::new(
                    Code::InvalidConfig,
                    format!("there is no link {:?} to be above of", self.master),
                )
            })?
        };
        let mtu = u32::try_from(self.mtu).ok().filter(|mtu| *mtu <= link.mtu).ok_or_else(|| {
            let msg = format!("invalid MTU {}, must be [0, {} ({})]", self.mtu, link.mtu, link.name);
            CniError::new(Code::InvalidConfig, msg)
        })?;
        Ok((route, link, Some(mtu).filter(|mtu| *mtu > 0)))
    }
}

/// The link of the default route.
fn default_link(route: &mut Route) -> Result<Link, CniError> {
    for v6 in [false, true] {
        let device = route.routes(v6)?.iter().find(|r| r.dst.len == 0).and_then(|r| r.device);
        if let Some(device) = device {
            return Ok(route.link(device)?);
        }
    }
    Err(CniError::new(Code::InvalidConfig, "no master is given, and there is no default route"))
}

/// The container's namespace, and a socket in it.
pub fn open(request: &Request) -> Result<(Netns, Route), CniError> {
    let netns = Netns::open(Path::new(&request.env.netns))?;
    let route = Route::open_in(&netns)?;
    Ok((netns, route))
}

/// The same, or nothing if it is gone: DEL then has nothing to do in it.
pub fn open_if_there(request: &Request) -> Result<Option<(Netns, Route)>, CniError> {
    if request.env.netns.is_empty() {
        return Ok(None);
    }
    match Netns::open(Path::new(&request.env.netns)) {
        Ok(netns) => {
            let route = Route::open_in(&netns)?;
            Ok(Some((netns, route)))
        }
        Err(e) if e.is_absent() => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The requests that set the link `device` (an index) up with the addresses and routes of `given`.
pub fn configure(device: u32, given: &CniResult, routes: &[RouteConfig]) -> Vec<Change> {
    let mut changes = vec![LinkChange { up: Some(true), ..LinkChange::default() }.request(device)];
    changes.extend(given.ips.iter().map(|ip| Change::add_address(device, ip.address)));
    // As the reference: another link's route to the same stays, behind this one.
    changes.extend(routes.iter().map(|route| inner_route(route, given, device).prepend()));
    changes
}

/// A route inside the container, by its own gateway or that of the first address of its family.
pub fn inner_route(route: &RouteConfig, given: &CniResult, device: u32) -> RouteEntry {
    let v6 = route.dst.addr.is_ipv6();
    let first = given.ips.iter().find(|ip| ip.address.addr.is_ipv6() == v6).and_then(|ip| ip.gateway);
    let entry = RouteEntry::to(route.dst);
    RouteEntry {
        gateway: route.gw.or(first),
        device: Some(device),
        table: route.table.unwrap_or(entry.table),
        scope: route.scope.map_or(entry.scope, Scope::from_number),
        priority: route.priority,
        mtu: route.mtu,
        advmss: route.advmss,
        ..entry
    }
}

/// What an answer says of the container's link.
pub fn interface(request: &Request, mac: Option<Mac>, mtu: u32) -> Interface {
    Interface {
        name: request.env.ifname.clone(),
        mac: mac.map(|mac| mac.to_string()),
        mtu: Some(mtu),
        sandbox: Some(request.env.netns.clone()),
        ..Interface::default()
    }
}

/// What an answer says of a link of the host's.
pub fn host_interface(link: &Link) -> Interface {
    Interface {
        name: link.name.clone(),
        mac: link.mac.map(|mac| mac.to_string()),
        mtu: Some(link.mtu),
        ..Interface::default()
    }
}

/// ADD of a plugin whose link lies in the container: `make` makes it there under its name, `unmake` takes it away again if the
/// rest fails.
pub fn attach(
    request: &Request,
    make: impl FnOnce(&Netns, &mut Route) -> Result<Link, CniError>,
    unmake: impl FnOnce(&Netns, &mut Route, &Link) -> Result<(), CniError>,
) -> Result<CniResult, CniError> {
    let (netns, mut pod) = open(request)?;
    let ipam = Ipam::of(request, Prefer::Program);
    let link = make(&netns, &mut pod)?;
    failpoint("link: made");
    let given = ipam.as_ref().map_or_else(|| Ok(CniResult::default()), Ipam::add);
    failpoint("link: address");
    let connected = given.and_then(|given| {
        fill(request, &netns, &mut pod, &link, given).inspect_err(|_| {
            let _ = ipam.as_ref().map(Ipam::del);
        })
    });
    connected.inspect_err(|_| {
        let _ = unmake(&netns, &mut pod, &link);
    })
}

fn fill(
    request: &Request,
    netns: &Netns,
    pod: &mut Route,
    link: &Link,
    mut given: CniResult,
) -> Result<CniResult, CniError> {
    announce(request, netns, &given)?;
    pod.run(&configure(link.index, &given, &given.routes))?;
    failpoint("link: configured");
    for ip in &mut given.ips {
        ip.interface = Some(0);
    }
    given.interfaces = vec![interface(request, link.mac, link.mtu)];
    given.dns = request.dns().unwrap_or(given.dns);
    Ok(given)
}

/// Has neighbours told of the addresses that come, so that they forget who had them before.
pub fn announce(request: &Request, netns: &Netns, given: &CniResult) -> Result<(), CniError> {
    if given.ips.is_empty() {
        return Ok(());
    }
    let ifname = &request.env.ifname;
    netns.run(|| {
        // As with the reference: where it cannot be set, it stays.
        let _ = sysctl::write(&format!("net/ipv4/conf/{ifname}/arp_notify"), "1");
        let _ = sysctl::write(&format!("net/ipv6/conf/{ifname}/ndisc_notify"), "1");
    })?;
    Ok(())
}

/// DEL of such a plugin. A link of the name that is of another kind is not ours.
pub fn detach(request: &Request, kind: &str) -> Result<(), CniError> {
    let link = remove(request, kind);
    failpoint("link: removed");
    let ipam = Ipam::of(request, Prefer::Program).map_or(Ok(()), |ipam| ipam.del());
    CniError::all(link.err().into_iter().chain(ipam.err()).collect())
}

fn remove(request: &Request, kind: &str) -> Result<(), CniError> {
    let Some((_, mut pod)) = open_if_there(request)? else { return Ok(()) };
    match pod.find_link(&request.env.ifname)? {
        Some(link) if link.kind.as_deref() == Some(kind) => Ok(pod.del_link(&link)?),
        _ => Ok(()),
    }
}

/// CHECK of such a plugin: the link, its addresses and routes are as the answer says. The link itself is the answer.
pub fn check(request: &Request, kind: Option<&str>) -> Result<Link, CniError> {
    let (_, mut pod) = open(request)?;
    let result = request.need_prev_result()?;
    let link = check_link(request, &mut pod, result, kind)?;
    if let Some(ipam) = Ipam::of(request, Prefer::Program) {
        ipam.ask(Command::Check)?;
    }
    Ok(link)
}

/// The container's link, if it is as `result` says.
pub fn check_link(
    request: &Request,
    pod: &mut Route,
    result: &CniResult,
    kind: Option<&str>,
) -> Result<Link, CniError> {
    let ifname = &request.env.ifname;
    let differs = |what: String| CniError::new(Code::Internal, what);
    let said = |i: &&Interface| i.name == *ifname && i.sandbox.as_deref() == Some(&*request.env.netns);
    let said = result
        .interfaces
        .iter()
        .find(said)
        .ok_or_else(|| differs(format!("the result knows no link {ifname} in {}", request.env.netns)))?;
    links::check_addresses(pod, ifname, result)?;
    let link = pod.link(ifname)?;
    if kind.is_some_and(|kind| link.kind.as_deref() != Some(kind)) {
        return Err(differs(format!("{ifname} is of kind {:?}", link.kind.as_deref().unwrap_or("none"))));
    }
    let mac = link.mac.map(|mac| mac.to_string());
    if said.mac.as_ref().is_some_and(|said| mac.as_ref() != Some(said) && !said.is_empty()) {
        return Err(differs(format!("{ifname} has another hardware address: {}", mac.unwrap_or_default())));
    }
    for route in &result.routes {
        let wanted = inner_route(route, result, link.index);
        let has =
            |r: &RouteEntry| r.dst == wanted.dst.network() && (route.gw.is_none() || r.gateway == route.gw);
        if !pod.routes(route.dst.addr.is_ipv6())?.iter().any(has) {
            return Err(differs(format!("route to {} is gone", route.dst)));
        }
    }
    Ok(link)
}

/// GC or STATUS of a plugin that has nothing of its own outside the container: that of whoever gives addresses.
pub fn ask_ipam(request: &Request, command: Command) -> Result<(), CniError> {
    if command == Command::Gc {
        request.valid_attachments()?;
    }
    Ipam::of(request, Prefer::Program).map_or(Ok(()), |ipam| ipam.ask(command))
}
