//! The results of versions 0.1.0 and 0.2.0: one address of each family, no interfaces.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trine_kernel::netlink::Cidr;

use super::{CniResult, Dns, IpConfig, RouteConfig, Version};

#[derive(Serialize, Deserialize)]
struct Legacy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip4: Option<LegacyIp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip6: Option<LegacyIp>,
    #[serde(default)]
    dns: Dns,
}

#[derive(Serialize, Deserialize)]
struct LegacyIp {
    ip: Cidr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    routes: Vec<RouteConfig>,
}

/// Reads one.
pub(super) fn from_json(value: &Value) -> Result<CniResult, serde_json::Error> {
    let legacy = Legacy::deserialize(value)?;
    let mut result = CniResult { dns: legacy.dns, ..CniResult::default() };
    for ip in [legacy.ip4, legacy.ip6].into_iter().flatten() {
        result.ips.push(IpConfig { interface: None, address: ip.ip, gateway: ip.gateway });
        result.routes.extend(ip.routes);
    }
    Ok(result)
}

/// The first address of each family, with the routes of that family.
pub(super) fn to_json(result: &CniResult, version: Version) -> Value {
    let family = |v4: bool| {
        let ip = result.ips.iter().find(|ip| ip.address.addr.is_ipv4() == v4)?;
        let routes = result.routes.iter().filter(|route| route.dst.addr.is_ipv4() == v4);
        let routes = routes.map(|route| RouteConfig::new(route.dst, route.gw)).collect();
        Some(LegacyIp { ip: ip.address, gateway: ip.gateway, routes })
    };
    let legacy = Legacy { ip4: family(true), ip6: family(false), dns: result.dns.clone() };
    let mut value = json!(legacy);
    value["cniVersion"] = json!(version.text());
    value
}
