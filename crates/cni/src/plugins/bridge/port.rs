//! One container's port.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use trine_kernel::netlink::{Cidr, Link, LinkChange, Mac, Request as Change, Route, Veth, VethPeer};
use trine_kernel::sysctl;
use trine_kernel::testing::failpoint;

use super::config::Config;
use super::{PREFIX, spoof, vlans};
use crate::invoke::Prefer;
use crate::plugins::delegate::Ipam;
use crate::plugins::{inside, links, masquerade};
use crate::spec::{AttachmentId, CniError, CniResult, Code, Command, Interface, Request, RouteConfig};

/// How long addresses are looked for on the link at most; the reference's.
const DETECTION: Duration = Duration::from_secs(5);

/// One port of a bridge.
pub struct Port<'a> {
    request: &'a Request,
    config: Config,
    id: AttachmentId,
    ipam: Option<Ipam<'a>>,
    mac: Mac,
    host_name: String,
}

impl<'a> Port<'a> {
    /// That of a request.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`].
    pub fn of(request: &'a Request) -> Result<Self, CniError> {
        let config = Config::of(request)?;
        let id = request.attachment();
        let mac = inside::wanted_mac(request)?.unwrap_or_else(|| links::pod_mac(&request.network, &id));
        let host_name = links::host_name(PREFIX, &request.network, &id)?;
        Ok(Self { request, config, id, ipam: Ipam::of(request, Prefer::Program), mac, host_name })
    }

    /// ADD.
    ///
    /// # Errors
    /// Why not; nothing is left then but the bridge.
    pub fn add(&self) -> Result<CniResult, CniError> {
        let (netns, mut pod) = inside::open(self.request)?;
        let mut host = Route::open()?;
        let bridge = self.ensure_bridge(&mut host)?;
        failpoint("bridge: bridge");
        let ifname = &self.request.env.ifname;
        let peer = VethPeer { name: ifname, netns: Some(netns.as_fd()), mac: Some(self.mac) };
        let veth = Veth { name: &self.host_name, mac: None, mtu: self.config.mtu, peer };
        links::make_marked(&mut host, veth.request(), &self.host_name, &self.request.network, &self.id)
            .map_err(|e| links::veth_error(e, &self.host_name, ifname))?;
        failpoint("bridge: veth");
        let given = self.ipam.as_ref().map_or_else(|| Ok(CniResult::default()), Ipam::add);
        failpoint("bridge: address");
        let connected = given.and_then(|given| {
            self.connect(&mut host, &mut pod, &bridge, given).inspect_err(|_| {
                let _ = self.ipam.as_ref().map(Ipam::del);
                let _ = masquerade::del(self.request);
            })
        });
        connected.inspect_err(|_| {
            let _ = spoof::del(self.request);
            let _ = host.del_link(&self.host_name);
        })
    }

    /// The bridge, made if needed. Its hardware address is fixed at once: one that follows the ports breaks
    /// connections when a port goes.
    fn ensure_bridge(&self, host: &mut Route) -> Result<Link, CniError> {
        let name = &self.config.bridge;
        let found = host.find_link(name)?;
        let made = found.is_none();
        if made {
            let id = AttachmentId { container_id: name.clone(), ifname: String::new() };
            let mac = Some(links::pod_mac(&self.request.network, &id));
            let request = if self.config.has_vlans() {
                Change::add_vlan_bridge(name, mac, self.config.mtu)
            } else {
                Change::add_bridge(name, mac, self.config.mtu)
            };
            match host.run(&[request]) {
                Err(e) if !e.already_exists() => return Err(e.into()),
                _ => {}
            }
            // Its routes are ours.
            let _ = sysctl::write(&format!("net/ipv6/conf/{name}/accept_ra"), "0");
        }
        let bridge = host.link(name)?;
        if bridge.kind.as_deref() != Some("bridge") {
            let msg = format!("{name} already exists but is not a bridge");
            return Err(CniError::new(Code::InvalidConfig, msg));
        }
        if self.config.has_vlans() && !bridge.vlan_filtering {
            if made {
                let _ = host.del_link(&bridge);
                let msg = "the kernel has no VLAN filtering on bridges";
                return Err(CniError::new(Code::NotAvailable, msg));
            }
            let msg = format!("bridge {name} does not keep VLANs apart");
            return Err(CniError::new(Code::InvalidConfig, msg));
        }
        let promiscuous = self.config.promisc_mode.then_some(true).filter(|_| !bridge.promiscuous);
        if promiscuous.is_some() || !bridge.up {
            host.set_link(&bridge, &LinkChange { up: Some(true), promiscuous, ..LinkChange::default() })?;
        }
        Ok(bridge)
    }

