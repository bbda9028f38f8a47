//! What the Endpoints of a Service say: its Pods' addresses, those with the same ports together.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service,
};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trine_typed::pods::is_finished;

use crate::endpoint_slice::plan::{
    address_of, hostname, is_headless, is_ours, labels, resolve, selects, target,
};
use crate::workload::readiness::is_ready;

/// Addresses that one object may have; the rest is left out, and the object says so.
pub const MAX_ADDRESSES: usize = 1000;
/// Says that addresses were left out.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// Says who keeps the object.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpoint-controller";

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// All is as it should be, or somebody else's.
    Stay,
    /// Make it.
    Create(Endpoints),
    /// Change it.
    Replace(Endpoints),
    /// Nobody needs it.
    Delete,
}

/// What to do about the Endpoints of a Service's name. `removed`: the Service was just removed, and what bears its name goes with
/// it, whoever wrote it.
#[must_use]
pub fn plan(
    service: Option<&Service>,
    pods: &[Arc<Pod>],
    current: Option<&Endpoints>,
    removed: bool,
) -> Step {
    let Some(service) = service else {
        let labels = current.and_then(|c| c.metadata.labels.as_ref());
        let ours = labels.and_then(|labels| labels.get(MANAGED_BY)).map(String::as_str) == Some(CONTROLLER);
        return if current.is_some() && (ours || removed) { Step::Delete } else { Step::Stay };
    };
    if !is_ours(service) {
        return Step::Stay;
    }
    let (subsets, over) = subsets(service, pods);
    let mut labels = labels(service);
    labels.insert(MANAGED_BY.to_owned(), CONTROLLER.to_owned());
    let mut wanted = current.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        subsets: None,
    });
    wanted.subsets = (!subsets.is_empty()).then_some(subsets);
    wanted.metadata.labels = Some(labels);
    let mut annotations = wanted.metadata.annotations.take().unwrap_or_default();
    annotations.remove(OVER_CAPACITY);
    if over {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    }
    wanted.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    match current {
        None => Step::Create(wanted),
        Some(current) if *current == wanted => Step::Stay,
        Some(_) => Step::Replace(wanted),
    }
}

/// Name, protocol and number of a port; none for a headless Service without ports.
type PortKey = Option<(String, String, i32)>;
/// Where a port is open: whether each address is ready.
type Open = BTreeMap<String, (bool, EndpointAddress)>;

/// The subsets, and whether addresses were left out.
fn subsets(service: &Service, pods: &[Arc<Pod>]) -> (Vec<EndpointSubset>, bool) {
    let Some(spec) = &service.spec else { return (Vec::new(), false) };
    let family =
        spec.ip_families.as_ref().and_then(|families| families.first()).map_or("IPv4", String::as_str);
    let publish_all = spec.publish_not_ready_addresses.unwrap_or_default();
    let ports = spec.ports.as_deref().unwrap_or_default();
    let mut chosen: Vec<(bool, EndpointAddress, &Pod)> = Vec::new();
    for pod in pods.iter().filter(|pod| selects(service, pod)) {
        // What is on its way out takes no requests, unless the Service wants all.
        let ending = is_finished(pod) || pod.metadata.deletion_timestamp.is_some() && !publish_all;
        let Some(ip) = address_of(pod, family).filter(|_| !ending) else { continue };
        let address = EndpointAddress {
            ip,
            hostname: hostname(service, pod),
            node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            target_ref: Some(target(pod)),
        };
        chosen.push((publish_all || is_ready(pod), address, pod));
    }
    // Those that are ready stay when there are too many.
    chosen.sort_by(|a, b| (!a.0, &a.1.ip).cmp(&(!b.0, &b.1.ip)));
    let over = chosen.len() > MAX_ADDRESSES;
    chosen.truncate(MAX_ADDRESSES);
    let mut by_port: BTreeMap<PortKey, (Option<EndpointPort>, Open)> = BTreeMap::new();
    for (ready, address, pod) in chosen {
        let mut open = |key: PortKey, port: Option<EndpointPort>| {
            let entry = by_port.entry(key).or_insert_with(|| (port, Open::new()));
            entry.1.insert(address.ip.clone(), (ready, address.clone()));
        };
        if ports.is_empty() && is_headless(service) {
            open(None, None);
        }
        for resolved in ports.iter().filter_map(|port| resolve(port, pod)) {
            let (name, protocol) = (resolved.name.unwrap_or_default(), resolved.protocol.unwrap_or_default());
            let number = resolved.port.unwrap_or_default();
            let port = EndpointPort {
                name: Some(name.clone()).filter(|name| !name.is_empty()),
                port: number,
                protocol: Some(protocol.clone()),
                app_protocol: resolved.app_protocol,
            };
            open(Some((name, protocol, number)), Some(port));
        }
    }
    (together(by_port.into_values()), over)
}

