//! The small files that a sandbox's containers share. Pure.

use trine_contracts::cri::{DnsConfig, PodSandboxConfig};

/// `resolv.conf` for a Pod's DNS configuration; none if it has none, and the host's is to be used.
#[must_use]
pub fn resolv_conf(dns: Option<&DnsConfig>) -> Option<String> {
    let dns = dns?;
    if dns.servers.is_empty() && dns.searches.is_empty() && dns.options.is_empty() {
        return None;
    }
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text.push_str(&format!("search {}\n", dns.searches.join(" ")));
    }
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.options.is_empty() {
        text.push_str(&format!("options {}\n", dns.options.join(" ")));
    }
    Some(text)
}

/// The Pod's host name, if it has one of its own.
#[must_use]
pub fn hostname(config: &PodSandboxConfig, host_network: bool) -> Option<String> {
    if host_network {
        return None;
    }
    let name = config.metadata.as_ref().map_or("", |m| m.name.as_str());
    let name = if config.hostname.is_empty() { name } else { &config.hostname };
    // The kernel takes 64 bytes.
    Some(name.chars().take(63).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_says_what_the_pod_asks_for() {
        let dns = DnsConfig {
            servers: vec!["10.10.10.10".into()],
            searches: vec!["google.com".into(), "a.b".into()],
            options: vec!["ndots:8".into()],
        };
        let expected = "search google.com a.b\nnameserver 10.10.10.10\noptions ndots:8\n";
        assert_eq!(resolv_conf(Some(&dns)).unwrap(), expected);
        assert_eq!(resolv_conf(Some(&DnsConfig::default())), None);
        assert_eq!(resolv_conf(None), None);
    }
}
