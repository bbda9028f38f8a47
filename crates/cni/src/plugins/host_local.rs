//! `host-local`: addresses from ranges, kept on this machine. Keys and store are the reference's.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Plugin;
use crate::ipam::range::{Range, RangeConfig, RangeSet};
use crate::ipam::store::Store;
use crate::spec::{CniError, CniResult, Code, Dns, IpConfig, Request, RouteConfig};
use trine_kernel::netlink::Cidr;

/// Where the reference keeps addresses.
const DATA_DIR: &str = "/var/lib/cni/networks";
/// Addresses that are tried one by one before all that are taken are listed once.
const TRIES: usize = 16;

/// The plugin.
pub struct HostLocal;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    ipam: Ipam,
    runtime_config: RuntimeConfig,
    args: Args,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ipam {
    #[serde(flatten)]
    single: Option<RangeConfig>,
    ranges: Vec<Vec<RangeConfig>>,
    routes: Vec<RouteConfig>,
    data_dir: PathBuf,
    resolv_conf: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeConfig {
    ip_ranges: Vec<Vec<RangeConfig>>,
    ips: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Args {
    cni: ArgsCni,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ArgsCni {
    ips: Vec<String>,
}

/// The configuration, checked.
struct Pool {
    sets: Vec<RangeSet>,
    requested: Vec<IpAddr>,
    routes: Vec<RouteConfig>,
    data_dir: PathBuf,
    resolv_conf: String,
}

impl Pool {
    fn of(request: &Request) -> Result<Self, CniError> {
        let Config { ipam, runtime_config, args } = request.config()?;
        let invalid = |msg: String| CniError::new(Code::InvalidConfig, msg);
        let single = ipam.single.map(|range| vec![range]);
        let all: Vec<_> = runtime_config.ip_ranges.into_iter().chain(single).chain(ipam.ranges).collect();
        if all.is_empty() {
            return Err(invalid("no IP ranges specified".to_owned()));
        }
        let asked = request.arg("IP").into_iter().chain(args.cni.ips).chain(runtime_config.ips);
        let mut requested = asked
            .flat_map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>())
            .map(|text| {
                let addr = text.parse().or_else(|_| text.parse::<Cidr>().map(|cidr| cidr.addr));
                addr.map_err(|_| invalid(format!("requested IP {text:?} is none")))
            })
            .collect::<Result<Vec<IpAddr>, _>>()?;
        // Who asks in several ways asks for one address.
        let mut seen = BTreeSet::new();
        requested.retain(|addr| seen.insert(*addr));
        let none = ipam.data_dir.as_os_str().is_empty();
        Ok(Self {
            sets: RangeSet::all(&all).map_err(invalid)?,
            requested,
            routes: ipam.routes,
            data_dir: if none { PathBuf::from(DATA_DIR) } else { ipam.data_dir },
            resolv_conf: ipam.resolv_conf,
        })
    }

    fn store(&self, request: &Request) -> Result<Store, CniError> {
        Store::open(&self.data_dir, &request.network)
    }

    /// One address from each set.
    fn give(&self, request: &Request, store: &Store) -> Result<Vec<IpConfig>, CniError> {
        let mut requested = self.requested.clone();
        let mut ips = Vec::new();
        for (index, set) in self.sets.iter().enumerate() {
            let wanted = requested.iter().position(|addr| set.range_of(*addr).is_some());
            let wanted = wanted.map(|at| requested.swap_remove(at));
            let (range, addr) = match wanted {
                Some(addr) => give_requested(request, store, set, addr)?,
                None => give_any(request, store, set, index)?,
            };
            let address = Cidr { addr, len: range.subnet.len };
            ips.push(IpConfig { interface: None, address, gateway: Some(range.gateway) });
        }
        if let Some(addr) = requested.first() {
            let msg = format!("failed to allocate all requested IPs: {addr} is in no range");
            return Err(CniError::new(Code::InvalidConfig, msg));
        }
        Ok(ips)
    }
}

fn give_requested<'a>(
    request: &Request,
    store: &Store,
    set: &'a RangeSet,
    addr: IpAddr,
) -> Result<(&'a Range, IpAddr), CniError> {
    let no = |msg: String| CniError::new(Code::InvalidConfig, msg);
    let range = set.range_of(addr).ok_or_else(|| no(format!("{addr} is not in range set {set}")))?;
    if range.gateway == addr {
        return Err(no(format!("requested IP {addr} is the gateway of {}", range.subnet)));
    }
    if store.is_free(addr) && store.reserve(&request.attachment(), addr)? {
        return Ok((range, addr));
    }
    let msg = format!("requested IP address {addr} is not available in range set {set}");
    Err(CniError::new(Code::TryAgainLater, msg).details(format!("network {}", request.network)))
}

/// The next free address of a set.
fn give_any<'a>(
    request: &Request,
    store: &Store,
    set: &'a RangeSet,
    index: usize,
) -> Result<(&'a Range, IpAddr), CniError> {
    let last = store.last(index);
    let mut bits = store.bits(index, set);
    let mut sure = bits.is_none();
    if sure {
        bits = store.count_anew(index, set)?;
    }
    let Some(mut bits) = bits else { return give_one_of_many(request, store, set, index) };
    let mut place = last.and_then(|addr| bits.place(addr));
    loop {
        place = bits.free_behind(place);
        let found = place.and_then(|place| Some((place, bits.addr(place)?)));
        let Some((free, addr)) = found else {
            if sure {
                return Err(exhausted(request, set, Some(bits.count(set))));
            }
            // Addresses that others gave back are not known yet.
            let Some(counted) = store.count_anew(index, set)? else {
                return Err(exhausted(request, set, None));
            };
            (bits, sure) = (counted, true);
            continue;
        };
        let given = store.reserve(&request.attachment(), addr)?;
        store.mark_taken(index, &mut bits, free)?;
        if let Some(range) = set.range_of(addr).filter(|_| given) {
            store.set_last(index, addr)?;
            return Ok((range, addr));
        }
    }
}

