//! What a Pod asks for: the two forms of the annotation.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{Unusable, unusable};

/// The annotation of a Pod that names its networks beside the default one.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// The annotation of a Pod that has another default network.
pub const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";

/// The longest name of a link, bytes.
const IFNAME: usize = 15;

/// One network that is asked for.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Selection {
    /// The definition.
    pub name: String,
    /// The definition's namespace.
    #[serde(deserialize_with = "null_is_default")]
    pub namespace: String,
    /// The name of the link, if it is not to be `net1`, `net2`, ...
    #[serde(deserialize_with = "null_is_default")]
    pub interface: String,
    /// Addresses that it is to have, with or without prefix lengths.
    #[serde(deserialize_with = "null_is_default")]
    pub ips: Vec<String>,
    /// The hardware address that it is to have.
    #[serde(deserialize_with = "null_is_default")]
    pub mac: String,
    /// The GUID that it is to have on InfiniBand.
    #[serde(deserialize_with = "null_is_default")]
    pub infiniband_guid: String,
    /// Ports of the host that lead to it.
    #[serde(rename = "portMappings")]
    pub port_mappings: Option<Vec<Port>>,
    /// How much may pass.
    pub bandwidth: Option<Bandwidth>,
    /// Further arguments of the plugins (`args.cni`).
    #[serde(deserialize_with = "null_is_default")]
    pub cni_args: Map<String, Value>,
    /// The Pod's default routes go this way: by these gateways, or, if the list is empty, as the plugins make them.
    pub default_route: Option<Vec<IpAddr>>,
    /// The device that becomes the link.
    #[serde(rename = "deviceID", deserialize_with = "null_is_default")]
    pub device_id: String,
    /// A claim for addresses, which a plugin may look at by itself.
    #[serde(deserialize_with = "null_is_default")]
    pub ipam_claim_reference: String,
}

/// A port of the host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// On the host.
    pub host_port: i64,
    /// In the Pod.
    pub container_port: i64,
    /// `tcp`, `udp` or `sctp`, in any case; TCP if it is empty.
    #[serde(default)]
    pub protocol: String,
    /// The host's address.
    #[serde(default, rename = "hostIP")]
    pub host_ip: String,
}

/// Rates in bits a second, bursts in bits; none and zero are no limit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub struct Bandwidth {
    /// To the Pod.
    pub ingress_rate: u64,
    /// To the Pod at once.
    pub ingress_burst: u64,
    /// From the Pod.
    pub egress_rate: u64,
    /// From the Pod at once.
    pub egress_burst: u64,
}

fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Reads an annotation; definitions without a namespace are in `namespace`.
///
/// # Errors
/// What cannot be meant.
pub fn parse(annotation: &str, namespace: &str) -> Result<Vec<Selection>, Unusable> {
    let mut all: Vec<Selection> = if annotation.contains(['[', '{', '"']) {
        let read = serde_json::from_str::<Vec<Map<String, Value>>>(annotation);
        let read =
            read.and_then(|all| all.into_iter().map(|one| serde_json::from_value(one.into())).collect());
        read.map_err(|e| unusable(format!("the networks that are asked for are no JSON list of them: {e}")))?
    } else {
        annotation.split(',').map(reference).collect::<Result<_, _>>()?
    };
    for selection in &mut all {
        if selection.namespace.is_empty() {
            namespace.clone_into(&mut selection.namespace);
        }
        check(selection)?;
    }
    Ok(all)
}

/// `[namespace/]name[@interface]`.
fn reference(text: &str) -> Result<Selection, Unusable> {
    let text = text.trim();
    let bad = |why: &str| unusable(format!("{text:?} names no network: {why}"));
    let (namespace, rest) =
        text.split_once('/').map_or(("", text), |(namespace, rest)| (namespace.trim(), rest));
    if rest.contains('/') {
        return Err(bad("it has two slashes"));
    }
    if text.contains('/') && namespace.is_empty() {
        return Err(bad("it has no namespace before the slash"));
    }
    let (name, interface) =
        rest.split_once('@').map_or((rest, None), |(name, link)| (name, Some(link.trim())));
    match interface {
        Some("") => return Err(bad("it has no interface behind the @")),
        Some(interface) if interface.contains('@') => return Err(bad("it has two @")),
        _ => {}
    }
    Ok(Selection {
        name: name.trim().to_owned(),
        namespace: namespace.to_owned(),
        interface: interface.unwrap_or_default().to_owned(),
        ..Selection::default()
    })
}