    /// Has the veth be a port of the bridge.
    fn join(&self, host: &mut Route, bridge: &Link, link: &Link) -> Result<(), CniError> {
        host.set_link(link, &LinkChange { master: Some(bridge.index), ..LinkChange::default() })?;
        let mut changes = Vec::new();
        if self.config.hairpin_mode {
            changes.push(Change::hairpin(link.index, true));
        }
        if self.config.port_isolation {
            changes.push(Change::isolate(link.index, true));
        }
        if self.config.has_vlans() {
            changes.extend(vlans::plan(&self.config)?.requests(link.index));
        }
        host.run(&changes)?;
        if self.config.macspoofchk {
            spoof::add(self.request, &self.host_name, self.mac)?;
        }
        Ok(())
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
        self.join(host, bridge, &link)?;
        failpoint("bridge: port");
        self.route(&mut given);
        if !self.config.disable_container_interface {
            pod.run(&self.inside(device, &given))?;
            if self.config.enabledad {
                await_addresses(pod, device)?;
            }
        }
        failpoint("bridge: inside");
        let vlan_link = if self.config.is_gateway { self.be_gateway(host, bridge, &given)? } else { None };
        let result = self.result(host, bridge, vlan_link, given)?;
        if self.config.ip_masq {
            masquerade::add(self.request, &result)?;
        }
        failpoint("bridge: masqueraded");
        Ok(result)
    }

    /// Completes what was given by gateways and default routes.
    fn route(&self, given: &mut CniResult) {
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
        given.routes = routes;
    }

    /// The requests inside the container.
    fn inside(&self, device: u32, given: &CniResult) -> Vec<Change> {
        if !self.config.enabledad {
            return inside::configure(device, given, &given.routes);
        }
        let mut changes = vec![LinkChange { up: Some(true), ..LinkChange::default() }.request(device)];
        changes.extend(given.ips.iter().map(|ip| Change::add_address_with_detection(device, ip.address)));
        changes.extend(given.routes.iter().map(|r| inside::inner_route(r, given, device).prepend()));
        changes
    }

    /// Gives the bridge the gateways' addresses, or the link by which the host is in the port's VLAN.
    fn be_gateway(
        &self,
        host: &mut Route,
        bridge: &Link,
        given: &CniResult,
    ) -> Result<Option<Link>, CniError> {
        let vlan_link = if self.config.vlan == 0 { None } else { Some(self.ensure_vlan_link(host, bridge)?) };
        let holder = vlan_link.as_ref().unwrap_or(bridge);
        let there = host.addresses(Some(holder.index))?;
        let mut addrs = Vec::new();
        for ip in &given.ips {
            let Some(gateway) = ip.gateway else { continue };
            let wanted = Cidr { addr: gateway, len: ip.address.len };
            addrs.push(wanted);
            if there.iter().any(|a| a.addr == wanted) {
                continue;
            }
            // Several of IPv6 are none in the way, if their subnets are apart.
            let other = there.iter().find(|a| {
                let both = a.addr.contains(gateway) || wanted.contains(a.addr.addr);
                a.addr.addr.is_ipv4() == gateway.is_ipv4() && (gateway.is_ipv4() || both)
            });
            match other {
                Some(other) if self.config.force_address => host.del_address(holder.index, other.addr)?,
                Some(other) => {
                    let msg = format!("{} already has an IP address different from {wanted}", holder.name);
                    return Err(CniError::new(Code::InvalidConfig, msg).details(other.addr.to_string()));
                }
                None => {}
            }
            host.run(&[Change::replace_address(holder.index, wanted)])?;
        }
        links::forward(&addrs)?;
        Ok(vlan_link)
    }

