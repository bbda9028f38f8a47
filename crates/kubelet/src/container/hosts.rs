//! The hosts file that the kubelet manages for a Pod.

use std::fmt::Write as _;

use trine_typed::k8s_openapi::api::core::v1::Pod;

/// First line of the file of a Pod with a network of its own; tools look for it.
const HEADER: &str = "# Kubernetes-managed hosts file.\n";
const HEADER_HOST_NETWORK: &str = "# Kubernetes-managed hosts file (host network).\n";
const LOCAL: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
                     fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";

/// Longest host name that Linux takes.
const MAX_HOSTNAME: usize = 63;

/// Host name and, if the Pod has a subdomain, its full name.
#[must_use]
pub fn names(pod: &Pod, domain: &str) -> (String, Option<String>) {
    let spec = pod.spec.as_ref();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let own = spec
        .and_then(|s| s.hostname_override.as_ref().or(s.hostname.as_ref()))
        .filter(|h| !h.is_empty())
        .or(pod.metadata.name.as_ref());
    let mut host = own.cloned().unwrap_or_default();
    host.truncate(MAX_HOSTNAME);
    let host = host.trim_end_matches(['-', '.']).to_owned();
    let subdomain = spec.and_then(|s| s.subdomain.as_deref()).filter(|s| !s.is_empty());
    let full = subdomain.map(|sub| format!("{host}.{sub}.{namespace}.svc.{domain}"));
    (host, full)
}

/// The file's text. `node_hosts` is the node's own file, for Pods on the host network.
#[must_use]
pub fn file(pod: &Pod, ips: &[String], node_hosts: &str, domain: &str) -> String {
    let spec = pod.spec.as_ref();
    let mut text = String::new();
    if spec.and_then(|s| s.host_network).unwrap_or_default() {
        text.push_str(HEADER_HOST_NETWORK);
        text.push_str(node_hosts);
    } else {
        text.push_str(HEADER);
        text.push_str(LOCAL);
        let (host, full) = names(pod, domain);
        for ip in ips {
            let _ = match &full {
                Some(full) => writeln!(text, "{ip}\t{full}\t{host}"),
                None => writeln!(text, "{ip}\t{host}"),
            };
        }
    }
    let aliases = spec.and_then(|s| s.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            let _ =
                writeln!(text, "{}\t{}", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_names_the_pod_its_subdomain_and_its_aliases() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"},
            "spec": {"containers": [], "subdomain": "s", "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]}}))
        .unwrap();
        let text = file(&pod, &["10.0.0.5".to_owned()], "", "cluster.local");
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        assert!(text.contains("10.0.0.5\tp.s.n.svc.cluster.local\tp\n"));
        assert!(text.ends_with("1.2.3.4\ta\tb\n"));
    }
}
