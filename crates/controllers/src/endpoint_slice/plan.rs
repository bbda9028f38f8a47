//! Which endpoints a Service has: its Pods, by address family and by what its ports mean on them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use trine_typed::k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};
use trine_typed::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use trine_typed::pods::is_finished;

use super::place::{Group, Owner, SERVICE_NAME};
use crate::workload::readiness::is_ready;

/// Our value of [`super::place::MANAGED_BY`]; upstream's, so that either controller can take over from the other.
pub const CONTROLLER: &str = "endpointslice-controller.k8s.io";

const HEADLESS: &str = "service.kubernetes.io/headless";

/// Whether a Service's Pods are found here: it has a selector, and addresses of its own kind.
#[must_use]
pub fn is_ours(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    spec.selector.as_ref().is_some_and(|s| !s.is_empty())
        && spec.type_.as_deref() != Some("ExternalName")
        && service.metadata.deletion_timestamp.is_none()
}

/// Whether a Pod is selected by a Service.
#[must_use]
pub fn selects(service: &Service, pod: &Pod) -> bool {
    let Some(selector) = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else { return false };
    let labels = pod.metadata.labels.as_ref();
    pod.metadata.namespace == service.metadata.namespace
        && !selector.is_empty()
        && selector.iter().all(|(k, v)| labels.and_then(|l| l.get(k)) == Some(v))
}

/// What of a Pod endpoints show: other changes of it are none of theirs.
#[must_use]
pub fn shown(pod: &Pod) -> impl PartialEq + use<'_> {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    (
        &pod.metadata.labels,
        &pod.metadata.uid,
        pod.metadata.deletion_timestamp.is_some(),
        (is_finished(pod), is_ready(pod)),
        spec.map(|spec| (&spec.node_name, &spec.hostname, &spec.subdomain)),
        status.map(|status| (&status.pod_ip, &status.pod_ips)),
    )
}

/// Whether a Service's name stands for its Pods themselves.
#[must_use]
pub fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()) == Some("None")
}

/// The labels that a Service passes on to its endpoints.
#[must_use]
pub fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    // Upstream takes it off again when a Service has addresses of its own, so it is not just passed on.
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

/// Who the slices of a Service belong to.
#[must_use]
pub fn owner(service: &Service) -> Owner {
    let name = service.metadata.name.clone().unwrap_or_default();
    let mut labels = labels(service);
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    Owner {
        api_version: "v1",
        kind: "Service",
        namespace: service.metadata.namespace.clone().unwrap_or_default(),
        name,
        uid: service.metadata.uid.clone().unwrap_or_default(),
        labels,
        annotations: BTreeMap::new(),
        manager: CONTROLLER,
    }
}

/// The endpoints of a Service: Pods with the same resolved ports together. `zone` knows where nodes are.
#[must_use]
pub fn groups(service: &Service, pods: &[Arc<Pod>], zone: impl Fn(&str) -> Option<String>) -> Vec<Group> {
    let Some(spec) = service.spec.as_ref().filter(|_| is_ours(service)) else { return Vec::new() };
    let publish_all = spec.publish_not_ready_addresses.unwrap_or_default();
    let ports = spec.ports.as_deref().unwrap_or_default();
    let mut chosen: Vec<&Arc<Pod>> = pods.iter().filter(|p| selects(service, p)).collect();
    chosen.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let mut all = Vec::new();
    for family in families(service) {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for pod in &chosen {
            let Some(endpoint) = endpoint(service, pod, family, publish_all, &zone) else { continue };
            let resolved: Vec<EndpointPort> = ports.iter().filter_map(|p| resolve(p, pod)).collect();
            let fresh = || Group { family, ports: resolved.clone(), endpoints: Vec::new() };
            groups.entry(format!("{resolved:?}")).or_insert_with(fresh).endpoints.push(endpoint);
        }
        if groups.is_empty() {
            // An empty slice says "known, and nobody there".
            all.push(Group { family, ports: Vec::new(), endpoints: Vec::new() });
        }
        all.extend(groups.into_values());
    }
    all
}

/// The address families of a Service.
fn families(service: &Service) -> Vec<&'static str> {
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.as_deref()).unwrap_or_default();
    let known: Vec<&'static str> =
        ["IPv4", "IPv6"].into_iter().filter(|family| families.iter().any(|f| f == family)).collect();
    if known.is_empty() { vec!["IPv4"] } else { known }
}

/// The address of a Pod in a family.
#[must_use]
pub fn address_of(pod: &Pod, family: &str) -> Option<String> {
    let status = pod.status.as_ref()?;
    let all = status.pod_ips.iter().flatten().map(|address| &address.ip).chain(&status.pod_ip);
    let is_of = |text: &&String| match text.parse() {
        Ok(IpAddr::V4(_)) => family == "IPv4",
        Ok(IpAddr::V6(_)) => family == "IPv6",
        Err(_) => false,
    };
    all.into_iter().find(is_of).cloned()
}