/// The same where a set has more addresses than bits are kept for.
fn give_one_of_many<'a>(
    request: &Request,
    store: &Store,
    set: &'a RangeSet,
    index: usize,
) -> Result<(&'a Range, IpAddr), CniError> {
    let mut taken = None;
    for (tried, (range, addr)) in set.candidates(store.last(index)).enumerate() {
        // Many that follow each other are listed once rather than asked for one by one.
        if tried == TRIES {
            taken = Some(store.taken()?);
        }
        let free = taken.as_ref().map_or_else(|| store.is_free(addr), |taken| !taken.contains(&addr));
        if free && store.reserve(&request.attachment(), addr)? {
            store.set_last(index, addr)?;
            return Ok((range, addr));
        }
    }
    Err(exhausted(request, set, None))
}

fn exhausted(request: &Request, set: &RangeSet, count: Option<(usize, usize)>) -> CniError {
    let count = count.map(|(used, total)| format!(" ({used} of {total} in use)")).unwrap_or_default();
    let msg = format!("no IP addresses available in range set: {set}{count}");
    CniError::new(Code::TryAgainLater, msg).details(format!("network {}", request.network))
}

impl Plugin for HostLocal {
    fn name(&self) -> &'static str {
        "host-local"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let pool = Pool::of(request)?;
        let dns = resolv_conf(&pool.resolv_conf)?;
        let store = pool.store(request)?;
        let id = request.attachment();
        if !store.of(&id)?.is_empty() {
            let msg = format!("{} has been allocated an address already", id.container_id);
            return Err(
                CniError::new(Code::InvalidEnvironment, msg).details("duplicate allocation is not allowed")
            );
        }
        let ips = pool.give(request, &store).or_else(|error| {
            // Half of what was asked for is nothing.
            store.release(&id)?;
            Err(error)
        })?;
        Ok(CniResult { ips, routes: pool.routes, dns, ..CniResult::default() })
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        // What the ranges are now does not matter: only where the store is.
        let data_dir =
            request.config.pointer("/ipam/dataDir").and_then(|dir| dir.as_str()).unwrap_or(DATA_DIR);
        let data_dir = Path::new(if data_dir.is_empty() { DATA_DIR } else { data_dir });
        if !data_dir.join(&request.network).is_dir() {
            return Ok(());
        }
        Store::open(data_dir, &request.network)?.release(&request.attachment())
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let store = Pool::of(request)?.store(request)?;
        let ours = store.of(&request.attachment())?;
        // Who asks for addresses alone may have no result to show.
        let has = |addr: &IpAddr| {
            request.prev_result.as_ref().is_none_or(|r| r.ips.iter().any(|ip| ip.address.addr == *addr))
        };
        if ours.is_empty() || !ours.iter().all(has) {
            let msg = format!("the addresses of {} are not reserved for it", request.env.container_id);
            return Err(CniError::new(Code::Internal, msg));
        }
        Ok(())
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        let valid = request.valid_attachments()?;
        Pool::of(request)?.store(request)?.keep_only(&valid)
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        // An exhausted pool is no reason to call the whole node not ready: ADD says so to the one Pod.
        Pool::of(request)?.store(request).map(drop)
    }
}

/// The name servers of a file in the form of `resolv.conf(5)`; no file is none.
fn resolv_conf(path: &str) -> Result<Dns, CniError> {
    let mut dns = Dns::default();
    if path.is_empty() {
        return Ok(dns);
    }
    let text = std::fs::read_to_string(path)
        .map_err(|e| CniError::new(Code::Io, format!("cannot read resolvConf {path}")).because(e))?;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace();
        let key = words.next();
        let rest = words.map(str::to_owned);
        match key {
            Some("nameserver") => dns.nameservers.extend(rest.take(1)),
            Some("domain") => dns.domain = rest.take(1).next(),
            Some("search") => dns.search.extend(rest),
            Some("options") => dns.options.extend(rest),
            _ => {}
        }
    }
    Ok(dns)
}
