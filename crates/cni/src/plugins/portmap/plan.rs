//! Which ports of the host lead to a container, and what of the kernel's table changes for it. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Deserialize;
use trine_kernel::nft::{Flow, concat, octets};

use crate::plugins::owner::Owner;
use crate::spec::{CniError, Code};

/// UDP's number.
pub const UDP: u8 = 17;
const TCP: u8 = 6;
const SCTP: u8 = 132;

/// One entry of `portMappings`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    host_port: i64,
    container_port: i64,
    #[serde(default)]
    protocol: String,
    #[serde(rename = "hostIP", default)]
    host_ip: String,
}

/// A port of the host that leads to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The host's address; unspecified for all of the family.
    pub host: IpAddr,
    /// TCP, UDP or SCTP.
    pub proto: u8,
    /// The host's port.
    pub port: u16,
    /// The container's address.
    pub target: IpAddr,
    /// The container's port.
    pub target_port: u16,
}

impl Mapping {
    /// Its key in the table.
    pub fn key(&self) -> Vec<u8> {
        concat(&[&octets(self.host), &[self.proto], &self.port.to_be_bytes()])
    }

    /// Where that leads.
    pub fn value(&self) -> Vec<u8> {
        concat(&[&octets(self.target), &self.target_port.to_be_bytes()])
    }

    /// From the table.
    pub fn read(key: &[u8], value: &[u8]) -> Option<Self> {
        let width = value.len().checked_sub(4)?;
        let address = |bytes: &[u8]| match width {
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
            _ => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        };
        let port = |bytes: &[u8]| Some(u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?));
        Some(Self {
            host: address(key.get(..width)?)?,
            proto: *key.get(width)?,
            port: port(key.get(width + 4..)?)?,
            target: address(value.get(..width)?)?,
            target_port: port(value.get(width..)?)?,
        })
    }
}

/// The ports of a container with these addresses; its first address of each family counts.
///
/// # Errors
/// [`Code::InvalidConfig`] for a port, protocol or address that is none.
pub fn mappings(ports: &[Port], ips: &[IpAddr]) -> Result<Vec<Mapping>, CniError> {
    let mut all: Vec<Mapping> = Vec::new();
    for port in ports {
        let bad = |what: String| CniError::new(Code::InvalidConfig, what);
        let number = |value: i64, what: &str| {
            let number = u16::try_from(value).ok().filter(|n| *n > 0);
            number.ok_or_else(|| bad(format!("invalid {what} port number: {value}")))
        };
        let (from, to) = (number(port.host_port, "host")?, number(port.container_port, "container")?);
        let proto = match port.protocol.to_ascii_lowercase().as_str() {
            "" | "tcp" => TCP,
            "udp" => UDP,
            "sctp" => SCTP,
            other => return Err(bad(format!("invalid protocol: {other}"))),
        };
        let host: Option<IpAddr> = match port.host_ip.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|_| bad(format!("invalid hostIP: {text}")))?),
        };
        for v6 in [false, true] {
            let Some(target) = ips.iter().find(|ip| ip.is_ipv6() == v6) else { continue };
            // The loopback of IPv6 cannot be left: the kernel has no setting for it.
            if host.is_some_and(|host| host.is_ipv6() != v6 || (v6 && host.is_loopback())) {
                continue;
            }
            let any = if v6 { IpAddr::from([0; 16]) } else { IpAddr::from([0; 4]) };
            let mapping =
                Mapping { host: host.unwrap_or(any), proto, port: from, target: *target, target_port: to };
            // Of two that begin alike the last one counts.
            all.retain(|other| other.key() != mapping.key());
            all.push(mapping);
        }
    }
    Ok(all)
}

/// What is in the table of one family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Present {
    /// What leads where.
    pub mappings: Vec<Mapping>,
    /// Whose each key is.
    pub owners: Vec<(Vec<u8>, Owner)>,
    /// By which device an owner is reached, if it may reach itself by the host.
    pub devices: Vec<(Owner, u32)>,
}

impl Present {
    /// True if that is in force.
    pub fn leads(&self, mapping: &Mapping) -> bool {
        self.mappings.contains(mapping)
    }
}

/// What is to become of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Nothing,
    /// It goes.
    Everything,
    /// These elements.
    Some {
        /// Keys that go, with their owners.
        keys: Vec<Vec<u8>>,
        /// Owners' devices that go, and devices that are nobody's any more.
        devices: (Vec<(Owner, u32)>, Vec<u32>),
        /// What comes.
        added: Vec<(Mapping, Owner)>,
        /// Owners' devices that come, and devices that were nobody's before.
        new_devices: (Vec<(Owner, u32)>, Vec<u32>),
    },
}

/// The change that makes `mappings` lead to `owner`, whosever they were before.
pub fn add(present: &Present, owner: Owner, mappings: &[Mapping], device: Option<u32>) -> Change {
    let taken: Vec<Vec<u8>> = present.mappings.iter().map(Mapping::key).collect();
    let keys = mappings.iter().map(Mapping::key).filter(|key| taken.contains(key)).collect();
    let new = device.map(|device| (owner, device)).filter(|pair| !present.devices.contains(pair));
    let fresh = new.filter(|(_, device)| !present.devices.iter().any(|(_, other)| other == device));
    Change::Some {
        keys,
        devices: (Vec::new(), Vec::new()),
        added: mappings.iter().map(|mapping| (*mapping, owner)).collect(),
        new_devices: (new.into_iter().collect(), fresh.map(|(_, device)| device).into_iter().collect()),
    }
}

/// The change that takes away what belongs to the owners that `goes` names, and what led to them.
pub fn remove(present: &Present, goes: impl Fn(&Owner) -> bool) -> (Change, Vec<Mapping>) {
    let keys: Vec<Vec<u8>> =
        present.owners.iter().filter(|(_, owner)| goes(owner)).map(|(key, _)| key.clone()).collect();
    let (gone, kept): (Vec<_>, Vec<_>) = present.devices.iter().copied().partition(|(owner, _)| goes(owner));
    let mappings = present.mappings.iter().filter(|m| keys.contains(&m.key())).copied().collect();
    if keys.is_empty() && gone.is_empty() {
        return (Change::Nothing, mappings);
    }
    if keys.len() == present.owners.len() {
        return (Change::Everything, mappings);
    }
    let used: BTreeSet<u32> = kept.iter().map(|(_, device)| *device).collect();
    let unused: BTreeSet<u32> =
        gone.iter().map(|(_, device)| *device).filter(|d| !used.contains(d)).collect();
    let change = Change::Some {
        keys,
        devices: (gone, unused.into_iter().collect()),
        added: Vec::new(),
        new_devices: (Vec::new(), Vec::new()),
    };
    (change, mappings)
}

/// True if a connection of datagrams met the host before one of `mappings` was there; `locals` are the host's addresses.
pub fn is_old(flow: &Flow, mappings: &[Mapping], locals: &[IpAddr]) -> bool {
    let (to, port) = (flow.original.destination, flow.original.destination_port);
    flow.proto == UDP
        && mappings.iter().any(|m| {
            let meant =
                m.host == to || (m.host.is_unspecified() && (locals.contains(&to) || to.is_loopback()));
            m.proto == UDP && m.port == port && meant && flow.reply.source != m.target
        })
}

/// True if a connection of datagrams was led by `mapping`.
pub fn led_to(flow: &Flow, mapping: &Mapping) -> bool {
    let from = (flow.reply.source, flow.reply.source_port);
    flow.proto == UDP
        && mapping.proto == UDP
        && flow.original.destination_port == mapping.port
        && from == (mapping.target, mapping.target_port)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