/// Ports that are open at the same places share a subset.
fn together(ports: impl Iterator<Item = (Option<EndpointPort>, Open)>) -> Vec<EndpointSubset> {
    let mut groups: Vec<(Open, Vec<EndpointPort>)> = Vec::new();
    for (port, open) in ports {
        match groups.iter_mut().find(|(places, _)| *places == open) {
            Some((_, ports)) => ports.extend(port),
            None => groups.push((open, port.into_iter().collect())),
        }
    }
    let some = |all: Vec<EndpointAddress>| (!all.is_empty()).then_some(all);
    let subset = |(open, ports): (Open, Vec<EndpointPort>)| {
        let (ready, waiting): (Vec<_>, Vec<_>) = open.into_values().partition(|(ready, _)| *ready);
        EndpointSubset {
            addresses: some(ready.into_iter().map(|(_, address)| address).collect()),
            not_ready_addresses: some(waiting.into_iter().map(|(_, address)| address).collect()),
            ports: (!ports.is_empty()).then_some(ports),
        }
    };
    groups.into_iter().map(subset).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        let value =
            json!({"metadata": {"name": "web", "namespace": "default", "labels": {"a": "b"}}, "spec": spec});
        serde_json::from_value(value).unwrap()
    }

    fn pod(name: &str, ip: &str, ready: bool, port: i32) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        let value = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": port}]}]},
            "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    /// `ready|not ready:ports` of each subset.
    fn shown(step: &Step) -> Vec<String> {
        let (Step::Create(endpoints) | Step::Replace(endpoints)) = step else { panic!("{step:?}") };
        let ips = |all: &Option<Vec<EndpointAddress>>| {
            all.iter().flatten().map(|a| a.ip.clone()).collect::<Vec<_>>().join(",")
        };
        let one = |subset: &EndpointSubset| {
            let ports: Vec<String> = subset.ports.iter().flatten().map(|p| p.port.to_string()).collect();
            format!("{}|{}:{}", ips(&subset.addresses), ips(&subset.not_ready_addresses), ports.join(","))
        };
        endpoints.subsets.iter().flatten().map(one).collect()
    }

    #[test]
    fn ports_that_are_open_at_the_same_places_share_a_subset() {
        let ports = json!([{"name": "a", "port": 80, "targetPort": "http"}, {"name": "b", "port": 90}]);
        let service = service(json!({"selector": {"app": "web"}, "ports": ports}));
        let alike = [pod("1", "10.0.0.1", true, 80), pod("2", "10.0.0.2", false, 80)];
        assert_eq!(shown(&plan(Some(&service), &alike, None, false)), ["10.0.0.1|10.0.0.2:80,90"]);
        let differ = [pod("1", "10.0.0.1", true, 80), pod("2", "10.0.0.2", true, 81)];
        let subsets = shown(&plan(Some(&service), &differ, None, false));
        assert_eq!(subsets, ["10.0.0.1|:80", "10.0.0.2|:81", "10.0.0.1,10.0.0.2|:90"]);
    }

    #[test]
    fn nothing_is_written_twice_and_what_is_the_services_goes_with_it() {
        let with = service(json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}));
        let pods = [pod("1", "10.0.0.1", true, 80)];
        let Step::Create(made) = plan(Some(&with), &pods, None, false) else { panic!("it is missing") };
        assert_eq!(plan(Some(&with), &pods, Some(&made), false), Step::Stay);
        assert!(
            matches!(plan(Some(&with), &[], Some(&made), false), Step::Replace(e) if e.subsets.is_none())
        );
        assert_eq!(plan(None, &[], Some(&made), false), Step::Delete);
        let by_hand = Endpoints { metadata: ObjectMeta::default(), ..made };
        assert_eq!(plan(None, &[], Some(&by_hand), false), Step::Stay);
        assert_eq!(plan(None, &[], Some(&by_hand), true), Step::Delete);
        assert_eq!(plan(Some(&service(json!({}))), &pods, Some(&by_hand), false), Step::Stay);
    }

    #[test]
    fn too_many_addresses_are_cut_and_the_ready_ones_stay() {
        let service = service(json!({"selector": {"app": "web"}, "clusterIP": "None"}));
        let pods: Vec<Arc<Pod>> = (0..MAX_ADDRESSES + 5)
            .map(|i| pod(&i.to_string(), &format!("10.0.{}.{}", i / 256, i % 256), i >= 5, 80))
            .collect();
        let step = plan(Some(&service), &pods, None, false);
        let Step::Create(endpoints) = &step else { panic!("{step:?}") };
        let subset = &endpoints.subsets.as_ref().unwrap()[0];
        assert_eq!(subset.addresses.as_ref().map(Vec::len), Some(MAX_ADDRESSES));
        assert_eq!(subset.not_ready_addresses, None);
        assert_eq!(endpoints.metadata.annotations.as_ref().unwrap()[OVER_CAPACITY], "truncated");
        let fewer = plan(Some(&service), &pods[..9], Some(endpoints), false);
        assert!(matches!(fewer, Step::Replace(e) if e.metadata.annotations.is_none()));
    }
}
