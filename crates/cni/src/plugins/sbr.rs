//! `sbr`: packets from a container's address leave by the link that has it. It is chained behind the plugin that made the link.
//!
//! Each address gets a table of its own with a default route by its gateway and the routes of its link, which go from the main
//! table, and a rule that leads its packets there. With `table`, the routes are there already (the `table` of a result's routes),
//! and only rules are made. All of it is in the container's namespace and goes with it.
//!
//! Keys: `table`.

use std::fs::File;
use std::net::IpAddr;

use serde::Deserialize;
use trine_kernel::netlink::{
    Cidr, Link, MAIN_TABLE, Request as Change, Route, RouteEntry, RouteKind, RuleInfo, SourceRule,
};

use super::{Plugin, inside};
use crate::spec::{CniError, CniResult, Code, IpConfig, Request};

/// The plugin.
pub struct Sbr;

/// The first table that is looked at.
const FIRST_TABLE: u32 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    table: Option<u32>,
}

/// The addresses of the link `ifname`.
fn own_ips(ifname: &str, result: &CniResult) -> Result<Vec<IpConfig>, CniError> {
    if result.ips.is_empty() {
        let msg = format!("no IP addresses supplied on interface: {ifname}");
        return Err(CniError::new(Code::InvalidConfig, msg));
    }
    let of_another = |ip: &IpConfig| {
        let named = ip.interface.and_then(|index| result.interfaces.get(index));
        named.is_some_and(|interface| interface.name != ifname)
    };
    Ok(result.ips.iter().filter(|ip| !of_another(ip)).cloned().collect())
}

/// The first table from `from` on that nobody uses.
fn free_table(from: u32, rules: &[RuleInfo], routes: &[RouteEntry]) -> u32 {
    let used = |table: u32| rules.iter().any(|r| r.table == table) || routes.iter().any(|r| r.table == table);
    (from..u32::MAX).find(|table| !used(*table)).unwrap_or(u32::MAX)
}

/// What is to be done for the addresses `ips` of a link.
#[derive(Debug, PartialEq, Eq, Default)]
struct Plan {
    rules: Vec<SourceRule>,
    routes: Vec<RouteEntry>,
    gone: Vec<RouteEntry>,
}

fn plan(ips: &[IpConfig], link: u32, rules: &[RuleInfo], routes: &[RouteEntry]) -> Plan {
    let here = |route: &&RouteEntry| {
        route.device == Some(link) && route.table == MAIN_TABLE && route.kind == RouteKind::Unicast
    };
    let own: Vec<RouteEntry> = routes.iter().filter(here).cloned().collect();
    let mut plan = Plan { gone: own.clone(), ..Plan::default() };
    let mut from = FIRST_TABLE;
    for ip in ips {
        let table = free_table(from, rules, routes);
        from = table.saturating_add(1);
        plan.rules.push(SourceRule { source: Cidr::host(ip.address.addr), table, priority: None });
        let v6 = ip.address.addr.is_ipv6();
        let belongs = |route: &&RouteEntry| {
            let with = |addr: Option<IpAddr>| addr.is_some_and(|addr| ip.address.contains(addr));
            route.dst.addr.is_ipv6() == v6
                && (with(route.source)
                    || with(route.gateway)
                    || (route.source.is_none() && route.gateway.is_none()))
        };
        // Routes without a gateway first: the others' gateways are reached by them.
        let (near, far): (Vec<&RouteEntry>, Vec<&RouteEntry>) =
            own.iter().filter(belongs).partition(|route| route.gateway.is_none());
        let copy = |route: &RouteEntry| RouteEntry { table, ..route.clone() };
        plan.routes.extend(near.into_iter().map(copy));
        if let Some(gateway) = ip.gateway {
            plan.routes.push(RouteEntry {
                gateway: Some(gateway),
                device: Some(link),
                onlink: true,
                ..RouteEntry { table, ..RouteEntry::to(Cidr::default_route(v6)) }
            });
        }
        plan.routes.extend(far.into_iter().map(copy));
    }
    plan
}

/// Locks the container's namespace among those who look for a free table.
fn lock(request: &Request) -> Result<File, CniError> {
    let path = &request.env.netns;
    File::open(path)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|e| CniError::new(Code::Io, format!("cannot lock {path}")).because(e))
}

fn all_rules(pod: &mut Route) -> Result<Vec<RuleInfo>, CniError> {
    let mut rules = pod.rules(false)?;
    rules.extend(pod.rules(true)?);
    Ok(rules)
}

