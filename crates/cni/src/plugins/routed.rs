//! `routed`, the built-in network: a veth per Pod and a route to it, no bridge.
//!
//! ```text
//! Pod: eth0 10.1.0.5/32                          host: tr0a1b2cxxxxxxx (no address)
//!      default via 169.254.1.1 onlink  ── veth ──      10.1.0.5/32 dev tr0a1b2cxxxxxxx
//!      169.254.1.1 is at <host link>, permanent        ip_forward 1
//! ```
//!
//! Where policies are enforced the link passes nothing until the Pod's are in force (`nft::held`).
//!
//! Keys: `ipam`, `mtu`, `instance` (part of the link's name), `hostInterfacePrefix` (instead of `tr<instance>`).

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use serde::Deserialize;
use trine_kernel::netlink::{
    Cidr, Link, LinkChange, Mac, Request as Change, Route, RouteEntry, Scope, Veth, VethPeer,
};
use trine_kernel::netns::Netns;
use trine_kernel::nft::held::{self, Held};
use trine_kernel::testing::failpoint;

use super::Plugin;
use super::delegate::Ipam;
use super::links;
use crate::invoke::Prefer;
use crate::spec::{AttachmentId, CniError, CniResult, Code, Command, Interface, Request, RouteConfig};

/// The type of the built-in network's plugin.
pub const OWN: &str = "routed";
/// The hardware address of every host link: the Pods' neighbour entry needs no look-up, and udev leaves it alone.
const HOST_MAC: Mac = Mac([0x02, 0x54, 0x52, 0x49, 0x4e, 0x45]);

/// The plugin.
pub struct Routed;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    mtu: Option<u32>,
    instance: String,
    host_interface_prefix: Option<String>,
}

impl Config {
    /// What the host's links begin with.
    fn prefix(&self) -> String {
        self.host_interface_prefix.clone().unwrap_or_else(|| format!("tr{}", self.instance))
    }
}

/// One attachment of the network.
struct Pod<'a> {
    request: &'a Request,
    id: AttachmentId,
    mtu: Option<u32>,
    instance: String,
    host_name: String,
    ipam: Ipam<'a>,
}

fn ipam(request: &Request) -> Result<Ipam<'_>, CniError> {
    let ipam = Ipam::of(request, Prefer::BuiltIn)
        .ok_or_else(|| CniError::new(Code::InvalidConfig, "the configuration has no ipam"))?;
    // The runtime's folder of addresses, unless the configuration names one.
    Ok(ipam.with_default("dataDir", request.config.get("dataDir")))
}

impl<'a> Pod<'a> {
    fn of(request: &'a Request) -> Result<Self, CniError> {
        let config: Config = request.config()?;
        let prefix = config.prefix();
        let id = request.attachment();
        let host_name = links::host_name(&prefix, &request.network, &id)?;
        Ok(Self { request, id, mtu: config.mtu, instance: config.instance, host_name, ipam: ipam(request)? })
    }

    fn add(&self) -> Result<CniResult, CniError> {
        let netns = Netns::open(Path::new(&self.request.env.netns))?;
        let mut host = Route::open()?;
        let mut pod = Route::open_in(&netns)?;
        let mac = links::pod_mac(&self.request.network, &self.id);
        let ifname = &self.request.env.ifname;
        let peer = VethPeer { name: ifname, netns: Some(netns.as_fd()), mac: Some(mac) };
        let veth = Veth { name: &self.host_name, mac: Some(HOST_MAC), mtu: self.mtu, peer };
        links::make_marked(&mut host, veth.request(), &self.host_name, &self.request.network, &self.id)
            .map_err(|e| links::veth_error(e, &self.host_name, ifname))?;
        failpoint("routed: veth");
        let connected = self.ipam.add().and_then(|given| {
            failpoint("routed: address");
            self.connect(&mut host, &mut pod, given, mac).inspect_err(|_| {
                let _ = self.ipam.del();
            })
        });
        connected.inspect_err(|_| {
            let _ = host.del_link(&self.host_name);
        })
    }

