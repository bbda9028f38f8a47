//! What CNI is told of a sandbox. Pure.

use std::path::Path;

use serde_json::{Map, Value, json};
use trine_cni::Attachment;
use trine_contracts::cri::{PodSandboxConfig, Protocol};

/// The name of a Pod's link.
pub(crate) const LINK: &str = "eth0";

/// The attachment of sandbox `id`.
#[must_use]
pub fn attachment(id: &str, netns: &Path, config: &PodSandboxConfig) -> Attachment {
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
        ifname: LINK.to_owned(),
        args: args.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        capabilities: capabilities(config),
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
        let attachment = attachment("id", Path::new("/ns"), &config);
        assert!(attachment.args.contains(&("K8S_POD_NAME".to_owned(), "p".to_owned())));
        let ports = attachment.capabilities["portMappings"].as_array().unwrap();
        assert_eq!(ports.len(), 1);
        assert_eq!(ports[0]["hostPort"], 8080);
    }
}
