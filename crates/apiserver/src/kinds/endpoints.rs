//! EndpointSlices and Endpoints.

use super::columns::{age, name, some_of};
use super::fields::{default, is_unset, items, items_mut, set, text};
use super::{Cause, Causes, Column, Hooks};
use serde_json::Value;
use std::net::IpAddr;

/// The most endpoints of a slice.
const MAX_ENDPOINTS: usize = 1000;
/// The most addresses of an endpoint.
const MAX_ADDRESSES: usize = 100;

/// The hooks of EndpointSlices.
pub struct Slices;

impl Hooks for Slices {
    fn defaults(&self, obj: &mut Value) {
        for port in items_mut(obj, "ports") {
            if port["name"].is_null() {
                set(port, "name", "");
            }
            default(port, "protocol", "TCP");
        }
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let kind = text(obj, "addressType");
        if kind.is_empty() {
            causes.add(Cause::required("addressType", ""));
        } else if !["FQDN", "IPv4", "IPv6"].contains(&kind) {
            causes.add(Cause::not_supported("addressType", kind, &["FQDN", "IPv4", "IPv6"]));
        }
        if items(obj, "endpoints").len() > MAX_ENDPOINTS {
            causes.add(Cause::invalid(
                "endpoints",
                items(obj, "endpoints").len(),
                &format!("must have at most {MAX_ENDPOINTS} items"),
            ));
        }
        for (i, endpoint) in items(obj, "endpoints").iter().enumerate() {
            addresses(endpoint, kind, &format!("endpoints[{i}].addresses"), &mut causes);
        }
        for (i, port) in items(obj, "ports").iter().enumerate() {
            let path = format!("ports[{i}]");
            causes.range(port, "port", &path, 1, 65_535);
            causes.one_of(port, "protocol", &path, &["SCTP", "TCP", "UDP"]);
        }
        if old.is_some_and(|old| old["addressType"] != obj["addressType"]) {
            causes.add(Cause::invalid("addressType", kind, "field is immutable"));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("AddressType"),
                Column::text("Ports"),
                Column::text("Endpoints"),
                Column::AGE,
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let shown = |p: &Value| if p["port"].is_null() { "*".to_owned() } else { p["port"].to_string() };
        let ports: Vec<String> = items(obj, "ports").iter().map(shown).collect();
        let all = items(obj, "endpoints").iter().flat_map(|e| items(e, "addresses"));
        let addresses: Vec<String> = all.filter_map(|a| a.as_str().map(str::to_owned)).collect();
        let none = |list: &[String]| if list.is_empty() { "<unset>".to_owned() } else { some_of(list) };
        vec![
            name(obj),
            text(obj, "addressType").into(),
            none(&ports).into(),
            none(&addresses).into(),
            age(obj, now_unix),
        ]
    }
}

fn addresses(endpoint: &Value, kind: &str, path: &str, causes: &mut Causes) {
    let list = items(endpoint, "addresses");
    if list.is_empty() {
        causes.add(Cause::required(path, "must contain at least 1 address"));
    } else if list.len() > MAX_ADDRESSES {
        causes.add(Cause::invalid(path, list.len(), &format!("must have at most {MAX_ADDRESSES} items")));
    }
    for (i, address) in list.iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        let (fits, detail) = match (kind, address.parse::<IpAddr>()) {
            ("IPv4", parsed) => (parsed.is_ok_and(|ip| ip.is_ipv4()), "must be an IPv4 address"),
            ("IPv6", parsed) => (parsed.is_ok_and(|ip| ip.is_ipv6()), "must be an IPv6 address"),
            _ => (!address.is_empty(), "must be a domain name"),
        };
        if !fits {
            causes.add(Cause::invalid(format!("{path}[{i}]"), address, detail));
        }
    }
}

/// The hooks of Endpoints.
pub struct Endpoints;

impl Hooks for Endpoints {
    fn defaults(&self, obj: &mut Value) {
        for subset in items_mut(obj, "subsets") {
            items_mut(subset, "ports").for_each(|port| default(port, "protocol", "TCP"));
        }
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        for (i, subset) in items(obj, "subsets").iter().enumerate() {
            let path = format!("subsets[{i}]");
            if items(subset, "addresses").is_empty() && items(subset, "notReadyAddresses").is_empty() {
                causes.add(Cause::required(path.clone(), "must specify `addresses` or `notReadyAddresses`"));
            }
            for list in ["addresses", "notReadyAddresses"] {
                for (j, address) in items(subset, list).iter().enumerate() {
                    if text(address, "ip").parse::<IpAddr>().is_err() {
                        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                        causes.add(Cause::invalid(
                            format!("{path}.{list}[{j}].ip"),
                            text(address, "ip"),
                            detail,
                        ));
                    }
                }
            }
            for (j, port) in items(subset, "ports").iter().enumerate() {
                let path = format!("{path}.ports[{j}]");
                if is_unset(&port["port"]) {
                    causes.add(Cause::invalid(
                        format!("{path}.port"),
                        0,
                        "must be between 1 and 65535, inclusive",
                    ));
                }
                causes.range(port, "port", &path, 1, 65_535);
                causes.one_of(port, "protocol", &path, &["SCTP", "TCP", "UDP"]);
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Endpoints"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let mut list = Vec::new();
        for subset in items(obj, "subsets") {
            for address in items(subset, "addresses") {
                let ip = text(address, "ip");
                let ports = items(subset, "ports");
                if ports.is_empty() {
                    list.push(ip.to_owned());
                }
                list.extend(ports.iter().map(|p| format!("{ip}:{}", p["port"])));
            }
        }
        vec![name(obj), some_of(&list).into(), age(obj, now_unix)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_fit_the_type_of_their_slice() {
        for (kind, address, fine) in [
            ("IPv4", "10.0.0.1", true),
            ("IPv4", "fd00::1", false),
            ("IPv6", "fd00::1", true),
            ("FQDN", "a.b", true),
            ("X", "a", false),
        ] {
            let slice = json!({"addressType": kind, "endpoints": [{"addresses": [address]}]});
            assert_eq!(Slices.validate(&slice, None).is_empty(), fine, "{kind} {address}");
        }
    }

    #[test]
    fn rows_are_short() {
        let many: Vec<Value> = (1..=5).map(|i| json!({"addresses": [format!("10.0.0.{i}")]})).collect();
        let row = Slices.row(&json!({"addressType": "IPv4", "ports": [{"port": 80}], "endpoints": many}), 0);
        assert_eq!(row[3], "10.0.0.1,10.0.0.2,10.0.0.3 + 2 more...");
        let row = Endpoints
            .row(&json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}), 0);
        assert_eq!(row[1], "10.0.0.1:80");
    }
}
