//! The level that keeps Pods from the ways to their node that are known.

use serde_json::Value;

use super::finding::{Check, Finding, containers, distinct, named, plural, quoted, setters, those};
use crate::registry::text;

/// Capabilities that may be added.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Kernel settings that are a Pod's own.
const SYSCTLS: [&str; 14] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];
const SELINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// What it has against a Pod. What the stricter level says in other words is left out for it.
pub fn check(pod: &Value, stricter: bool) -> Vec<Finding> {
    let checks: [(bool, Check); 12] = [
        (true, app_armor),
        (!stricter, capabilities),
        (true, host_namespaces),
        (!stricter, host_paths),
        (true, host_ports),
        (true, probe_hosts),
        (true, privileged),
        (true, proc_mount),
        (true, selinux),
        (!stricter, seccomp),
        (true, sysctls),
        (true, host_process),
    ];
    checks.into_iter().filter(|(wanted, _)| *wanted).filter_map(|(_, check)| check(pod)).collect()
}

fn context(container: &Value) -> &Value {
    &container["securityContext"]
}

fn pod_context(pod: &Value) -> &Value {
    &pod["spec"]["securityContext"]
}

/// A Pod whose users are not those of the node may do more as them.
pub fn has_own_users(pod: &Value) -> bool {
    pod["spec"]["hostUsers"] == false
}

/// The values of a text in all contexts that are not among those allowed, and who set them.
fn others(pod: &Value, at: fn(&Value) -> &Value, allowed: &[&str]) -> (Option<String>, Vec<String>) {
    let bad = |context: &Value| at(context).as_str().is_some_and(|v| !allowed.contains(&v));
    let who = setters(bad(pod_context(pod)), &those(pod, |c| bad(context(c))));
    let contexts = containers(pod).map(context).chain([pod_context(pod)]);
    let values = contexts.filter(|c| bad(c)).map(|c| text(at(c)).to_owned()).collect();
    (who, distinct(values))
}

fn app_armor(pod: &Value) -> Option<Finding> {
    let (who, values) = others(pod, |c| &c["appArmorProfile"]["type"], &["RuntimeDefault", "Localhost"]);
    let reason = if values.len() == 1 { "forbidden AppArmor profile" } else { "forbidden AppArmor profiles" };
    Some(Finding {
        reason,
        detail: format!("{} must not set AppArmor profile type to {}", who?, quoted(&values)),
    })
}

/// The capabilities that a container adds and may not.
pub fn added(container: &Value, allowed: &[&str]) -> Vec<String> {
    let list = context(container)["capabilities"]["add"].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).filter(|c| !allowed.contains(c)).map(str::to_owned).collect()
}

fn capabilities(pod: &Value) -> Option<Finding> {
    let who = those(pod, |c| !added(c, &CAPABILITIES).is_empty());
    let what = distinct(containers(pod).flat_map(|c| added(c, &CAPABILITIES)).collect());
    (!who.is_empty()).then(|| Finding {
        reason: "non-default capabilities",
        detail: format!(
            "{} must not include {} in securityContext.capabilities.add",
            named("container", &who),
            quoted(&what)
        ),
    })
}

fn host_namespaces(pod: &Value) -> Option<Finding> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|f| pod["spec"][*f] == true);
    let list: Vec<String> = set.map(|f| format!("{f}=true")).collect();
    (!list.is_empty()).then(|| Finding { reason: "host namespaces", detail: list.join(", ") })
}

fn host_paths(pod: &Value) -> Option<Finding> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let names: Vec<String> =
        volumes.filter(|v| v["hostPath"].is_object()).map(|v| text(&v["name"]).to_owned()).collect();
    (!names.is_empty()).then(|| Finding { reason: "hostPath volumes", detail: named("volume", &names) })
}

fn uses(count: usize) -> &'static str {
    if count == 1 { "uses" } else { "use" }
}

fn host_ports(pod: &Value) -> Option<Finding> {
    let ports = |c: &Value| -> Vec<i64> {
        let list = c["ports"].as_array().into_iter().flatten();
        list.filter_map(|p| p["hostPort"].as_i64()).filter(|p| *p != 0).collect()
    };
    let who = those(pod, |c| !ports(c).is_empty());
    let mut all: Vec<i64> = containers(pod).flat_map(ports).collect();
    all.sort_unstable();
    all.dedup();
    let list: Vec<String> = all.iter().map(i64::to_string).collect();
    (!who.is_empty()).then(|| Finding {
        reason: "hostPort",
        detail: format!(
            "{} {} {} {}",
            named("container", &who),
            uses(who.len()),
            plural("hostPort", list.len()),
            list.join(", ")
        ),
    })
}

