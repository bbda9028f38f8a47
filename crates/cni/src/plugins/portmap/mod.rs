//! `portmap`: ports of the host that lead to a container. It is chained behind the plugin that made the container's link.
//!
//! - `plan` which ports lead where, and what has to change (pure)
//! - `rules` the table that the kernel follows (pure)
//! - `state` what is in it
//!
//! Keys: `runtimeConfig.portMappings`, `snat` (on unless it is false: a container reaches itself through the host's port), `instance`
//! (part of the table's name). All that is known of an attachment is in the kernel's table, so nothing outlives the machine, and
//! DEL needs no record. The table goes with its last port.

mod plan;
mod rules;
mod state;

use std::net::IpAddr;

use serde::Deserialize;
use trine_kernel::netlink::{Cidr, Route};
use trine_kernel::nft::{Batch, Family};
use trine_kernel::sysctl;

use self::plan::{Change, Mapping, Port};
use self::state::Table;
use super::Plugin;
use super::owner::{self, Owner};
use crate::spec::{CniError, CniResult, Code, Request};

/// The plugin.
pub struct Portmap;

/// The type of the plugin.
pub const NAME: &str = "portmap";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    instance: String,
    snat: Option<bool>,
    runtime_config: RuntimeConfig,
    #[serde(rename = "conditionsV4")]
    conditions_v4: Option<Vec<String>>,
    #[serde(rename = "conditionsV6")]
    conditions_v6: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeConfig {
    port_mappings: Option<Vec<Port>>,
}

impl Config {
    fn of(request: &Request) -> Result<Self, CniError> {
        let config: Self = request.config()?;
        for (key, conditions) in
            [("conditionsV4", &config.conditions_v4), ("conditionsV6", &config.conditions_v6)]
        {
            if conditions.as_ref().is_some_and(|c| !c.is_empty()) {
                let msg = format!("{key} are words for iptables, which is not used");
                return Err(CniError::new(Code::UnsupportedField, msg).details(key));
            }
        }
        Ok(config)
    }

    fn table(&self) -> String {
        owner::table_name(&self.instance, "ports")
    }

    fn ports(&self) -> &[Port] {
        self.runtime_config.port_mappings.as_deref().unwrap_or_default()
    }
}

const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

/// The device that leads to `target`, the one of its most exact route; none if none does yet.
fn device_of(route: &mut Route, target: IpAddr) -> Result<Option<u32>, CniError> {
    let routes = route.routes(target.is_ipv6())?;
    let fits = routes.iter().filter(|r| r.dst.contains(target) && r.device.is_some());
    Ok(fits.max_by_key(|r| r.dst.len).and_then(|r| r.device))
}

/// Lets answers to the host's own loopback come in by `device`. The table keeps everybody else off it.
fn allow_loopback(route: &mut Route, device: u32) -> Result<(), CniError> {
    let name = route.link(device)?.name;
    Ok(sysctl::ensure(&format!("net/ipv4/conf/{name}/route_localnet"), "1")?)
}

/// Whether connections are to be looked at: those of datagrams alone outlive what led them.
fn has_datagrams(mappings: &[Mapping]) -> bool {
    mappings.iter().any(|m| m.proto == plan::UDP)
}

/// Datagrams' connections that met the host as it was before `mappings` were there.
fn forget_old(table: &mut Table, mappings: &[Mapping]) -> Result<(), CniError> {
    if !has_datagrams(mappings) {
        return Ok(());
    }
    let locals: Vec<IpAddr> = Route::open()?.addresses(None)?.iter().map(|a| a.addr.addr).collect();
    Ok(table.forget(|flow| plan::is_old(flow, mappings, &locals))?)
}

impl Portmap {
    fn map(request: &Request, config: &Config, result: &CniResult) -> Result<(), CniError> {
        let ips: Vec<IpAddr> = result.container_ips().iter().map(|(addr, _)| *addr).collect();
        let mappings = plan::mappings(config.ports(), &ips)?;
        let owner = Owner::of(request);
        for family in FAMILIES {
            let own: Vec<Mapping> =
                mappings.iter().filter(|m| m.target.is_ipv6() == (family == Family::Ip6)).copied().collect();
            let Some(first) = own.first() else { continue };
            let mut route = Route::open()?;
            let device = device_of(&mut route, first.target)?;
            if let (Family::Ip, Some(device)) = (family, device) {
                allow_loopback(&mut route, device)?;
            }
            super::links::forward(&[Cidr::host(first.target)])?;
            let mut table = Table::lock(&config.table(), family)?;
            let hairpin = device.filter(|_| config.snat.unwrap_or(true));
            let change = plan::add(&table.present()?, owner, &own, hairpin);
            let mut batch = Batch::new(family);
            rules::write_fixed(&mut batch, &config.table(), family);
            rules::write_change(&mut batch, &config.table(), &change);
            table.commit(batch)?;
            forget_old(&mut table, &own)?;
        }
        Ok(())
    }

    /// Takes away what belongs to the owners that `goes` names.
    fn unmap(config: &Config, goes: impl Fn(&Owner) -> bool) -> Result<(), CniError> {
        let mut failed = Vec::new();
        for family in FAMILIES {
            failed.extend(Self::unmap_family(config, family, &goes).err());
        }
        CniError::all(failed)
    }

    fn unmap_family(config: &Config, family: Family, goes: impl Fn(&Owner) -> bool) -> Result<(), CniError> {
        let mut table = Table::lock(&config.table(), family)?;
        let present = table.present()?;
        let (change, gone) = plan::remove(&present, goes);
        let mut batch = Batch::new(family);
        match change {
            Change::Nothing => return Ok(()),
            Change::Everything => batch.delete_table(&config.table()),
            change => rules::write_change(&mut batch, &config.table(), &change),
        }
        table.commit(batch)?;
        if !has_datagrams(&gone) {
            return Ok(());
        }
        Ok(table.forget(|flow| gone.iter().any(|mapping| plan::led_to(flow, mapping)))?)
    }
}

impl Plugin for Portmap {
    fn name(&self) -> &'static str {
        NAME
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let config = Config::of(request)?;
        let Some(result) = &request.prev_result else {
            return Err(CniError::new(Code::InvalidConfig, "portmap must be called as a chained plugin"));
        };
        if !config.ports().is_empty() {
            Self::map(request, &config, result).inspect_err(|_| {
                let own = Owner::of(request);
                let _ = Self::unmap(&config, |other| *other == own);
            })?;
        }
        Ok(result.clone())
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        let own = Owner::of(request);
        Self::unmap(&request.config()?, |other| *other == own)
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let config = Config::of(request)?;
        let ips: Vec<IpAddr> =
            request.need_prev_result()?.container_ips().iter().map(|(addr, _)| *addr).collect();
        for mapping in plan::mappings(config.ports(), &ips)? {
            let family = if mapping.target.is_ipv6() { Family::Ip6 } else { Family::Ip };
            if !Table::lock(&config.table(), family)?.present()?.leads(&mapping) {
                let msg = format!("port {} of the host does not lead to {}", mapping.port, mapping.target);
                return Err(CniError::new(Code::Internal, msg));
            }
        }
        Ok(())
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        Self::unmap(&request.config()?, owner::stale(request)?)
    }

    fn status(&self, _: &Request) -> Result<(), CniError> {
        Ok(())
    }
}
