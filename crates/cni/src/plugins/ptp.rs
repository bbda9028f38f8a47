//! `ptp`: a veth per container, routed by the host.
//!
//! ```text
//! container: 10.1.0.5/24 (no route to its subnet)      host: veth.......  10.1.0.1/32 (the gateway)
//!            10.1.0.1 dev eth0                ── veth ──     10.1.0.5 dev veth.......
//!            10.1.0.0/24 via 10.1.0.1
//! ```
//! Keys: `ipMasq`, `mtu`, `ipam`, `dns`.

use std::net::IpAddr;
use std::os::fd::AsFd;

use serde::Deserialize;
use trine_kernel::netlink::{
    Cidr, LinkChange, Mac, Request as Change, Route, RouteEntry, Scope, Veth, VethPeer,
};
use trine_kernel::testing::failpoint;

use super::delegate::Ipam;
use super::{Plugin, inside, links, masquerade};
use crate::invoke::Prefer;
use crate::spec::{AttachmentId, CniError, CniResult, Code, Command, IpConfig, Request};

/// The plugin.
pub struct Ptp;

/// The host's links begin with it.
const PREFIX: &str = "veth";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    ip_masq: bool,
    mtu: u32,
}

/// One link to a container.
struct Wire<'a> {
    request: &'a Request,
    config: Config,
    id: AttachmentId,
    host_name: String,
    ipam: Ipam<'a>,
}

fn gateway(ip: &IpConfig) -> Result<IpAddr, CniError> {
    ip.gateway.ok_or_else(|| {
        CniError::new(Code::InvalidConfig, format!("address {} has come without a gateway", ip.address))
    })
}

impl<'a> Wire<'a> {
    fn of(request: &'a Request) -> Result<Self, CniError> {
        let ipam = Ipam::of(request, Prefer::Program)
            .ok_or_else(|| CniError::new(Code::InvalidConfig, "the configuration has no ipam"))?;
        let id = request.attachment();
        let host_name = links::host_name(PREFIX, &request.network, &id)?;
        Ok(Self { request, config: request.config()?, id, host_name, ipam })
    }

    fn add(&self) -> Result<CniResult, CniError> {
        let (netns, mut pod) = inside::open(self.request)?;
        let mut host = Route::open()?;
        let ifname = &self.request.env.ifname;
        let mac = links::pod_mac(&self.request.network, &self.id);
        let peer = VethPeer { name: ifname, netns: Some(netns.as_fd()), mac: Some(mac) };
        let mtu = Some(self.config.mtu).filter(|mtu| *mtu > 0);
        let veth = Veth { name: &self.host_name, mac: None, mtu, peer };
        links::make_marked(&mut host, veth.request(), &self.host_name, &self.request.network, &self.id)
            .map_err(|e| links::veth_error(e, &self.host_name, ifname))?;
        failpoint("ptp: veth");
        let connected = self.ipam.add().and_then(|given| {
            failpoint("ptp: address");
            self.connect(&mut host, &mut pod, given, mac).inspect_err(|_| {
                let _ = self.ipam.del();
            })
        });
        connected.inspect_err(|_| {
            let _ = host.del_link(&self.host_name);
        })
    }

    fn connect(
        &self,
        host: &mut Route,
        pod: &mut Route,
        mut given: CniResult,
        mac: Mac,
    ) -> Result<CniResult, CniError> {
        let link = host.link(&self.host_name)?;
        let device = link.peer.ok_or_else(|| CniError::new(Code::Internal, "the veth has no other end"))?;
        let addrs: Vec<Cidr> = given.ips.iter().map(|ip| Cidr::host(ip.address.addr)).collect();
        links::forward(&addrs)?;
        pod.run(&inner(&given, device)?)?;
        failpoint("ptp: inside");
        let mut outside = Vec::new();
        for ip in &given.ips {
            outside.push(Change::replace_address(link.index, Cidr::host(gateway(ip)?)));
        }
        outside.extend(addrs.iter().map(|addr| host_route(*addr, link.index).add()));
        host.run(&outside)?;
        given.ips.iter_mut().for_each(|ip| ip.interface = Some(1));
        given.interfaces =
            vec![inside::host_interface(&link), inside::interface(self.request, Some(mac), link.mtu)];
        failpoint("ptp: outside");
        if self.config.ip_masq {
            masquerade::add(self.request, &given)?;
        }
        given.dns = self.request.dns().unwrap_or(given.dns);
        Ok(given)
    }

    fn check(&self) -> Result<(), CniError> {
        let result = self.request.need_prev_result()?;
        let (_, mut pod) = inside::open(self.request)?;
        inside::check_link(self.request, &mut pod, result, Some("veth"))?;
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
        if self.config.ip_masq {
            masquerade::check(self.request, result)?;
        }
        self.ipam.ask(Command::Check)
    }
}

/// The requests inside the container.
fn inner(given: &CniResult, device: u32) -> Result<Vec<Change>, CniError> {
    let mut changes = vec![LinkChange { up: Some(true), ..LinkChange::default() }.request(device)];
    for ip in &given.ips {
        let gateway = gateway(ip)?;
        changes.push(Change::add_address_alone(device, ip.address));
        let near = RouteEntry {
            device: Some(device),
            scope: Scope::Link,
            source: Some(ip.address.addr),
            ..RouteEntry::to(Cidr::host(gateway))
        };
        let subnet = RouteEntry {
            device: Some(device),
            gateway: Some(gateway),
            source: Some(ip.address.addr),
            ..RouteEntry::to(ip.address.network())
        };
        // Of two addresses with one gateway, the first one's routes stay.
        changes.extend([near.replace(), subnet.replace()]);
    }
    changes.extend(given.routes.iter().map(|route| inside::inner_route(route, given, device).prepend()));
    Ok(changes)
}

/// The host's route to a container, in the reference's scope.
fn host_route(addr: Cidr, device: u32) -> RouteEntry {
    RouteEntry { device: Some(device), scope: Scope::Host, ..RouteEntry::to(addr) }
}

impl Plugin for Ptp {
    fn name(&self) -> &'static str {
        "ptp"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        Wire::of(request)?.add()
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        let link = links::remove_host_link(request, PREFIX);
        failpoint("ptp: disconnected");
        let masked = masquerade::del(request);
        failpoint("ptp: unmasked");
        let ipam = Ipam::of(request, Prefer::Program).map_or(Ok(()), |ipam| ipam.del());
        CniError::all(link.err().into_iter().chain(masked.err()).chain(ipam.err()).collect())
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        Wire::of(request)?.check()
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        let links = links::remove_unmarked(request, PREFIX);
        let masked = masquerade::gc(request);
        let ipam = inside::ask_ipam(request, Command::Gc);
        CniError::all(links.err().into_iter().chain(masked.err()).chain(ipam.err()).collect())
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        Wire::of(request)?.ipam.ask(Command::Status)
    }
}
