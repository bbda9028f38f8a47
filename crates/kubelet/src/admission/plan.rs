//! The decision. Pure.

use std::sync::Arc;

use trine_typed::demand::{Amounts, allocatable, clash, host_ports, requests};
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod};
use trine_typed::placement::{is_selected, tolerates};

use super::sysctls;

/// Why a Pod is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// In one word, as the Pod's status says it.
    pub reason: String,
    /// In words.
    pub message: String,
}

impl Refusal {
    fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into() }
    }

    fn predicate(name: &str, why: &str) -> Self {
        Self::new(name, format!("Predicate {name} failed: {why}"))
    }

    /// Whether a newer look at the Node may change it: its labels, taints and amounts come later here than to the scheduler.
    #[must_use]
    pub fn is_of_the_node(&self) -> bool {
        matches!(self.reason.as_str(), "NodeAffinity" | "TaintToleration") || self.reason.starts_with("OutOf")
    }
}

/// Whether this kubelet, or one before it, took the Pod: it has begun, or has ended.
#[must_use]
pub fn was_taken(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let begun =
        status.is_some_and(|s| s.start_time.is_some() || s.phase.as_deref().is_some_and(|p| p != "Pending"));
    begun || pod.metadata.deletion_timestamp.is_some()
}

/// Why `node`, which has taken `others`, cannot take `pod`; the first of upstream's reasons.
#[must_use]
pub fn admit(pod: &Pod, others: &[Arc<Pod>], node: &Node) -> Option<Refusal> {
    let spec = pod.spec.as_ref()?;
    if let Some(why) = sysctls::forbidden(pod) {
        return Some(Refusal::new("SysctlForbidden", why));
    }
    let label = pod.metadata.labels.as_ref().and_then(|l| l.get("kubernetes.io/os"));
    if label.is_some_and(|os| os != "linux") {
        let why = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Some(Refusal::new("PodOSSelectorNodeLabelDoesNotMatch", why));
    }
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        let why = "Failed to admit pod as the OS field doesn't match node OS";
        return Some(Refusal::new("PodOSNotSupported", why));
    }
    if let Some(short) = short(pod, others, node) {
        return Some(short);
    }
    if !is_selected(spec, node) {
        return Some(Refusal::predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    if spec.node_name.as_ref().is_some_and(|name| Some(name) != node.metadata.name.as_ref()) {
        return Some(Refusal::predicate("NodeName", "node(s) didn't match the requested node name"));
    }
    let wanted = host_ports(pod);
    let taken = || others.iter().flat_map(|other| host_ports(other));
    if wanted.iter().any(|want| taken().any(|have| clash(want, &have))) {
        let why = "node(s) didn't have free ports for the requested pod ports";
        return Some(Refusal::predicate("NodePorts", why));
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let driven_away = |t: &&trine_typed::k8s_openapi::api::core::v1::Taint| t.effect == "NoExecute";
    if taints.iter().filter(driven_away).any(|taint| !tolerates(tolerations, taint)) {
        let why = "node(s) had taints that the pod didn't tolerate";
        return Some(Refusal::predicate("TaintToleration", why));
    }
    None
}

/// The resource that there is not enough of. Cpu is counted in thousandths, all else in whole units.
#[must_use]
pub fn short(pod: &Pod, others: &[Arc<Pod>], node: &Node) -> Option<Refusal> {
    let total = allocatable(node);
    let mut used = Amounts::new();
    for (name, amount) in others.iter().flat_map(|other| requests(other)) {
        *used.entry(name).or_default() += amount;
    }
    let wanted = requests(pod);
    // The number of Pods first, as upstream.
    let ordered = ["pods", "cpu", "memory", "ephemeral-storage"];
    let rest = wanted.keys().map(String::as_str).filter(|name| !ordered.contains(name));
    ordered.into_iter().chain(rest).find_map(|name| {
        let want = wanted.get(name).copied().filter(|want| *want > 0)?;
        let extended = name.contains('/') && !name.starts_with("kubernetes.io/");
        let have = match total.get(name) {
            Some(have) => *have,
            // What a node does not know of may be the whole cluster's, and somebody else counts it.
            None if extended => return None,
            None => 0,
        };
        let used = used.get(name).copied().unwrap_or_default();
        let unit = if name == "cpu" { 1 } else { 1000 };
        (used + want > have).then(|| {
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {}, used: {}, capacity: {}",
                want / unit,
                used / unit,
                have / unit
            );
            Refusal::new(&format!("OutOf{name}"), message)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: &Value) -> Pod {
        let mut whole = json!({"containers": [{"name": "c"}]});
        for (key, value) in spec.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": whole})).unwrap()
    }

    fn asks(resource: &str, amount: &str) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {resource: amount}}}]})
    }

    #[test]
    fn a_pod_that_the_node_cannot_take_is_refused_in_upstreams_words() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "out", "effect": "NoExecute"}, {"key": "new", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3", "x.io/y": "1"}}}))
        .unwrap();
        let port = |ip: &str| {
            json!({"containers": [{"name": "c", "ports": [
            {"containerPort": 80, "hostPort": 80, "hostIP": ip}]}]})
        };
        let other =
            Arc::new(pod(&json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}},
            "ports": [{"containerPort": 80, "hostPort": 80}]}]})));
        let stay = json!([{"key": "out", "operator": "Exists"}]);
        let rows: [(&str, Value, &str); 12] = [
            ("nothing special", json!({}), ""),
            (
                "cpu",
                asks("cpu", "600m"),
                "OutOfcpu: Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000",
            ),
            (
                "memory",
                asks("memory", "2Gi"),
                "OutOfmemory: Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
            ),
            (
                "of the node's own kind",
                asks("x.io/y", "2"),
                "OutOfx.io/y: Node didn't have enough resource: x.io/y, requested: 2, used: 0, capacity: 1",
            ),
            ("unknown to the node", asks("x.io/z", "2"), ""),
            (
                "port",
                port("10.0.0.1"),
                "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
            ),
            (
                "selector",
                json!({"nodeSelector": {"zone": "b"}}),
                "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            ),
            ("right selector", json!({"nodeSelector": {"zone": "a"}}), ""),
            (
                "another node",
                json!({"nodeName": "m"}),
                "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name",
            ),
            (
                "not tolerated",
                json!({"tolerations": []}),
                "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
            ),
            (
                "system",
                json!({"os": {"name": "windows"}}),
                "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
            ),
            (
                "setting",
                json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
                "SysctlForbidden: forbidden sysctl: \"kernel.msgmax\" not allowlisted",
            ),
        ];
        for (name, mut spec, expected) in rows {
            if spec["tolerations"].is_null() {
                spec["tolerations"] = stay.clone();
            }
            let refused = admit(&pod(&spec), std::slice::from_ref(&other), &node);
            let said = refused.map(|r| format!("{}: {}", r.reason, r.message)).unwrap_or_default();
            assert_eq!(said, expected, "{name}");
        }
        let one = Arc::new(pod(&json!({})));
        let full = [one.clone(), one.clone(), one];
        let refused = admit(&pod(&json!({"tolerations": stay})), &full, &node).unwrap();
        assert_eq!(
            (refused.reason.as_str(), refused.message.as_str()),
            ("OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3")
        );
    }

    #[test]
    fn a_pod_that_was_taken_once_is_not_asked_again() {
        let rows = [
            (json!({"metadata": {"name": "new"}, "status": {"phase": "Pending"}}), false),
            (
                json!({"metadata": {"name": "begun"}, "status": {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}}),
                true,
            ),
            (json!({"metadata": {"name": "running"}, "status": {"phase": "Running"}}), true),
            (json!({"metadata": {"name": "refused"}, "status": {"phase": "Failed"}}), true),
            (json!({"metadata": {"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"}}), true),
        ];
        for (pod, expected) in rows {
            assert_eq!(was_taken(&serde_json::from_value(pod.clone()).unwrap()), expected, "{pod}");
        }
    }
}
