//! `static`: the addresses that the configuration says, as they are. Nothing is kept, so nothing is in use.
//!
//! Keys: `ipam.addresses` (`address`, `gateway`), `ipam.routes`, `ipam.dns`; `IP` and `GATEWAY` of `CNI_ARGS` are added, `args.cni.ips`
//! and `runtimeConfig.ips` come instead.

use std::net::IpAddr;

use serde::Deserialize;
use trine_kernel::netlink::Cidr;

use super::Plugin;
use crate::spec::{CniError, CniResult, Code, Dns, IpConfig, Request, RouteConfig, Version};

/// The plugin.
pub struct Static;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    ipam: Option<Ipam>,
    runtime_config: Ips,
    args: Args,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Args {
    cni: Ips,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ips {
    ips: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ipam {
    addresses: Vec<Address>,
    routes: Vec<RouteConfig>,
    dns: Dns,
}

#[derive(Debug, Clone, Deserialize)]
struct Address {
    address: String,
    gateway: Option<IpAddr>,
}

fn invalid(msg: String) -> CniError {
    CniError::new(Code::InvalidConfig, msg)
}

fn cidr(text: &str) -> Result<Cidr, CniError> {
    text.trim()
        .parse()
        .map_err(|e| invalid(format!("{text:?} is not an address in CIDR notation")).because(e))
}

/// The addresses of a request, and the rest of its configuration.
fn given(request: &Request) -> Result<(Vec<IpConfig>, Ipam), CniError> {
    let config: Config = request.config()?;
    let ipam = config.ipam.ok_or_else(|| invalid("IPAM config missing 'ipam' key".to_owned()))?;
    let own = |address: &Address| -> Result<IpConfig, CniError> {
        Ok(IpConfig { interface: None, address: cidr(&address.address)?, gateway: address.gateway })
    };
    let bare = |text: &String| -> Result<IpConfig, CniError> {
        Ok(IpConfig { interface: None, address: cidr(text)?, gateway: None })
    };
    let mut ips = ipam.addresses.iter().map(own).collect::<Result<Vec<_>, _>>()?;
    for text in list(request, "IP") {
        ips.push(bare(&text)?);
    }
    for text in list(request, "GATEWAY") {
        let gateway: IpAddr =
            text.parse().map_err(|e| invalid(format!("invalid gateway address: {text}")).because(e))?;
        for ip in ips.iter_mut().filter(|ip| ip.address.contains(gateway)) {
            ip.gateway = Some(gateway);
        }
    }
    for instead in [&config.args.cni.ips, &config.runtime_config.ips] {
        if !instead.is_empty() {
            ips = instead.iter().map(bare).collect::<Result<_, _>>()?;
        }
    }
    let several = |v6: bool| ips.iter().filter(|ip| ip.address.addr.is_ipv6() == v6).count() > 1;
    if request.version < Version::V0_3_0 && (several(false) || several(true)) {
        let msg = format!("CNI version {} does not support more than 1 address per family", request.version);
        return Err(invalid(msg));
    }
    Ok((ips, ipam))
}

/// The parts of a value of `CNI_ARGS`.
fn list(request: &Request, key: &str) -> Vec<String> {
    let text = request.arg(key).unwrap_or_default();
    text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

impl Plugin for Static {
    fn name(&self) -> &'static str {
        "static"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let (ips, ipam) = given(request)?;
        Ok(CniResult { ips, routes: ipam.routes, dns: ipam.dns, ..CniResult::default() })
    }

    fn del(&self, _: &Request) -> Result<(), CniError> {
        Ok(())
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let result = request.need_prev_result()?;
        for ip in given(request)?.0 {
            let same = |other: &&IpConfig| other.address.addr == ip.address.addr;
            let there = result.ips.iter().find(same);
            if there.is_none_or(|there| ip.gateway.is_some() && there.gateway != ip.gateway) {
                let msg = format!("the result has not {} as it is configured", ip.address);
                return Err(CniError::new(Code::Internal, msg));
            }
        }
        Ok(())
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        request.valid_attachments().map(drop)
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        given(request).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::spec::Env;

    fn ask(config: Value, args: &str) -> Result<Vec<String>, CniError> {
        let mut whole = json!({"name": "n", "cniVersion": "1.0.0"});
        for (key, value) in config.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let env = Env { args: args.to_owned(), ..Env::default() };
        let result = Static.add(&Request::new(&env, whole)?)?;
        let text = |ip: &IpConfig| match ip.gateway {
            Some(gateway) => format!("{} by {gateway}", ip.address),
            None => ip.address.to_string(),
        };
        Ok(result.ips.iter().map(text).collect())
    }

    #[test]
    fn addresses_are_added_by_arguments_and_come_instead_by_the_runtimes() {
        let ipam = || json!({"addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}]});
        let rows = [
            (json!({"ipam": ipam()}), "", vec!["10.1.0.5/24 by 10.1.0.1"]),
            (
                json!({"ipam": ipam()}),
                "IP=10.2.0.7/16,fd00::7/64;GATEWAY=10.2.0.1",
                vec!["10.1.0.5/24 by 10.1.0.1", "10.2.0.7/16 by 10.2.0.1", "fd00::7/64"],
            ),
            (json!({"ipam": ipam(), "args": {"cni": {"ips": ["10.3.0.1/8"]}}}), "", vec!["10.3.0.1/8"]),
            (
                json!({"ipam": ipam(), "args": {"cni": {"ips": ["10.3.0.1/8"]}},
                    "runtimeConfig": {"ips": ["10.4.0.1/8"]}}),
                "",
                vec!["10.4.0.1/8"],
            ),
            (json!({"ipam": {}}), "", vec![]),
        ];
        for (config, args, expected) in rows {
            assert_eq!(ask(config.clone(), args).unwrap(), expected, "{config} {args}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for (config, args) in [
            (json!({}), ""),
            (json!({"ipam": {"addresses": [{"address": "10.1.0.5"}]}}), ""),
            (json!({"ipam": {"addresses": [{"address": "here"}]}}), ""),
            (json!({"ipam": {}}), "IP=10.1.0.5"),
            (json!({"ipam": {}}), "GATEWAY=here"),
            (json!({"ipam": {}, "runtimeConfig": {"ips": ["x"]}}), ""),
            (
                json!({"cniVersion": "0.2.0",
                    "ipam": {"addresses": [{"address": "10.1.0.5/24"}, {"address": "10.1.0.6/24"}]}}),
                "",
            ),
        ] {
            let error = ask(config.clone(), args).unwrap_err();
            assert_eq!(error.code, Code::InvalidConfig, "{config} {args}");
        }
    }
}
