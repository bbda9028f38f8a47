//! The sandbox's configuration.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use trine_contracts::cri;
use trine_typed::k8s_openapi::api::core::v1::Pod;

use super::dns::{self, DnsInput};
use super::{hosts, security};
use crate::config::Config;
use crate::runtime::labels;

/// Where the Pod's logs are: `<log_root>/<namespace>_<name>_<uid>`.
#[must_use]
pub fn log_directory(log_root: &Path, pod: &Pod) -> PathBuf {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let meta = &pod.metadata;
    log_root.join(format!("{}_{}_{}", text(&meta.namespace), text(&meta.name), text(&meta.uid)))
}

/// The configuration; `node_resolv` is the node's `resolv.conf`.
#[must_use]
pub fn config(pod: &Pod, attempt: u32, node: &Config, node_resolv: &str) -> cri::PodSandboxConfig {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let host_network = spec.and_then(|s| s.host_network).unwrap_or_default();
    let mut labels: HashMap<String, String> = meta.labels.clone().unwrap_or_default().into_iter().collect();
    labels.extend([
        (labels::POD_NAME.to_owned(), text(&meta.name)),
        (labels::POD_NAMESPACE.to_owned(), text(&meta.namespace)),
        (labels::POD_UID.to_owned(), text(&meta.uid)),
    ]);
    let mut annotations: HashMap<String, String> =
        meta.annotations.clone().unwrap_or_default().into_iter().collect();
    annotations.insert("kubernetes.io/config.source".to_owned(), "api".to_owned());
    let sysctls = spec.and_then(|s| s.security_context.as_ref()).and_then(|c| c.sysctls.as_ref());
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: text(&meta.name),
            uid: text(&meta.uid),
            namespace: text(&meta.namespace),
            attempt,
        }),
        // On the host network the Pod shares the node's name, too.
        hostname: if host_network { String::new() } else { hosts::names(pod, &node.cluster_domain).0 },
        log_directory: log_directory(&node.log_root, pod).to_string_lossy().into_owned(),
        dns_config: Some(dns::config(
            pod,
            &DnsInput { node: node_resolv, cluster: &node.cluster_dns, domain: &node.cluster_domain },
        )),
        port_mappings: if host_network { Vec::new() } else { port_mappings(pod) },
        labels,
        annotations,
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: node.cgroup_parent.clone(),
            security_context: Some(security::of_sandbox(pod)),
            sysctls: sysctls.into_iter().flatten().map(|s| (s.name.clone(), s.value.clone())).collect(),
            ..Default::default()
        }),
        windows: None,
    }
}

fn port_mappings(pod: &Pod) -> Vec<cri::PortMapping> {
    let spec = pod.spec.as_ref();
    let all = spec.into_iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
    let ports = all.flat_map(|c| c.ports.iter().flatten());
    ports
        .filter(|p| p.host_port.unwrap_or_default() > 0)
        .map(|p| cri::PortMapping {
            protocol: match p.protocol.as_deref() {
                Some("UDP") => cri::Protocol::Udp,
                Some("SCTP") => cri::Protocol::Sctp,
                _ => cri::Protocol::Tcp,
            } as i32,
            container_port: p.container_port,
            host_port: p.host_port.unwrap_or_default(),
            host_ip: p.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_sandbox_carries_labels_hostname_log_folder_and_host_ports() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "ports": [
                {"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}, {"containerPort": 81}]}]}}))
        .unwrap();
        let mut node = Config::new("node", "10.0.0.1".parse().unwrap(), "/r".into(), "/s".into());
        node.log_root = "/logs".into();
        let got = config(&pod, 2, &node, "nameserver 1.1.1.1");
        assert_eq!(got.metadata.as_ref().unwrap().attempt, 2);
        assert_eq!(got.hostname, "p");
        assert_eq!(got.log_directory, "/logs/n_p_u");
        assert_eq!(got.labels["io.kubernetes.pod.uid"], "u");
        assert_eq!(got.labels["app"], "x");
        assert_eq!(got.port_mappings.len(), 1);
        assert_eq!((got.port_mappings[0].protocol, got.port_mappings[0].host_port), (1, 8080));
    }
}
