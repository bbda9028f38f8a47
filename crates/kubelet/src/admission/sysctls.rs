//! Which kernel settings a Pod may have: those that belong to its own namespaces and touch nobody else. Source: upstream's
//! `pkg/kubelet/sysctl`; all of them are in namespaces since kernel 4.15.

use trine_typed::k8s_openapi::api::core::v1::Pod;

/// Settings of the IPC namespace.
const IPC: &[&str] = &["kernel.shm_rmid_forced"];
/// Settings of the network namespace.
const NET: &[&str] = &[
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
];

/// The first setting that the Pod may not have, in upstream's words.
#[must_use]
pub fn forbidden(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let wanted = spec.security_context.as_ref()?.sysctls.as_ref()?;
    let (host_net, host_ipc) = (spec.host_network.unwrap_or_default(), spec.host_ipc.unwrap_or_default());
    wanted.iter().find_map(|sysctl| one(&dotted(&sysctl.name), host_net, host_ipc))
}

fn one(name: &str, host_net: bool, host_ipc: bool) -> Option<String> {
    let shared =
        |namespace: &str| format!("forbidden sysctl: {name:?} not allowed with host {namespace} enabled");
    match (IPC.contains(&name), NET.contains(&name)) {
        (true, _) => host_ipc.then(|| shared("ipc")),
        (_, true) => host_net.then(|| shared("net")),
        _ => Some(format!("forbidden sysctl: {name:?} not allowlisted")),
    }
}

/// The name with dots, whichever of the two it was separated by first; the other one then stands for a dot in a name.
fn dotted(name: &str) -> String {
    match name.find(['.', '/']).map(|at| &name[at..=at]) {
        Some("/") => name
            .chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_pod_sets_what_is_its_own_alone() {
        let pod = |name: &str, more: Value| -> Pod {
            let mut spec =
                json!({"containers": [], "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
            for (key, value) in more.as_object().into_iter().flatten() {
                spec[key] = value.clone();
            }
            serde_json::from_value(json!({"spec": spec})).unwrap()
        };
        let rows = [
            ("kernel.shm_rmid_forced", json!({}), None),
            ("kernel/shm_rmid_forced", json!({}), None),
            ("net.ipv4.tcp_syncookies", json!({"hostIPC": true}), None),
            (
                "kernel.shm_rmid_forced",
                json!({"hostIPC": true}),
                Some("forbidden sysctl: \"kernel.shm_rmid_forced\" not allowed with host ipc enabled"),
            ),
            (
                "net.ipv4.tcp_syncookies",
                json!({"hostNetwork": true}),
                Some("forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host net enabled"),
            ),
            ("kernel.msgmax", json!({}), Some("forbidden sysctl: \"kernel.msgmax\" not allowlisted")),
            ("vm.swappiness", json!({}), Some("forbidden sysctl: \"vm.swappiness\" not allowlisted")),
        ];
        for (name, more, expected) in rows {
            assert_eq!(forbidden(&pod(name, more)).as_deref(), expected, "{name}");
        }
        assert_eq!(forbidden(&Pod::default()), None);
        assert_eq!(dotted("net/ipv4/conf/eth0.1/forwarding"), "net.ipv4.conf.eth0/1.forwarding");
    }
}
