//! `bridge`, with the reference's keys. Not yet: `ipMasq`, VLANs, `macspoofchk`, `enabledad`, port isolation; asking for
//! one of them is an error, never silence.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use trine_kernel::netlink::{
    Cidr, Link, LinkChange, Mac, Request as Change, Route, RouteEntry, Scope, Veth, VethPeer,
};
use trine_kernel::netns::Netns;

use super::Plugin;
use super::delegate::Ipam;
use super::links;
use crate::invoke::Prefer;
use crate::spec::{AttachmentId, CniError, CniResult, Code, Command, Interface, Request, RouteConfig};

/// Keys that ask for what is not there.
const UNSUPPORTED: [&str; 8] = [
    "ipMasq",
    "vlan",
    "vlanTrunk",
    "macspoofchk",
    "enabledad",
    "portIsolation",
    "disableContainerInterface",
    "preserveDefaultVlan",
];

/// The plugin.
pub struct Bridge;

/// The host's links begin with it.
const PREFIX: &str = "veth";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    bridge: String,
    is_gateway: bool,
    is_default_gateway: bool,
    force_address: bool,
    mtu: Option<u32>,
    hairpin_mode: bool,
    promisc_mode: bool,
    mac: Option<String>,
    runtime_config: Wishes,
    args: Args,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Args {
    cni: Wishes,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wishes {
    mac: Option<String>,
}

impl Config {
    fn of(request: &Request) -> Result<Self, CniError> {
        let asked = |key: &&str| match request.config.get(*key) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Number(n)) => n.as_u64() != Some(0),
            // The reference's default, and nothing without VLANs.
            Some(Value::Bool(true)) => *key != "preserveDefaultVlan",
            Some(_) => true,
        };
        if let Some(key) = UNSUPPORTED.iter().find(|key| asked(key)) {
            return Err(CniError::new(Code::UnsupportedField, format!("{key} is not supported")));
        }
        let mut config: Self = request.config()?;
        if config.bridge.is_empty() {
            "cni0".clone_into(&mut config.bridge);
        }
        config.is_gateway |= config.is_default_gateway;
        config.mtu = config.mtu.filter(|mtu| *mtu > 0);
        if config.hairpin_mode && config.promisc_mode {
            let msg = "cannot set hairpin mode and promiscuous mode at the same time";
            return Err(CniError::new(Code::InvalidConfig, msg));
        }
        Ok(config)
    }

    fn mac(&self, request: &Request) -> Result<Option<Mac>, CniError> {
        let wish = self.runtime_config.mac.clone().or_else(|| self.args.cni.mac.clone());
        let wish = wish.or_else(|| request.arg("MAC")).or_else(|| self.mac.clone());
        wish.filter(|mac| !mac.is_empty()).map(|mac| mac.parse()).transpose().map_err(|e| {
            CniError::new(Code::InvalidConfig, "the requested hardware address is none").because(e)
        })
    }
}

/// One port of a bridge.
struct Port<'a> {
    request: &'a Request,
    config: Config,
    id: AttachmentId,
    ipam: Option<Ipam<'a>>,
    mac: Mac,
    host_name: String,
}

impl<'a> Port<'a> {
    fn of(request: &'a Request) -> Result<Self, CniError> {
        let config = Config::of(request)?;
        let id = request.attachment();
        let mac = config.mac(request)?.unwrap_or_else(|| links::pod_mac(&request.network, &id));
        let host_name = links::host_name(PREFIX, &request.network, &id)?;
        Ok(Self { request, config, id, ipam: Ipam::of(request, Prefer::Program), mac, host_name })
    }

    fn add(&self) -> Result<CniResult, CniError> {
        let netns = Netns::open(Path::new(&self.request.env.netns))?;
        let mut host = Route::open()?;
        let mut pod = Route::open_in(&netns)?;
        let bridge = self.ensure_bridge(&mut host)?;
        let ifname = &self.request.env.ifname;
        let peer = VethPeer { name: ifname, netns: Some(netns.as_fd()), mac: Some(self.mac) };
        host.add_veth(&Veth { name: &self.host_name, mac: None, mtu: self.config.mtu, peer })
            .map_err(|e| links::veth_error(e, &self.host_name, ifname))?;
        let given = self.ipam.as_ref().map_or_else(|| Ok(CniResult::default()), Ipam::add);
        let connected = given.and_then(|given| {
            self.connect(&mut host, &mut pod, &bridge, given).inspect_err(|_| {
                let _ = self.ipam.as_ref().map(Ipam::del);
            })
        });
        connected.inspect_err(|_| {
            let _ = host.del_link(&self.host_name);
        })
    }

    /// The bridge, made if needed. Its hardware address is fixed at once: one that follows the ports breaks
    /// connections when a port goes.
    fn ensure_bridge(&self, host: &mut Route) -> Result<Link, CniError> {
        let name = &self.config.bridge;
        if host.find_link(name)?.is_none() {
            let id = AttachmentId { container_id: name.clone(), ifname: String::new() };
            let mac = links::pod_mac(&self.request.network, &id);
            match host.run(&[Change::add_bridge(name, Some(mac), self.config.mtu)]) {
                Err(e) if !e.already_exists() => return Err(e.into()),
                _ => {}
            }
        }
        let bridge = host.link(name)?;
        if bridge.kind.as_deref() != Some("bridge") {
            let msg = format!("{name} already exists but is not a bridge");
            return Err(CniError::new(Code::InvalidConfig, msg));
        }
        let promiscuous = self.config.promisc_mode.then_some(true).filter(|_| !bridge.promiscuous);
        if promiscuous.is_some() || !bridge.up {
            host.set_link(&bridge, &LinkChange { up: Some(true), promiscuous, ..LinkChange::default() })?;
        }
        Ok(bridge)
    }