fn probe_hosts(pod: &Value) -> Option<Finding> {
    let hosts = |c: &Value| -> Vec<String> {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|p| &c[p]);
        let hooks = ["postStart", "preStop"].map(|h| &c["lifecycle"][h]);
        let handlers = probes.into_iter().chain(hooks).flat_map(|h| [&h["httpGet"], &h["tcpSocket"]]);
        handlers.map(|h| text(&h["host"]).to_owned()).filter(|h| !h.is_empty()).collect()
    };
    let who = those(pod, |c| !hosts(c).is_empty());
    let what = distinct(containers(pod).flat_map(hosts).collect());
    (!who.is_empty()).then(|| Finding {
        reason: "probe or lifecycle host",
        detail: format!(
            "{} {} {} {}",
            named("container", &who),
            uses(who.len()),
            plural("probe or lifecycle host", what.len()),
            quoted(&what)
        ),
    })
}

fn privileged(pod: &Value) -> Option<Finding> {
    let who = those(pod, |c| context(c)["privileged"] == true);
    (!who.is_empty()).then(|| Finding {
        reason: "privileged",
        detail: format!("{} must not set securityContext.privileged=true", named("container", &who)),
    })
}

fn proc_mount(pod: &Value) -> Option<Finding> {
    if has_own_users(pod) {
        return None;
    }
    let bad = |c: &Value| context(c)["procMount"].as_str().is_some_and(|p| p != "Default");
    let who = those(pod, bad);
    let what =
        containers(pod).filter(|c| bad(c)).map(|c| text(&context(c)["procMount"]).to_owned()).collect();
    (!who.is_empty()).then(|| Finding {
        reason: "procMount",
        detail: format!(
            "{} must not set securityContext.procMount to {}",
            named("container", &who),
            quoted(&distinct(what))
        ),
    })
}

fn selinux(pod: &Value) -> Option<Finding> {
    fn options(context: &Value) -> &Value {
        &context["seLinuxOptions"]
    }
    let bad_type = |o: &Value| !SELINUX_TYPES.contains(&text(&o["type"]));
    let has = |o: &Value, field: &str| !text(&o[field]).is_empty();
    let bad = |o: &Value| bad_type(o) || has(o, "user") || has(o, "role");
    let who = setters(bad(options(pod_context(pod))), &those(pod, |c| bad(options(context(c)))))?;
    let all: Vec<&Value> =
        containers(pod).map(|c| options(context(c))).chain([options(pod_context(pod))]).collect();
    let types = all.iter().filter(|o| bad_type(o)).map(|o| text(&o["type"]).to_owned()).collect();
    let types = distinct(types);
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(named("type", &types));
    }
    for field in ["user", "role"] {
        if all.iter().any(|o| has(o, field)) {
            what.push(format!("{field} may not be set"));
        }
    }
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {}", what.join("; "));
    Some(Finding { reason: "seLinuxOptions", detail })
}

fn seccomp(pod: &Value) -> Option<Finding> {
    let (who, values) = others(pod, |c| &c["seccompProfile"]["type"], &["RuntimeDefault", "Localhost"]);
    let detail = format!("{} must not set securityContext.seccompProfile.type to {}", who?, quoted(&values));
    Some(Finding { reason: "seccompProfile", detail })
}

fn sysctls(pod: &Value) -> Option<Finding> {
    let list = pod_context(pod)["sysctls"].as_array().into_iter().flatten();
    let names: Vec<&str> = list.map(|s| text(&s["name"])).filter(|n| !SYSCTLS.contains(n)).collect();
    (!names.is_empty()).then(|| Finding { reason: "forbidden sysctls", detail: names.join(", ") })
}

fn host_process(pod: &Value) -> Option<Finding> {
    let is = |context: &Value| context["windowsOptions"]["hostProcess"] == true;
    let who = setters(is(pod_context(pod)), &those(pod, |c| is(context(c))))?;
    let detail = format!("{who} must not set securityContext.windowsOptions.hostProcess=true");
    Some(Finding { reason: "hostProcess", detail })
}
