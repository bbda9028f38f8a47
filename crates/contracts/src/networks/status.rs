//! What is written on the Pod of the networks that it is attached to.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::attachments::Attached;

/// The annotation of a Pod that says how it is attached.
pub const ANNOTATION: &str = "k8s.v1.cni.cncf.io/network-status";

/// One entry of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Entry {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    interface: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    mac: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    default: bool,
    dns: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_info: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gateway: Vec<String>,
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The annotation: an entry for each link inside, in the order of attachment.
#[must_use]
pub fn annotation(attached: &[Attached]) -> String {
    let entries: Vec<Entry> = attached.iter().flat_map(entries).collect();
    serde_json::to_string_pretty(&entries).unwrap_or_default()
}

fn entries(one: &Attached) -> Vec<Entry> {
    let result = &one.result;
    let inside = |(_, link): &(usize, &Value)| !text(link, "sandbox").is_empty();
    let links: Vec<(usize, &Value)> = list(result, "interfaces").iter().enumerate().filter(inside).collect();
    let addresses = |of: Option<usize>, others: bool| {
        let belongs = |ip: &&Value| match ip["interface"].as_u64().and_then(|i| usize::try_from(i).ok()) {
            Some(link) => of == Some(link),
            None => others,
        };
        let ips = list(result, "ips").iter().filter(belongs);
        // Without prefix lengths, as Multus writes them.
        ips.filter_map(|ip| ip["address"].as_str()?.split('/').next().map(str::to_owned)).collect()
    };
    let common = Entry {
        name: one.name.clone(),
        dns: result["dns"].as_object().cloned().unwrap_or_default(),
        gateway: gateways(result),
        ..Entry::default()
    };
    if links.is_empty() {
        let interface = one.interface.clone();
        return vec![Entry { interface, ips: addresses(None, true), default: one.default, ..common }];
    }
    // Addresses that belong to no link are the last one's; the default is the one with a gateway, else the first.
    let last = links.len() - 1;
    let with_gateway = list(result, "ips")
        .iter()
        .filter(|ip| ip["gateway"].is_string())
        .find_map(|ip| ip["interface"].as_u64());
    let gateway =
        with_gateway.and_then(|index| links.iter().position(|(i, _)| *i as u64 == index)).unwrap_or(0);
    let entry = |(place, (index, link)): (usize, &(usize, &Value))| Entry {
        interface: text(link, "name"),
        ips: addresses(Some(*index), place == last),
        mac: text(link, "mac"),
        mtu: link["mtu"].as_u64().filter(|mtu| *mtu > 0),
        default: one.default && place == gateway,
        device_info: device(link),
        ..common.clone()
    };
    links.iter().enumerate().map(entry).collect()
}

/// The gateways of its default routes.
fn gateways(result: &Value) -> Vec<String> {
    let default = |route: &&Value| route["dst"].as_str().is_some_and(|dst| dst.ends_with("/0"));
    let of_address = |dst: &str| {
        let family = |ip: &&Value| text(ip, "address").contains(':') == dst.contains(':');
        list(result, "ips").iter().filter(family).find_map(|ip| ip["gateway"].as_str().map(str::to_owned))
    };
    let gateway = |route: &Value| {
        let own = route["gw"].as_str().map(str::to_owned);
        own.or_else(|| of_address(route["dst"].as_str().unwrap_or_default()))
    };
    list(result, "routes").iter().filter(default).filter_map(gateway).collect()
}

/// What is known of the device behind a link.
fn device(link: &Value) -> Option<Value> {
    let pci = link["pciID"].as_str().filter(|id| !id.is_empty())?;
    Some(json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": pci}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attached(name: &str, default: bool, result: Value) -> Attached {
        Attached { name: name.to_owned(), interface: "net1".to_owned(), default, result }
    }

    fn written(of: &[Attached]) -> Value {
        serde_json::from_str(&annotation(of)).unwrap()
    }

    #[test]
    fn each_network_has_an_entry_as_multus_writes_it() {
        let default = attached(
            "trine",
            true,
            json!({"interfaces": [{"name": "host"}, {"name": "eth0", "mac": "02:00:00:00:00:01", "mtu": 1500, "sandbox": "/n"}],
                "ips": [{"interface": 1, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}, {"interface": 0, "address": "10.9.0.1/8"}],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.96.0.0/12", "gw": "10.1.0.2"}], "dns": {}}),
        );
        let other = attached(
            "pods/a",
            false,
            json!({"interfaces": [{"name": "net1", "mac": "02:00:00:00:00:02", "sandbox": "/n", "pciID": "0000:18:02.5"}],
                "ips": [{"interface": 0, "address": "fd00::5/64"}], "routes": [{"dst": "::/0", "gw": "fd00::1"}],
                "dns": {"nameservers": ["10.9.9.9"]}}),
        );
        assert_eq!(
            written(&[default, other]),
            json!([
                {"name": "trine", "interface": "eth0", "ips": ["10.1.0.5"], "mac": "02:00:00:00:00:01", "mtu": 1500,
                    "default": true, "dns": {}, "gateway": ["10.1.0.1"]},
                {"name": "pods/a", "interface": "net1", "ips": ["fd00::5"], "mac": "02:00:00:00:00:02",
                    "dns": {"nameservers": ["10.9.9.9"]}, "gateway": ["fd00::1"],
                    "device-info": {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:18:02.5"}}},
            ])
        );
    }

    #[test]
    fn a_result_without_links_is_that_of_the_link_that_was_asked_for() {
        let old = attached("pods/a", false, json!({"ips": [{"address": "10.1.0.5/24"}], "dns": {}}));
        assert_eq!(
            written(&[old]),
            json!([{"name": "pods/a", "interface": "net1", "ips": ["10.1.0.5"], "dns": {}}])
        );
        let none = attached("pods/a", false, json!({}));
        assert_eq!(written(&[none]), json!([{"name": "pods/a", "interface": "net1", "dns": {}}]));
    }

    #[test]
    fn several_links_of_one_network_are_several_entries_and_one_is_the_default() {
        let two = attached(
            "n",
            true,
            json!({"interfaces": [{"name": "a", "sandbox": "/n"}, {"name": "b", "sandbox": "/n"}],
                "ips": [{"interface": 0, "address": "10.0.0.2/24"}, {"interface": 1, "address": "10.1.0.2/24", "gateway": "10.1.0.1"},
                    {"address": "10.2.0.2/24"}]}),
        );
        assert_eq!(
            written(&[two]),
            json!([{"name": "n", "interface": "a", "ips": ["10.0.0.2"], "dns": {}},
                {"name": "n", "interface": "b", "ips": ["10.1.0.2", "10.2.0.2"], "default": true, "dns": {}}])
        );
    }
}
