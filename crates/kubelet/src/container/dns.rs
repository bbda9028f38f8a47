//! Resolvers of a Pod, by its dnsPolicy.

use std::net::IpAddr;

use trine_contracts::cri::DnsConfig;
use trine_typed::k8s_openapi::api::core::v1::Pod;

/// Nameservers that a resolver reads (upstream and libc).
const MAX_SERVERS: usize = 3;
/// Search domains (upstream).
const MAX_SEARCHES: usize = 32;

/// What the resolver configuration depends on.
pub struct DnsInput<'a> {
    /// The node's own `resolv.conf`, as text.
    pub node: &'a str,
    /// The cluster's resolvers.
    pub cluster: &'a [IpAddr],
    /// The cluster's domain.
    pub domain: &'a str,
}

/// The configuration for `pod`.
#[must_use]
pub fn config(pod: &Pod, input: &DnsInput<'_>) -> DnsConfig {
    let spec = pod.spec.as_ref();
    let policy = spec.and_then(|s| s.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let host_network = spec.and_then(|s| s.host_network).unwrap_or_default();
    let node = parse(input.node);
    let cluster_first = match policy {
        "ClusterFirstWithHostNet" => true,
        "ClusterFirst" => !host_network,
        _ => false,
    } && !input.cluster.is_empty();
    let mut config = match policy {
        "None" => DnsConfig::default(),
        _ if cluster_first => cluster(pod, input, &node),
        _ => node,
    };
    if let Some(own) = spec.and_then(|s| s.dns_config.as_ref()) {
        append(&mut config.servers, own.nameservers.iter().flatten());
        append(&mut config.searches, own.searches.iter().flatten());
        for option in own.options.iter().flatten() {
            let Some(name) = option.name.as_deref() else { continue };
            config.options.retain(|o| o.split(':').next() != Some(name));
            config.options.push(match option.value.as_deref() {
                Some(value) if !value.is_empty() => format!("{name}:{value}"),
                _ => name.to_owned(),
            });
        }
    }
    config.servers.truncate(MAX_SERVERS);
    config.searches.truncate(MAX_SEARCHES);
    config
}

fn cluster(pod: &Pod, input: &DnsInput<'_>, node: &DnsConfig) -> DnsConfig {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let mut searches = vec![
        format!("{namespace}.svc.{}", input.domain),
        format!("svc.{}", input.domain),
        input.domain.to_owned(),
    ];
    append(&mut searches, node.searches.iter());
    DnsConfig {
        servers: input.cluster.iter().map(ToString::to_string).collect(),
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

fn append<'a>(list: &mut Vec<String>, more: impl Iterator<Item = &'a String>) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

/// Reads a `resolv.conf`.
#[must_use]
pub fn parse(text: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(keyword) = words.next() else { continue };
        match keyword {
            "nameserver" => config.servers.extend(words.next().map(str::to_owned)),
            "search" | "domain" => config.searches = words.map(str::to_owned).collect(),
            "options" => config.options.extend(words.map(str::to_owned)),
            _ => {}
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_policy_gets_its_resolvers() {
        let dns = ["10.96.0.10".parse().unwrap()];
        let input = DnsInput {
            node: "nameserver 1.1.1.1 # x\nsearch lan\noptions rotate",
            cluster: &dns,
            domain: "cluster.local",
        };
        let none = DnsInput { cluster: &[], ..input };
        let pod = |spec: serde_json::Value| -> Pod {
            let mut spec = spec;
            spec["containers"] = json!([]);
            serde_json::from_value(json!({"metadata": {"namespace": "n"}, "spec": spec})).unwrap()
        };
        let cluster = config(&pod(json!({})), &input);
        assert_eq!(cluster.servers, ["10.96.0.10"]);
        assert_eq!(cluster.searches, ["n.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"]);
        assert_eq!(cluster.options, ["ndots:5"]);
        let rows = [
            ("Default", json!({"dnsPolicy": "Default"}), "1.1.1.1"),
            ("ClusterFirst on the host network", json!({"hostNetwork": true}), "1.1.1.1"),
            (
                "with host net",
                json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
                "10.96.0.10",
            ),
            ("None", json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["9.9.9.9"]}}), "9.9.9.9"),
        ];
        for (name, spec, server) in rows {
            assert_eq!(config(&pod(spec), &input).servers, [server], "{name}");
        }
        assert_eq!(config(&pod(json!({})), &none).servers, ["1.1.1.1"]);
        let own = config(&pod(json!({"dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}})), &input);
        assert_eq!(own.options, ["ndots:2"]);
    }
}
