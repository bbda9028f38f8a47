//! `vrf`: puts the container's link into a routing domain in the container. It is chained behind the plugin that made the link. The
//! kernel must have VRF.
//!
//! Keys: `vrfname`, `table` (the first that no other VRF has if 0).

use std::collections::BTreeSet;

use serde::Deserialize;
use trine_kernel::netlink::{Link, LinkChange, NewKind, NewLink, Request as Change, Route};

use super::{Plugin, inside};
use crate::spec::{CniError, CniResult, Code, Request, Version};

/// The plugin.
pub struct Vrf;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    vrfname: String,
    table: u32,
}

impl Config {
    fn of(request: &Request) -> Result<Self, CniError> {
        if request.version < Version::V0_3_1 {
            let msg = format!("vrf does not speak version {}", request.version);
            return Err(CniError::new(Code::IncompatibleVersion, msg));
        }
        let config: Self = request.config()?;
        if config.vrfname.is_empty() {
            let msg = "configuration is expected to have a valid vrf name";
            return Err(CniError::new(Code::InvalidConfig, msg));
        }
        Ok(config)
    }

    /// The routing domain; none if there is none yet.
    fn find(&self, links: &[Link]) -> Result<Option<Link>, CniError> {
        let invalid = |msg: String| Err(CniError::new(Code::InvalidConfig, msg));
        let Some(link) = links.iter().find(|link| link.name == self.vrfname) else { return Ok(None) };
        match (link.kind.as_deref(), link.vrf_table) {
            (Some("vrf"), Some(table)) if self.table != 0 && self.table != table => {
                invalid(format!("VRF {} already exist with different routing table {table}", self.vrfname))
            }
            (Some("vrf"), _) => Ok(Some(link.clone())),
            _ => invalid(format!("link {} is not a VRF", self.vrfname)),
        }
    }
}

/// The first table that no VRF has.
fn free_table(links: &[Link]) -> u32 {
    let used: BTreeSet<u32> = links.iter().filter_map(|link| link.vrf_table).collect();
    (1..u32::MAX).find(|table| !used.contains(table)).unwrap_or(u32::MAX)
}

/// The request that makes a routing domain.
fn make(name: &str, table: u32) -> Change {
    let kind = NewKind::Vrf { table };
    NewLink { name, kind, parent: None, netns: None, mac: None, mtu: None, up: true }.request()
}

fn join(pod: &mut Route, config: &Config, ifname: &str) -> Result<(), CniError> {
    let links = pod.links()?;
    let own = pod.link(ifname)?;
    if let Some(master) = own.master {
        let msg = format!("interface {ifname} has already a master set: link {master}");
        return Err(CniError::new(Code::InvalidConfig, msg));
    }
    let vrf = match config.find(&links)? {
        Some(vrf) => vrf,
        None => {
            let table = if config.table == 0 { free_table(&links) } else { config.table };
            pod.run(&[make(&config.vrfname, table)])?;
            pod.link(&config.vrfname)?
        }
    };
    // The kernel takes global IPv6 addresses away from a link that joins.
    let lost: Vec<_> = pod
        .addresses(Some(own.index))?
        .into_iter()
        .filter(|a| a.addr.addr.is_ipv6() && !a.link_scope)
        .collect();
    pod.set_link(&own, &LinkChange { master: Some(vrf.index), ..LinkChange::default() })?;
    let again = lost.iter().map(|a| Change::replace_address(own.index, a.addr));
    Ok(pod.run(&again.collect::<Vec<_>>())?)
}

fn leave(pod: &mut Route, config: &Config, ifname: &str) -> Result<(), CniError> {
    let Some(vrf) = pod.find_link(&config.vrfname)?.filter(|l| l.kind.as_deref() == Some("vrf")) else {
        return Ok(());
    };
    if let Some(own) = pod.find_link(ifname)?
        && own.master == Some(vrf.index)
    {
        pod.set_link(&own, &LinkChange { master: Some(0), ..LinkChange::default() })?;
    }
    if pod.links()?.iter().any(|link| link.master == Some(vrf.index)) {
        return Ok(());
    }
    Ok(pod.del_link(&vrf)?)
}

impl Plugin for Vrf {
    fn name(&self) -> &'static str {
        "vrf"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let config = Config::of(request)?;
        let result = request.need_prev_result()?;
        let (_, mut pod) = inside::open(request)?;
        join(&mut pod, &config, &request.env.ifname)?;
        Ok(result.clone())
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        let config = Config::of(request)?;
        match inside::open_if_there(request)? {
            Some((_, mut pod)) => leave(&mut pod, &config, &request.env.ifname),
            None => Ok(()),
        }
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let config = Config::of(request)?;
        request.need_prev_result()?;
        let (_, mut pod) = inside::open(request)?;
        let vrf = config.find(&pod.links()?)?;
        let own = pod.find_link(&request.env.ifname)?;
        if vrf.zip(own).is_some_and(|(vrf, own)| own.master == Some(vrf.index)) {
            return Ok(());
        }
        let msg = format!("{} is not in the VRF {}", request.env.ifname, config.vrfname);
        Err(CniError::new(Code::Internal, msg))
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        request.valid_attachments().map(drop)
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        Config::of(request).map(drop)
    }
}