fn check(selection: &Selection) -> Result<(), Unusable> {
    let bad = |why: String| unusable(format!("network {:?}: {why}", selection.name));
    if !is_object_name(&selection.name) {
        return Err(bad("this is not the name of a definition".to_owned()));
    }
    if !is_object_name(&selection.namespace) {
        return Err(bad(format!("{:?} is no namespace", selection.namespace)));
    }
    if !selection.interface.is_empty() && !is_interface(&selection.interface) {
        return Err(bad(format!("{:?} cannot be an interface's name", selection.interface)));
    }
    if let Some(ip) = selection.ips.iter().find(|ip| !is_address(ip)) {
        return Err(bad(format!("{ip:?} is no address")));
    }
    if !selection.mac.is_empty() && !is_hardware(&selection.mac, 6) {
        return Err(bad(format!("{:?} is no hardware address", selection.mac)));
    }
    if !selection.infiniband_guid.is_empty() && !is_hardware(&selection.infiniband_guid, 8) {
        return Err(bad(format!("{:?} is no InfiniBand GUID", selection.infiniband_guid)));
    }
    if !selection.ips.is_empty() && !selection.ipam_claim_reference.is_empty() {
        return Err(bad("addresses come from ips or from an ipam-claim-reference, not from both".to_owned()));
    }
    if selection.port_mappings.as_ref().is_some_and(Vec::is_empty) {
        return Err(bad("portMappings is empty".to_owned()));
    }
    selection.port_mappings.iter().flatten().try_for_each(|port| check_port(port).map_err(bad))?;
    match &selection.bandwidth {
        Some(b)
            if (b.ingress_burst > 0 && b.ingress_rate == 0) || (b.egress_burst > 0 && b.egress_rate == 0) =>
        {
            Err(bad("a burst needs a rate".to_owned()))
        }
        _ => Ok(()),
    }
}

fn check_port(port: &Port) -> Result<(), String> {
    for number in [port.host_port, port.container_port] {
        if !(1..=65535).contains(&number) {
            return Err(format!("{number} is no port"));
        }
    }
    let protocol = port.protocol.to_ascii_lowercase();
    if !["", "tcp", "udp", "sctp"].contains(&protocol.as_str()) {
        return Err(format!("{:?} is no protocol", port.protocol));
    }
    if !port.host_ip.is_empty() && port.host_ip.parse::<IpAddr>().is_err() {
        return Err(format!("{:?} is no address of the host", port.host_ip));
    }
    Ok(())
}

/// Names of objects: parts of DNS-1123, joined by dots.
fn is_object_name(name: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && !part.ends_with('-')
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    name.len() <= 253 && name.split('.').all(part)
}

/// True for what the kernel takes as the name of a link.
pub(crate) fn is_interface(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= IFNAME
        && name != "."
        && name != ".."
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}

fn is_address(text: &str) -> bool {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let most = if address.is_ipv4() { 32 } else { 128 };
    length.is_none_or(|length| length.parse::<u8>().is_ok_and(|length| length <= most))
}