    fn connect(
        &self,
        host: &mut Route,
        pod: &mut Route,
        bridge: &Link,
        mut given: CniResult,
    ) -> Result<CniResult, CniError> {
        let link = host.link(&self.host_name)?;
        let device = link.peer.ok_or_else(|| CniError::new(Code::Internal, "the veth has no other end"))?;
        host.run(&[
            LinkChange { master: Some(bridge.index), ..LinkChange::default() }.request(link.index),
            links::mark(link.index, &self.request.network, &self.id),
        ])?;
        if self.config.hairpin_mode {
            host.run(&[Change::hairpin(link.index, true)])?;
        }
        let mut routes = given.routes.clone();
        for ip in &mut given.ips {
            ip.interface = Some(2);
            let network = ip.address.network();
            if self.config.is_gateway && ip.gateway.is_none() {
                ip.gateway = Some(second(network));
            }
            let default = Cidr::default_route(network.addr.is_ipv6());
            if self.config.is_default_gateway && !routes.iter().any(|route| route.dst == default) {
                routes.push(RouteConfig::new(default, ip.gateway));
            }
        }
        let mut inside = vec![LinkChange { up: Some(true), ..LinkChange::default() }.request(device)];
        inside.extend(given.ips.iter().map(|ip| Change::add_address(device, ip.address)));
        inside.extend(routes.iter().map(|route| inner_route(route, &given, device).add()));
        pod.run(&inside)?;
        if self.config.is_gateway {
            self.be_gateway(host, bridge, &given)?;
        }
        given.routes = routes;
        self.result(host, bridge, given)
    }

    /// Gives the bridge the gateways' addresses.
    fn be_gateway(&self, host: &mut Route, bridge: &Link, given: &CniResult) -> Result<(), CniError> {
        let there = host.addresses(Some(bridge.index))?;
        let mut addrs = Vec::new();
        for ip in &given.ips {
            let Some(gateway) = ip.gateway else { continue };
            let wanted = Cidr { addr: gateway, len: ip.address.len };
            addrs.push(wanted);
            if there.iter().any(|a| a.addr == wanted) {
                continue;
            }
            let other = there.iter().find(|a| a.addr.addr.is_ipv4() && gateway.is_ipv4());
            match other {
                Some(other) if self.config.force_address => host.del_address(bridge.index, other.addr)?,
                Some(other) => {
                    let msg = format!("{} already has an IP address different from {wanted}", bridge.name);
                    return Err(CniError::new(Code::InvalidConfig, msg).details(other.addr.to_string()));
                }
                None => {}
            }
            host.run(&[Change::replace_address(bridge.index, wanted)])?;
        }
        links::forward(&addrs)
    }

    fn result(&self, host: &mut Route, bridge: &Link, given: CniResult) -> Result<CniResult, CniError> {
        let port = host.link(&self.host_name)?;
        let bridge = host.link(bridge)?;
        let of = |link: &Link| Interface {
            name: link.name.clone(),
            mac: link.mac.map(|mac| mac.to_string()),
            mtu: Some(link.mtu),
            ..Interface::default()
        };
        let own = Interface {
            name: self.request.env.ifname.clone(),
            mac: Some(self.mac.to_string()),
            mtu: Some(port.mtu),
            sandbox: Some(self.request.env.netns.clone()),
            ..Interface::default()
        };
        let interfaces = vec![of(&bridge), of(&port), own];
        let dns = self.request.dns().unwrap_or(given.dns);
        Ok(CniResult { interfaces, ips: given.ips, routes: given.routes, dns })
    }

    fn check(&self) -> Result<(), CniError> {
        let result = self.request.need_prev_result()?;
        let mut pod = Route::open_in(&Netns::open(Path::new(&self.request.env.netns))?)?;
        links::check_addresses(&mut pod, &self.request.env.ifname, result)?;
        let mut host = Route::open()?;
        let bridge = host.find_link(&self.config.bridge)?;
        let port = host.find_link(&self.host_name)?;
        let joined = bridge.zip(port).is_some_and(|(bridge, port)| port.master == Some(bridge.index));
        if !joined {
            let msg = format!("{} is no port of {}", self.host_name, self.config.bridge);
            return Err(CniError::new(Code::Internal, msg));
        }
        self.ipam.as_ref().map_or(Ok(()), |ipam| ipam.ask(Command::Check))
    }
}

/// The second address of a subnet.
fn second(network: Cidr) -> IpAddr {
    match network.addr {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() + 1).into()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() + 1).into()),
    }
}

/// A route inside the container, by its own gateway or that of the first address of its family.
fn inner_route(route: &RouteConfig, given: &CniResult, device: u32) -> RouteEntry {
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

impl Plugin for Bridge {
    fn name(&self) -> &'static str {
        "bridge"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        Port::of(request)?.add()
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        // Without a look at the rest of the configuration: what was made under another one goes, too.
        let name = links::host_name(PREFIX, &request.network, &request.attachment())?;
        let link = Route::open().and_then(|mut host| host.del_link(&name)).map_err(CniError::from);
        let ipam = Ipam::of(request, Prefer::Program).map_or(Ok(()), |ipam| ipam.del());
        CniError::all(link.err().into_iter().chain(ipam.err()).collect())
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        Port::of(request)?.check()
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        let links = links::remove_unmarked(request, PREFIX);
        let ipam = Ipam::of(request, Prefer::Program).map_or(Ok(()), |ipam| ipam.ask(Command::Gc));
        CniError::all(links.err().into_iter().chain(ipam.err()).collect())
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        Config::of(request)?;
        Ipam::of(request, Prefer::Program).map_or(Ok(()), |ipam| ipam.ask(Command::Status))
    }
}