    /// Addresses, routes and neighbours on both ends of the veth.
    fn connect(
        &self,
        host: &mut Route,
        pod: &mut Route,
        given: CniResult,
        mac: Mac,
    ) -> Result<CniResult, CniError> {
        let link = host.link(&self.host_name)?;
        let device = link.peer.ok_or_else(|| CniError::new(Code::Internal, "the veth has no other end"))?;
        let addrs: Vec<Cidr> = given.ips.iter().map(|ip| Cidr::host(ip.address.addr)).collect();
        let routes = pod_routes(&given, &addrs);
        self.hold(&addrs)?;
        let mut inside = vec![LinkChange { up: Some(true), ..LinkChange::default() }.request(device)];
        inside.extend(addrs.iter().map(|addr| Change::add_address(device, *addr)));
        inside.extend(
            families(&addrs).map(|v6| Change::add_neighbour(device, links::link_local_gateway(v6), HOST_MAC)),
        );
        inside.extend(routes.iter().map(|route| inner_route(route, device).add()));
        pod.run(&inside)?;
        failpoint("routed: inside");
        links::forward(&addrs)?;
        let outside: Vec<Change> = addrs.iter().map(|addr| host_route(*addr, link.index).add()).collect();
        host.run(&outside)?;
        Ok(self.result(given, &addrs, routes, mac, link.mtu))
    }

    /// Has the Pod's link pass nothing until its policies are in force. What is no Pod of a cluster has none.
    fn hold(&self, addrs: &[Cidr]) -> Result<(), CniError> {
        let Some(pod_uid) = self.request.arg("K8S_POD_UID").filter(|uid| !uid.is_empty()) else {
            return Ok(());
        };
        let addresses = addrs.iter().map(|addr| addr.addr).collect();
        let link = Held { link: self.host_name.clone(), pod_uid, addresses };
        let failed =
            |e| CniError::new(Code::Internal, "the Pod cannot be held until it is isolated").because(e);
        if held::hold(&self.instance, &link).map_err(failed)? {
            held::ring(&self.instance);
        }
        Ok(())
    }

    fn result(
        &self,
        mut given: CniResult,
        addrs: &[Cidr],
        routes: Vec<RouteConfig>,
        mac: Mac,
        mtu: u32,
    ) -> CniResult {
        for (ip, addr) in given.ips.iter_mut().zip(addrs) {
            ip.interface = Some(1);
            ip.address = *addr;
            ip.gateway = Some(links::link_local_gateway(addr.addr.is_ipv6()));
        }
        let host = Interface {
            name: self.host_name.clone(),
            mac: Some(HOST_MAC.to_string()),
            mtu: Some(mtu),
            ..Interface::default()
        };
        let own = Interface {
            name: self.request.env.ifname.clone(),
            mac: Some(mac.to_string()),
            mtu: Some(mtu),
            sandbox: Some(self.request.env.netns.clone()),
            ..Interface::default()
        };
        let dns = self.request.dns().unwrap_or(given.dns);
        CniResult { interfaces: vec![host, own], ips: given.ips, routes, dns }
    }

    /// Takes the Pod off the network. Removing a veth takes tens of milliseconds in which no other link can be changed,
    /// and mostly its namespace goes a moment later and takes it along: so it is stripped and renamed now, and
    /// removed later if it is still there. If we are killed before that, GC finds it by its mark.
    fn disconnect(&self) -> Result<(), CniError> {
        let mut host = Route::open()?;
        let Some(link) = host.find_link(&self.host_name)? else { return Ok(()) };
        let lives_on = self.request.in_daemon || trine_kernel::afterwards::is_program();
        let result = self.request.prev_result.as_ref().filter(|_| lives_on);
        let set_aside = result.is_some_and(|result| self.set_aside(&mut host, &link, result).is_ok());
        if set_aside && links::remove_later(host, link.index).is_ok() {
            return Ok(());
        }
        // `host` may be gone with the thread that could not be started.
        Ok(Route::open()?.del_link(link.index)?)
    }