    /// The link by which the host is in the port's VLAN: a veth whose other end is a port of that VLAN.
    fn ensure_vlan_link(&self, host: &mut Route, bridge: &Link) -> Result<Link, CniError> {
        let name = self.config.vlan_link();
        if let Some(link) = host.find_link(&name)? {
            return Ok(link);
        }
        let id = AttachmentId { container_id: name.clone(), ifname: String::new() };
        let port = links::host_name("trvp", &self.request.network, &id)?;
        let peer = VethPeer { name: &name, netns: None, mac: None };
        match host.add_veth(&Veth { name: &port, mac: None, mtu: Some(bridge.mtu), peer }) {
            Err(e) if !e.already_exists() => return Err(e.into()),
            _ => {}
        }
        let port = host.link(&port)?;
        let change = LinkChange { master: Some(bridge.index), ..LinkChange::default() };
        host.run(&[
            change.request(port.index),
            LinkChange { up: Some(true), ..LinkChange::default() }.request(&name),
        ])?;
        host.run(&vlans::plan(&self.config)?.requests(port.index))?;
        Ok(host.link(&name)?)
    }

    fn result(
        &self,
        host: &mut Route,
        bridge: &Link,
        vlan_link: Option<Link>,
        given: CniResult,
    ) -> Result<CniResult, CniError> {
        let port = host.link(&self.host_name)?;
        let bridge = host.link(bridge)?;
        let own: Interface = inside::interface(self.request, Some(self.mac), port.mtu);
        let mut interfaces = vec![inside::host_interface(&bridge), inside::host_interface(&port), own];
        interfaces.extend(vlan_link.iter().map(inside::host_interface));
        let dns = self.request.dns().unwrap_or(given.dns);
        Ok(CniResult { interfaces, ips: given.ips, routes: given.routes, dns })
    }

    /// CHECK.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self) -> Result<(), CniError> {
        let result = self.request.need_prev_result()?;
        let (_, mut pod) = inside::open(self.request)?;
        if !self.config.disable_container_interface {
            links::check_addresses(&mut pod, &self.request.env.ifname, result)?;
        }
        let mut host = Route::open()?;
        let bridge = host.find_link(&self.config.bridge)?;
        let port = host.find_link(&self.host_name)?;
        let joined = bridge.zip(port).is_some_and(|(bridge, port)| port.master == Some(bridge.index));
        if !joined {
            let msg = format!("{} is no port of {}", self.host_name, self.config.bridge);
            return Err(CniError::new(Code::Internal, msg));
        }
        if self.config.macspoofchk {
            spoof::check(self.request, &self.host_name)?;
        }
        if self.config.ip_masq {
            masquerade::check(self.request, result)?;
        }
        self.ipam.as_ref().map_or(Ok(()), |ipam| ipam.ask(Command::Check))
    }
}

/// Waits until no address of a link is tentative any more.
fn await_addresses(pod: &mut Route, device: u32) -> Result<(), CniError> {
    let end = Instant::now() + DETECTION;
    loop {
        let addrs = pod.addresses(Some(device))?;
        if let Some(twice) = addrs.iter().find(|a| a.duplicate) {
            let msg = format!("somebody else on the link has the address {}", twice.addr);
            return Err(CniError::new(Code::Internal, msg));
        }
        if !addrs.iter().any(|a| a.tentative && !a.link_scope) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(CniError::new(Code::TryAgainLater, "addresses are still looked for on the link"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The second address of a subnet.
fn second(network: Cidr) -> IpAddr {
    match network.addr {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() + 1).into()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() + 1).into()),
    }
}
