//! What CNI is told of a sandbox. Pure.

use std::path::Path;

use serde_json::{Map, Value, json};
use trine_cni::Attachment;
use trine_cni::spec::NetworkList;
use trine_contracts::cri::{PodSandboxConfig, Protocol};
use trine_contracts::networks::attachments::{ANNOTATION, DEFAULT_LINK};
use trine_contracts::networks::{Attachments, Unusable};

/// The networks of a sandbox, the default one first; none beside it if the annotation cannot be read.
#[must_use]
pub fn attachments(id: &str, netns: &Path, config: &PodSandboxConfig) -> Vec<(String, Attachment)> {
    let asked = asked(config).ok().flatten().unwrap_or_default();
    let own = attachment(id, netns, config);
    let default = match asked.default {
        Some(default) => (default.name.clone(), own.clone().told(default)),
        None => (String::new(), own.clone()),
    };
    let plain = Attachment { capabilities: Map::new(), ..own };
    let others = asked.networks.into_iter().map(|one| (one.name.clone(), plain.clone().told(one)));
    std::iter::once(default).chain(others).collect()
}

/// The names of all links of a sandbox.
#[must_use]
pub fn links(config: &PodSandboxConfig) -> Vec<String> {
    let all = attachments("", Path::new(""), config);
    all.into_iter().map(|(_, attachment)| attachment.ifname).collect()
}

/// What the annotation says, if there is one.
fn asked(config: &PodSandboxConfig) -> Result<Option<Attachments>, Unusable> {
    config.annotations.get(ANNOTATION).map(|text| Attachments::parse(text)).transpose()
}

/// True if the sandbox has networks beside the default one, or another default one.
#[must_use]
pub fn has_others(config: &PodSandboxConfig) -> bool {
    config.annotations.contains_key(ANNOTATION)
}

/// Refuses an annotation that cannot be followed, before anything is made.
///
/// # Errors
/// What is wrong with it.
pub fn check(config: &PodSandboxConfig) -> Result<(), String> {
    let Some(asked) = asked(config).map_err(|e| e.to_string())? else { return Ok(()) };
    for one in asked.default.iter().chain(&asked.networks) {
        if let Some(config) = &one.config {
            NetworkList::parse(config.to_string().as_bytes())
                .map_err(|e| format!("annotation {ANNOTATION}: network {}: {}", one.name, e.chain()))?;
        }
    }
    Ok(())
}

/// The attachment of sandbox `id` to the default network.
fn attachment(id: &str, netns: &Path, config: &PodSandboxConfig) -> Attachment {
    let metadata = config.metadata.clone().unwrap_or_default();
    let args = [
        ("IgnoreUnknown", "1".to_owned()),
        ("K8S_POD_NAMESPACE", metadata.namespace),
        ("K8S_POD_NAME", metadata.name),
        ("K8S_POD_INFRA_CONTAINER_ID", id.to_owned()),
        ("K8S_POD_UID", metadata.uid),
    ];
    Attachment {
        container_id: id.to_owned(),
        netns: netns.to_owned(),
        ifname: DEFAULT_LINK.to_owned(),
        args: args.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        capabilities: capabilities(config),
        ..Attachment::default()
    }
}

fn capabilities(config: &PodSandboxConfig) -> Map<String, Value> {
    let ports: Vec<Value> = config
        .port_mappings
        .iter()
        .filter(|port| port.host_port > 0)
        .map(|port| {
            let protocol = match port.protocol() {
                Protocol::Tcp => "tcp",
                Protocol::Udp => "udp",
                Protocol::Sctp => "sctp",
            };
            json!({
                "hostPort": port.host_port, "containerPort": port.container_port,
                "protocol": protocol, "hostIP": port.host_ip,
            })
        })
        .collect();
    let mut all = Map::new();
    if !ports.is_empty() {
        all.insert("portMappings".to_owned(), Value::Array(ports));
    }
    if let Some(dns) = &config.dns_config {
        all.insert(
            "dns".to_owned(),
            json!({"servers": dns.servers, "searches": dns.searches, "options": dns.options}),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_cni::Which;
    use trine_contracts::cri::{PodSandboxMetadata, PortMapping};

    #[test]
    fn plugins_learn_the_pod_and_its_host_ports() {
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: "p".into(),
                uid: "u".into(),
                namespace: "n".into(),
                attempt: 0,
            }),
            port_mappings: vec![
                PortMapping { container_port: 80, host_port: 8080, ..Default::default() },
                PortMapping { container_port: 81, ..Default::default() },
            ],
            ..Default::default()
        };
        let all = attachments("id", Path::new("/ns"), &config);
        let [(name, attachment)] = &all[..] else { panic!("{all:?}") };
        assert!(name.is_empty() && attachment.which == Which::OfTheNode);
        assert!(attachment.args.contains(&("K8S_POD_NAME".to_owned(), "p".to_owned())));
        let ports = attachment.capabilities["portMappings"].as_array().unwrap();
        assert_eq!(ports.len(), 1);
        assert_eq!(ports[0]["hostPort"], 8080);
    }
    #[test]
    fn other_networks_follow_the_default_one_and_have_none_of_its_ports() {
        let annotation = json!({"default": {"interface": "eth0", "gateways": []}, "networks": [
            {"name": "n/a", "interface": "net1", "config": {"name": "a", "type": "bridge"},
                "wishes": {"ips": ["10.0.0.5/24", "fd00::5"], "mac": "02:00:00:00:00:01"}, "cniArgs": {"k": 1},
                "gateways": ["10.0.0.1"]},
            {"name": "n/b", "interface": "data", "configName": "b"}]});
        let config = PodSandboxConfig {
            annotations: [(ANNOTATION.to_owned(), annotation.to_string())].into(),
            port_mappings: vec![PortMapping { container_port: 80, host_port: 8080, ..Default::default() }],
            ..Default::default()
        };
        assert_eq!(check(&config), Ok(()));
        assert_eq!(links(&config), ["eth0", "net1", "data"]);
        let all = attachments("id", Path::new("/ns"), &config);
        let [(_, default), (a, first), (_, second)] = &all[..] else { panic!("{all:?}") };
        assert!(default.capabilities.contains_key("portMappings") && default.which == Which::OfTheNode);
        assert_eq!(default.gateways.as_deref(), Some(&[][..]));
        assert!(first.capabilities.is_empty() && second.capabilities.is_empty());
        assert_eq!((a.as_str(), first.arg("MAC")), ("n/a", Some("02:00:00:00:00:01")));
        assert_eq!(first.arg("IP"), Some("10.0.0.5/24,fd00::5"));
        assert_eq!((first.cni_args.len(), &second.which), (1, &Which::Named("b".to_owned())));
    }

    #[test]
    fn an_annotation_that_cannot_be_followed_is_refused_with_the_reason() {
        let with = |text: &str| PodSandboxConfig {
            annotations: [(ANNOTATION.to_owned(), text.to_owned())].into(),
            ..Default::default()
        };
        for (text, part) in [
            ("bridge", "expected value"),
            (r#"{"networks":[{"interface":"net1","config":{"type":"x"}}]}"#, "the network has no name"),
            (r#"{"networks":[{"interface":"net1","config":{"name":"x","plugins":[]}}]}"#, "empty"),
        ] {
            let why = check(&with(text)).unwrap_err();
            assert!(why.contains(part) && why.contains(ANNOTATION), "{text}: {why}");
        }
        assert_eq!(links(&with("bridge")), ["eth0"]);
    }
}