    fn set_aside(&self, host: &mut Route, link: &Link, result: &CniResult) -> Result<(), CniError> {
        let routes = result.container_ips().into_iter();
        let mut changes: Vec<_> =
            routes.map(|(addr, _)| host_route(Cidr::host(addr), link.index).del().or_absent()).collect();
        changes.push(links::mark_removed(link.index, &self.request.network));
        host.run(&changes)?;
        if let (Ok(netns), Some(peer)) = (Netns::open(Path::new(&self.request.env.netns)), link.peer) {
            let routes = result.routes.iter().map(|route| inner_route(route, peer).del());
            let addrs = result.container_ips().into_iter();
            let addrs = addrs.map(|(addr, _)| Change::del_address(peer, Cidr::host(addr)));
            let mut changes: Vec<_> = routes.chain(addrs).map(Change::or_absent).collect();
            changes.push(links::rename_removed(peer));
            Route::open_in(&netns)?.run(&changes)?;
        }
        Ok(host.run(&[links::rename_removed(link.index)])?)
    }

    fn check(&self) -> Result<(), CniError> {
        let result = self.request.need_prev_result()?;
        let mut pod = Route::open_in(&Netns::open(Path::new(&self.request.env.netns))?)?;
        links::check_addresses(&mut pod, &self.request.env.ifname, result)?;
        let mut host = Route::open()?;
        let missing = |what: String| CniError::new(Code::Internal, what);
        let link = host
            .find_link(&self.host_name)?
            .ok_or_else(|| missing(format!("link {} is gone", self.host_name)))?;
        for (addr, _) in result.container_ips() {
            let wanted = Cidr::host(addr);
            let has = |route: &RouteEntry| route.dst == wanted && route.device == Some(link.index);
            if !host.routes(addr.is_ipv6())?.iter().any(has) {
                return Err(missing(format!("route to {wanted} by {} is gone", self.host_name)));
            }
        }
        self.ipam.ask(Command::Check)
    }
}

/// True for IPv6, for each family of `addrs`.
fn families(addrs: &[Cidr]) -> impl Iterator<Item = bool> {
    [false, true].into_iter().filter(|v6| addrs.iter().any(|a| a.addr.is_ipv6() == *v6))
}

/// The routes of a Pod: the IPAM's, else a default route of each family. All go by the gateway that is no address.
fn pod_routes(given: &CniResult, addrs: &[Cidr]) -> Vec<RouteConfig> {
    let via = |v6: bool| -> Option<IpAddr> { Some(links::link_local_gateway(v6)) };
    let mut routes: Vec<_> = given
        .routes
        .iter()
        .map(|route| RouteConfig { gw: via(route.dst.addr.is_ipv6()), ..route.clone() })
        .collect();
    for v6 in families(addrs) {
        if !routes.iter().any(|route| route.dst.addr.is_ipv6() == v6) {
            routes.push(RouteConfig::new(Cidr::default_route(v6), via(v6)));
        }
    }
    routes
}

/// A route inside a Pod.
fn inner_route(route: &RouteConfig, device: u32) -> RouteEntry {
    let entry = RouteEntry::to(route.dst);
    RouteEntry {
        gateway: route.gw,
        device: Some(device),
        onlink: true,
        table: route.table.unwrap_or(entry.table),
        scope: route.scope.map_or(entry.scope, Scope::from_number),
        priority: route.priority,
        mtu: route.mtu,
        advmss: route.advmss,
        ..entry
    }
}

/// The host's route to a Pod.
fn host_route(addr: Cidr, device: u32) -> RouteEntry {
    RouteEntry { device: Some(device), scope: Scope::Link, ..RouteEntry::to(addr) }
}

impl Plugin for Routed {
    fn name(&self) -> &'static str {
        OWN
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        Pod::of(request)?.add()
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        let pod = Pod::of(request)?;
        // The link goes first: while it is there, its address must not be another's.
        let link = pod.disconnect();
        failpoint("routed: disconnected");
        CniError::all(link.err().into_iter().chain(pod.ipam.del().err()).collect())
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        Pod::of(request)?.check()
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        let links = request.config::<Config>().and_then(|c| links::remove_unmarked(request, &c.prefix()));
        CniError::all(links.err().into_iter().chain(ipam(request)?.ask(Command::Gc).err()).collect())
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        ipam(request)?.ask(Command::Status)
    }
}