/// Bytes in hex, between colons or dashes.
fn is_hardware(text: &str, bytes: usize) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    parts.len() == bytes && parts.iter().all(|p| p.len() == 2 && p.chars().all(|c| c.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(namespace: &str, name: &str, interface: &str) -> Selection {
        Selection {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            interface: interface.to_owned(),
            ..Selection::default()
        }
    }

    #[test]
    fn the_short_form_names_namespace_definition_and_interface() {
        let rows = [
            ("a", vec![named("pods", "a", "")]),
            ("a,b", vec![named("pods", "a", ""), named("pods", "b", "")]),
            (" a , other/b@eth7 ", vec![named("pods", "a", ""), named("other", "b", "eth7")]),
            ("other / a @ eth1", vec![named("other", "a", "eth1")]),
            ("a,a", vec![named("pods", "a", ""), named("pods", "a", "")]),
            ("a@Up.0_x", vec![named("pods", "a", "Up.0_x")]),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text, "pods"), Ok(expected), "{text}");
        }
    }

    #[test]
    fn the_long_form_has_all_keys_and_passes_over_those_of_others() {
        let text = r#"[
            {"name": "a"},
            {"name": "b", "namespace": "other", "interface": "data", "ips": ["10.2.2.42/24", "fd00::5"],
             "mac": "02:23:45:67:89:01", "infiniband-guid": "24:8a:07:03:00:8d:ae:2f",
             "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "UDP"}],
             "bandwidth": {"ingressRate": 2048, "ingressBurst": 1600}, "cni-args": {"spoofchk": "on"},
             "default-route": ["10.2.2.1"], "deviceID": "0000:18:02.5", "org.example.key": 1},
            {"name": "c", "namespace": null, "ips": null, "cni-args": null, "default-route": []}]"#;
        let all = parse(text, "pods").unwrap();
        assert_eq!(all[0], named("pods", "a", ""));
        let b = &all[1];
        assert_eq!((b.namespace.as_str(), b.interface.as_str()), ("other", "data"));
        assert_eq!(b.ips, ["10.2.2.42/24", "fd00::5"]);
        assert_eq!(b.port_mappings.as_ref().unwrap()[0].protocol, "UDP");
        assert_eq!(b.bandwidth.as_ref().unwrap().ingress_rate, 2048);
        assert_eq!(b.cni_args["spoofchk"], "on");
        assert_eq!(b.default_route.as_deref(), Some(&["10.2.2.1".parse().unwrap()][..]));
        assert_eq!((b.device_id.as_str(), b.infiniband_guid.len()), ("0000:18:02.5", 23));
        assert_eq!(all[2], Selection { default_route: Some(Vec::new()), ..named("pods", "c", "") });
    }

    #[test]
    fn what_names_no_network_is_refused_with_the_reason() {
        let rows = [
            ("", "not the name of a definition"),
            ("a,", "not the name of a definition"),
            ("a/b/c", "two slashes"),
            ("/a", "no namespace before the slash"),
            ("a@b@c", "two @"),
            ("a@", "no interface behind the @"),
            ("A", "not the name of a definition"),
            ("-a", "not the name of a definition"),
            ("a/../b", "two slashes"),
            ("N/a", "is no namespace"),
            ("a@0123456789abcdef", "cannot be an interface's name"),
            (r#"{"name":"a"}"#, "no JSON list"),
            (r#"["a"]"#, "no JSON list"),
            (r#"[["a"]]"#, "no JSON list"),
            (r#"[null]"#, "no JSON list"),
            (r#"[{}]"#, "not the name of a definition"),
            (r#"[{"name":"../x"}]"#, "not the name of a definition"),
            (r#"[{"name":"a","interface":"a b"}]"#, "cannot be an interface's name"),
            (r#"[{"name":"a","interface":".."}]"#, "cannot be an interface's name"),
            (r#"[{"name":"a","ips":["10.0.0"]}]"#, "is no address"),
            (r#"[{"name":"a","ips":["10.0.0.1/33"]}]"#, "is no address"),
            (r#"[{"name":"a","mac":"02:23:45:67:89"}]"#, "is no hardware address"),
            (r#"[{"name":"a","mac":"02:23:45:67:89:zz"}]"#, "is no hardware address"),
            (r#"[{"name":"a","infiniband-guid":"24:8a"}]"#, "is no InfiniBand GUID"),
            (r#"[{"name":"a","portMappings":[]}]"#, "portMappings is empty"),
            (r#"[{"name":"a","portMappings":[{"hostPort":0,"containerPort":1}]}]"#, "0 is no port"),
            (
                r#"[{"name":"a","portMappings":[{"hostPort":1,"containerPort":1,"protocol":"icmp"}]}]"#,
                "no protocol",
            ),
            (r#"[{"name":"a","bandwidth":{"egressBurst":5}}]"#, "a burst needs a rate"),
            (r#"[{"name":"a","default-route":["gateway"]}]"#, "no JSON list"),
            (r#"[{"name":"a","ips":["10.0.0.1"],"ipam-claim-reference":"x"}]"#, "not from both"),
        ];
        for (text, part) in rows {
            let why = parse(text, "pods").unwrap_err().to_string();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
