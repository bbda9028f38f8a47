//! What ADD answers. In memory it has the newest shape; on the wire that of the version asked for.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trine_kernel::netlink::Cidr;

use super::result_legacy;
use super::{CniError, Code, Version};

/// A result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CniResult {
    /// The links that were made, host's and container's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// The addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpConfig>,
    /// The routes inside the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteConfig>,
    /// Name servers.
    #[serde(default)]
    pub dns: Dns,
}

/// A link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its MTU, in bytes (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The namespace that it is in; none on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// A socket that belongs to it (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_path: Option<String>,
    /// The device that it belongs to (1.1.0).
    #[serde(default, rename = "pciID", skip_serializing_if = "Option::is_none")]
    pub pci_id: Option<String>,
}

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpConfig {
    /// Which of the interfaces has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// The address with its prefix length.
    pub address: Cidr,
    /// The gateway of its subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteConfig {
    /// Where to.
    pub dst: Cidr,
    /// By which neighbour; none is the gateway of the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// The path MTU, in bytes (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The MSS to advertise, in bytes (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// The priority (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The table (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The scope, by its number (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

impl RouteConfig {
    /// A route to `dst` by `gw`.
    #[must_use]
    pub fn new(dst: Cidr, gw: Option<IpAddr>) -> Self {
        Self { dst, gw, mtu: None, advmss: None, priority: None, table: None, scope: None }
    }
}

/// Name servers and how to use them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Their addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The domains to search.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options of the resolver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Dns {
    /// True if it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl CniResult {
    /// Reads a result of any version.
    ///
    /// # Errors
    /// [`Code::IncompatibleVersion`], [`Code::Decoding`].
    pub fn from_json(value: &Value) -> Result<Self, CniError> {
        let version = Version::choose(value.get("cniVersion").and_then(Value::as_str), &[])?;
        let read = if version <= Version::V0_2_0 {
            result_legacy::from_json(value)
        } else {
            Self::deserialize(value)
        };
        read.map_err(|e| {
            CniError::new(Code::Decoding, format!("a result of version {version} cannot be read")).because(e)
        })
    }

    /// The JSON of the result in `version`. What that version cannot say is left out.
    #[must_use]
    pub fn to_json(&self, version: Version) -> Value {
        if version <= Version::V0_2_0 {
            return result_legacy::to_json(self, version);
        }
        let mut result = self.clone();
        if version < Version::V1_1_0 {
            for interface in &mut result.interfaces {
                let Interface { name, mac, sandbox, .. } = std::mem::take(interface);
                *interface = Interface { name, mac, sandbox, ..Interface::default() };
            }
            for route in &mut result.routes {
                *route = RouteConfig::new(route.dst, route.gw);
            }
        }
        let mut value = json!(result);
        value["cniVersion"] = json!(version.text());
        if version < Version::V1_0_0
            && let Some(ips) = value.get_mut("ips").and_then(Value::as_array_mut)
        {
            for (ip, config) in ips.iter_mut().zip(&self.ips) {
                ip["version"] = json!(if config.address.addr.is_ipv4() { "4" } else { "6" });
            }
        }
        value
    }

    /// The addresses of the container's own link: those on an interface with a sandbox, or on none in particular.
    #[must_use]
    pub fn container_ips(&self) -> Vec<(IpAddr, u8)> {
        let inside = |ip: &&IpConfig| match ip.interface.and_then(|index| self.interfaces.get(index)) {
            Some(interface) => interface.sandbox.as_ref().is_some_and(|sandbox| !sandbox.is_empty()),
            None => true,
        };
        self.ips.iter().filter(inside).map(|ip| (ip.address.addr, ip.address.len)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newest() -> Value {
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                {"name": "tr1", "mac": "02:00:00:00:00:01", "mtu": 1500},
                {"name": "eth0", "mac": "02:00:00:00:00:02", "mtu": 1500, "sandbox": "/run/n"}],
            "ips": [
                {"interface": 1, "address": "10.1.0.5/24", "gateway": "10.1.0.1"},
                {"interface": 1, "address": "fd00::5/64", "gateway": "fd00::1"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1", "mtu": 1400, "scope": 0}, {"dst": "::/0"}],
            "dns": {"nameservers": ["10.96.0.10"], "search": ["a.b"]},
        })
    }

    #[test]
    fn every_version_has_its_own_shape() {
        let result = CniResult::from_json(&newest()).unwrap();
        assert_eq!(result.to_json(Version::V1_1_0), newest());
        let v1 = result.to_json(Version::V1_0_0);
        assert_eq!(v1["interfaces"][0], json!({"name": "tr1", "mac": "02:00:00:00:00:01"}));
        assert_eq!(v1["routes"][0], json!({"dst": "0.0.0.0/0", "gw": "10.1.0.1"}));
        assert_eq!(v1["ips"][0].get("version"), None);
        let v04 = result.to_json(Version::V0_4_0);
        assert_eq!(v04["ips"][0]["version"], "4");
        assert_eq!(v04["ips"][1]["version"], "6");
        let v02 = result.to_json(Version::V0_2_0);
        assert_eq!(
            v02,
            json!({
                "cniVersion": "0.2.0",
                "ip4": {"ip": "10.1.0.5/24", "gateway": "10.1.0.1",
                    "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}]},
                "ip6": {"ip": "fd00::5/64", "gateway": "fd00::1", "routes": [{"dst": "::/0"}]},
                "dns": {"nameservers": ["10.96.0.10"], "search": ["a.b"]},
            })
        );
    }

    #[test]
    fn every_version_reads_back_what_it_can_say() {
        let result = CniResult::from_json(&newest()).unwrap();
        for version in super::super::ALL_VERSIONS {
            let wire = result.to_json(version);
            let back = CniResult::from_json(&wire).unwrap();
            assert_eq!(back.to_json(version), wire, "{version}");
            let ips: Vec<IpAddr> = back.container_ips().into_iter().map(|(ip, _)| ip).collect();
            assert_eq!(
                ips,
                vec!["10.1.0.5".parse::<IpAddr>().unwrap(), "fd00::5".parse().unwrap()],
                "{version}"
            );
        }
    }

    #[test]
    fn addresses_of_host_links_are_not_the_containers() {
        let mut value = newest();
        value["ips"][0]["interface"] = json!(0);
        let result = CniResult::from_json(&value).unwrap();
        assert_eq!(result.container_ips(), vec![("fd00::5".parse().unwrap(), 64)]);
    }
}
