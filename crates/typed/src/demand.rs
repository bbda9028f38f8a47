//! What a Pod asks of its node, and what the node has to give. The scheduler asks before it decides, the kubelet before it
//! begins.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use trine_objects::quantity::Quantity;

/// Amounts by resource name (`cpu`, `memory`, `ephemeral-storage`, `pods`, ...), in thousandths.
pub type Amounts = BTreeMap<String, i128>;

/// A port of the node that a Pod wants: address, protocol, number.
pub type HostPort = (String, String, i32);

/// What a node gives to Pods.
#[must_use]
pub fn allocatable(node: &Node) -> Amounts {
    let status = node.status.as_ref();
    let list = status.and_then(|s| s.allocatable.as_ref().or(s.capacity.as_ref()));
    list.map(|l| l.iter().map(|(k, v)| (k.clone(), amount(&v.0))).collect()).unwrap_or_default()
}

/// What a Pod asks for: the larger of the sum of its containers (restartable init containers included) and the
/// peak of its init containers, plus overhead; and one of `pods`. Upstream: `resourcehelper.PodRequests`.
#[must_use]
pub fn requests(pod: &Pod) -> Amounts {
    requests_at_least(pod, &[])
}

/// The same, where a container that says nothing of a resource asks for so much of it, in thousandths.
#[must_use]
pub fn requests_at_least(pod: &Pod, least: &[(&str, i128)]) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let wanted = |container: &Container| {
        let mut wanted = container_requests(container);
        for (name, amount) in least {
            wanted.entry((*name).to_owned()).or_insert(*amount);
        }
        wanted
    };
    let mut total = Amounts::new();
    for container in &spec.containers {
        add(&mut total, &wanted(container));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let wanted = wanted(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sidecars, &wanted);
            larger(&mut peak, &sidecars);
        } else {
            let mut here = wanted;
            add(&mut here, &sidecars);
            larger(&mut peak, &here);
        }
    }
    add(&mut total, &sidecars);
    larger(&mut total, &peak);
    for (name, value) in spec.overhead.iter().flatten() {
        *total.entry(name.clone()).or_default() += amount(&value.0);
    }
    total.insert("pods".to_owned(), 1000);
    total
}

fn container_requests(container: &Container) -> Amounts {
    let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    requests.into_iter().flatten().map(|(k, v)| (k.clone(), amount(&v.0))).collect()
}

fn add(into: &mut Amounts, from: &Amounts) {
    for (name, value) in from {
        *into.entry(name.clone()).or_default() += value;
    }
}

fn larger(into: &mut Amounts, other: &Amounts) {
    for (name, value) in other {
        let slot = into.entry(name.clone()).or_default();
        *slot = (*slot).max(*value);
    }
}

/// A quantity in thousandths; what does not parse counts as nothing (the API server refuses it before).
#[must_use]
pub fn amount(text: &str) -> i128 {
    text.parse::<Quantity>().map(|q| q.milli()).unwrap_or_default()
}

/// The ports of the node that a Pod wants, of its main containers and of its sidecars.
#[must_use]
pub fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let sidecars =
        spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    let host_network = spec.host_network.unwrap_or_default();
    ports
        .filter_map(|p| {
            let port = p.host_port.filter(|port| *port > 0).or(host_network.then_some(p.container_port))?;
            let protocol = p.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some((p.host_ip.clone().unwrap_or_default(), protocol, port))
        })
        .collect()
}

/// Whether two wants cannot both be had.
#[must_use]
pub fn clash(a: &HostPort, b: &HostPort) -> bool {
    let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    a.1 == b.1 && a.2 == b.2 && (a.0 == b.0 || any(&a.0) || any(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn requests_are_the_larger_of_containers_and_the_peak_of_init_containers() {
        let p = pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}],
            "initContainers": [
            {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            {"name": "init", "resources": {"requests": {"cpu": "2"}}}]}));
        assert_eq!((requests(&p)["cpu"], requests(&p)["pods"]), (2100, 1000));
    }

    #[test]
    fn what_a_container_does_not_say_may_count_for_something() {
        let p = pod(
            json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "0"}}}, {"name": "b"}]}),
        );
        let counted = requests_at_least(&p, &[("cpu", 100), ("memory", 7)]);
        assert_eq!((counted["cpu"], counted["memory"]), (100, 14));
        assert!(!requests(&p).contains_key("memory"));
    }

    #[test]
    fn a_port_is_taken_on_all_addresses_or_on_its_own() {
        let ports = |ip: &str, port: i32| {
            host_ports(&pod(json!({"containers": [{"name": "c", "ports": [
                {"containerPort": 80, "hostPort": port, "hostIP": ip}]}]})))
        };
        let rows = [
            (ports("", 80), ports("10.0.0.1", 80), true),
            (ports("10.0.0.1", 80), ports("10.0.0.2", 80), false),
            (ports("10.0.0.1", 80), ports("0.0.0.0", 80), true),
            (ports("", 80), ports("", 81), false),
        ];
        for (a, b, expected) in rows {
            assert_eq!(clash(&a[0], &b[0]), expected, "{a:?} {b:?}");
        }
        let shared =
            json!({"hostNetwork": true, "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]});
        assert_eq!(host_ports(&pod(shared)), [(String::new(), "TCP".to_owned(), 80)]);
        assert!(
            host_ports(&pod(json!({"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]})))
                .is_empty()
        );
    }
}