/// The name that a Pod has under a Service's, if it says the Service's name itself.
#[must_use]
pub fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let under = spec.subdomain.is_some() && spec.subdomain == service.metadata.name;
    spec.hostname.clone().filter(|name| under && !name.is_empty())
}

/// What an endpoint is.
#[must_use]
pub fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

fn endpoint(
    service: &Service,
    pod: &Pod,
    family: &str,
    publish_all: bool,
    zone: impl Fn(&str) -> Option<String>,
) -> Option<Endpoint> {
    if is_finished(pod) {
        return None;
    }
    let address = address_of(pod, family)?;
    let (serving, terminating) = (is_ready(pod), pod.metadata.deletion_timestamp.is_some());
    let node_name = pod.spec.as_ref().and_then(|s| s.node_name.clone());
    Some(Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(publish_all || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        zone: node_name.as_deref().and_then(zone),
        node_name,
        target_ref: Some(target(pod)),
        hostname: hostname(service, pod),
        ..Endpoint::default()
    })
}

/// The port that a Service port means on this Pod; `None` if it names a port that the Pod does not have.
#[must_use]
pub fn resolve(port: &ServicePort, pod: &Pod) -> Option<EndpointPort> {
    let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let number = match &port.target_port {
        Some(IntOrString::Int(0)) | None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => named_port(pod, name, &protocol)?,
    };
    Some(EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(number),
        protocol: Some(protocol),
        app_protocol: port.app_protocol.clone(),
    })
}

fn named_port(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.is_some());
    let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    let found = ports
        .into_iter()
        .find(|p| p.name.as_deref() == Some(name) && p.protocol.as_deref().unwrap_or("TCP") == protocol);
    found.map(|p| p.container_port)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        let value = json!({"metadata": {"name": "web", "namespace": "default", "uid": "s"}, "spec": spec});
        serde_json::from_value(value).unwrap()
    }

    fn pod(name: &str, addresses: &[&str], ready: &str, port: i32) -> Arc<Pod> {
        let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        let value = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {"nodeName": "n", "subdomain": "web", "hostname": name, "containers": [{"name": "c", "ports": [
                {"name": "http", "containerPort": port}]}]},
            "status": {"phase": "Running", "podIP": addresses[0], "podIPs": ips,
                "conditions": [{"type": "Ready", "status": ready}]}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn nowhere(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn named_ports_are_resolved_per_pod_and_unready_pods_are_marked() {
        let service =
            service(json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}));
        let pods = [pod("a", &["10.0.0.1"], "True", 8080), pod("b", &["10.0.0.2"], "False", 9090)];
        let groups = groups(&service, &pods, |node| Some(format!("zone of {node}")));
        assert_eq!(groups.len(), 2, "different numbers for the same name: two slices");
        for group in groups {
            let [endpoint] = &group.endpoints[..] else { panic!("{group:?}") };
            let ready = endpoint.conditions.as_ref().unwrap().ready;
            assert_eq!(ready, Some(group.ports[0].port == Some(8080)));
            assert_eq!(endpoint.zone.as_deref(), Some("zone of n"));
            assert_eq!(endpoint.hostname, endpoint.target_ref.as_ref().unwrap().name);
        }
    }

    #[test]
    fn each_family_has_its_own_addresses() {
        let service =
            service(json!({"selector": {"app": "web"}, "ipFamilies": ["IPv6", "IPv4"], "clusterIP": "None"}));
        let pods = [pod("a", &["10.0.0.1", "fd00::1"], "True", 1), pod("b", &["10.0.0.2"], "True", 1)];
        let shown: Vec<(&str, Vec<String>)> = groups(&service, &pods, nowhere)
            .iter()
            .map(|g| (g.family, g.endpoints.iter().flat_map(|e| e.addresses.clone()).collect()))
            .collect();
        let own = |all: &[&str]| all.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
        assert_eq!(shown, [("IPv4", own(&["10.0.0.1", "10.0.0.2"])), ("IPv6", own(&["fd00::1"]))]);
    }

    #[test]
    fn a_service_without_selector_is_left_to_its_owner_and_one_without_pods_is_known() {
        assert_eq!(groups(&service(json!({"ports": [{"port": 80}]})), &[], nowhere), []);
        let external = json!({"selector": {"app": "web"}, "type": "ExternalName"});
        assert_eq!(groups(&service(external), &[], nowhere), []);
        let empty =
            groups(&service(json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})), &[], nowhere);
        assert_eq!(empty, [Group { family: "IPv4", ports: Vec::new(), endpoints: Vec::new() }]);
    }
}