fn sources(rules: &[RuleInfo], table: Option<u32>, addrs: &[IpAddr]) -> Vec<SourceRule> {
    let ours = |rule: &&RuleInfo| {
        table.is_none_or(|table| rule.table == table)
            && rule.source.is_some_and(|s| s == Cidr::host(s.addr) && addrs.contains(&s.addr))
    };
    let of = |rule: &RuleInfo| {
        Some(SourceRule { source: rule.source?, table: rule.table, priority: Some(rule.priority) })
    };
    rules.iter().filter(ours).filter_map(of).collect()
}

fn add(request: &Request, config: &Config, result: &CniResult) -> Result<(), CniError> {
    let (_, mut pod) = inside::open(request)?;
    let ips = own_ips(&request.env.ifname, result)?;
    let _lock = lock(request)?;
    if let Some(table) = config.table {
        let rule =
            |ip: &IpConfig| SourceRule { source: Cidr::host(ip.address.addr), table, priority: None }.add();
        return Ok(pod.run(&ips.iter().map(rule).collect::<Vec<_>>())?);
    }
    let link: Link = pod.link(&request.env.ifname)?;
    let mut routes = pod.routes(false)?;
    routes.extend(pod.routes(true)?);
    let plan = plan(&ips, link.index, &all_rules(&mut pod)?, &routes);
    pod.run(&plan.rules.iter().map(SourceRule::add).collect::<Vec<_>>())?;
    pod.run(&plan.routes.iter().map(RouteEntry::replace).collect::<Vec<_>>())?;
    Ok(pod.run(&plan.gone.iter().map(|route| route.del().or_absent()).collect::<Vec<Change>>())?)
}

impl Plugin for Sbr {
    fn name(&self) -> &'static str {
        "sbr"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let config: Config = request.config()?;
        let Some(result) = &request.prev_result else {
            return Err(CniError::new(Code::InvalidConfig, "sbr must be called as a chained plugin"));
        };
        add(request, &config, result)?;
        Ok(result.clone())
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        let table = request.config::<Config>().ok().and_then(|config| config.table);
        let Some((_, mut pod)) = inside::open_if_there(request)? else { return Ok(()) };
        let _lock = lock(request)?;
        let mut addrs: Vec<IpAddr> =
            request.prev_result.iter().flat_map(CniResult::container_ips).map(|ip| ip.0).collect();
        if let Some(link) = pod.find_link(&request.env.ifname)? {
            addrs.extend(pod.addresses(Some(link.index))?.iter().map(|a| a.addr.addr));
        }
        let gone = sources(&all_rules(&mut pod)?, table, &addrs);
        Ok(pod.run(&gone.iter().map(|rule| rule.del().or_absent()).collect::<Vec<_>>())?)
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let config: Config = request.config()?;
        let (_, mut pod) = inside::open(request)?;
        let rules = all_rules(&mut pod)?;
        for ip in own_ips(&request.env.ifname, request.need_prev_result()?)? {
            if sources(&rules, config.table, &[ip.address.addr]).is_empty() {
                let msg = format!("no rule leads packets from {} to a table", ip.address.addr);
                return Err(CniError::new(Code::Internal, msg));
            }
        }
        Ok(())
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        request.valid_attachments().map(drop)
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        request.config::<Config>().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_gets_a_free_table_and_the_links_routes() {
        let ip = |address: &str, gateway: Option<&str>| IpConfig {
            interface: None,
            address: address.parse().unwrap(),
            gateway: gateway.map(|g| g.parse().unwrap()),
        };
        let route = |dst: &str, gateway: Option<&str>| RouteEntry {
            gateway: gateway.map(|g| g.parse().unwrap()),
            device: Some(7),
            ..RouteEntry::to(dst.parse().unwrap())
        };
        let rules = [RuleInfo { table: 100, source: None, priority: 1 }];
        let other = RouteEntry { device: Some(8), ..route("10.9.0.0/16", None) };
        let taken = RouteEntry { table: 102, ..route("10.8.0.0/16", None) };
        let routes = [
            route("0.0.0.0/0", Some("10.1.0.1")),
            route("10.1.0.0/24", None),
            route("fd00::/64", None),
            other,
            taken,
        ];
        let ips = [ip("10.1.0.5/24", Some("10.1.0.1")), ip("10.2.0.5/24", None)];
        let plan = plan(&ips, 7, &rules, &routes);
        let tables: Vec<u32> = plan.rules.iter().map(|rule| rule.table).collect();
        assert_eq!(tables, [101, 103]);
        let made: Vec<String> = plan.routes.iter().map(ToString::to_string).collect();
        assert_eq!(
            made,
            [
                "10.1.0.0/24 on link 7 in table 101",
                "0.0.0.0/0 via 10.1.0.1 on link 7 in table 101",
                "0.0.0.0/0 via 10.1.0.1 on link 7 in table 101",
                "10.1.0.0/24 on link 7 in table 103",
            ]
        );
        assert_eq!(plan.gone.len(), 3, "what was copied goes from the main table, and IPv6 with it");
    }
}
