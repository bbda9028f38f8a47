//! Which EndpointSlices a Service should have, and what to write to get there.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use trine_typed::k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use trine_typed::k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice,
};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trine_typed::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Endpoints per slice. Upstream: `--max-endpoints-per-slice`.
pub const MAX_ENDPOINTS: usize = 100;
/// The label that says who keeps a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Our value of [`MANAGED_BY`]; upstream's, so that either controller can take over from the other.
pub const CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// The label that names the Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A slice that is missing.
    Create(EndpointSlice),
    /// A slice with other endpoints, ports or labels.
    Replace(EndpointSlice),
    /// A slice that nobody needs.
    Delete {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
}

/// All writes for all Services. `slices` are those with our [`MANAGED_BY`] value only.
#[must_use]
pub fn plan(services: &[Arc<Service>], pods: &[Arc<Pod>], slices: &[Arc<EndpointSlice>]) -> Vec<Action> {
    let key = |meta: &ObjectMeta| {
        (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    };
    let mut actual: BTreeMap<_, _> = slices.iter().map(|s| (key(&s.metadata), s)).collect();
    let mut actions = Vec::new();
    for wanted in services.iter().flat_map(|service| desired(service, pods)) {
        match actual.remove(&key(&wanted.metadata)) {
            None => actions.push(Action::Create(wanted)),
            Some(have) if same(have, &wanted) => {}
            Some(have) => {
                let mut wanted = wanted;
                wanted.metadata.resource_version.clone_from(&have.metadata.resource_version);
                wanted.metadata.uid.clone_from(&have.metadata.uid);
                actions.push(Action::Replace(wanted));
            }
        }
    }
    actions.extend(actual.into_keys().map(|(namespace, name)| Action::Delete { namespace, name }));
    actions
}

fn same(have: &EndpointSlice, want: &EndpointSlice) -> bool {
    have.endpoints == want.endpoints
        && have.ports == want.ports
        && have.metadata.labels == want.metadata.labels
}

/// The slices of one Service: Pods with the same resolved ports together, [`MAX_ENDPOINTS`] in each.
fn desired(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSlice> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let Some(selector) = spec.selector.as_ref().filter(|s| !s.is_empty()) else { return Vec::new() };
    if spec.type_.as_deref() == Some("ExternalName") || service.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let publish_all = spec.publish_not_ready_addresses.unwrap_or_default();
    let ports = spec.ports.as_deref().unwrap_or_default();
    let mut groups: BTreeMap<String, (Vec<EndpointPort>, Vec<Endpoint>)> = BTreeMap::new();
    let mut chosen: Vec<&Arc<Pod>> = pods.iter().filter(|p| is_selected(p, service, selector)).collect();
    chosen.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    for pod in chosen {
        let Some(endpoint) = endpoint(pod, publish_all) else { continue };
        let resolved: Vec<EndpointPort> = ports.iter().filter_map(|p| resolve(p, pod)).collect();
        let group = groups.entry(format!("{resolved:?}")).or_insert_with(|| (resolved, Vec::new()));
        group.1.push(endpoint);
    }
    let mut slices = Vec::new();
    for (ports_key, (ports, endpoints)) in groups {
        for (index, chunk) in endpoints.chunks(MAX_ENDPOINTS).enumerate() {
            slices.push(slice(service, &ports_key, index, ports.clone(), chunk.to_vec()));
        }
    }
    if slices.is_empty() {
        // An empty slice says "known, and nobody there"; upstream keeps one too.
        slices.push(slice(service, "", 0, Vec::new(), Vec::new()));
    }
    slices
}

fn is_selected(pod: &Pod, service: &Service, selector: &BTreeMap<String, String>) -> bool {
    let labels = pod.metadata.labels.as_ref();
    pod.metadata.namespace == service.metadata.namespace
        && selector.iter().all(|(k, v)| labels.and_then(|l| l.get(k)) == Some(v))
}

fn endpoint(pod: &Pod, publish_all: bool) -> Option<Endpoint> {
    let status = pod.status.as_ref()?;
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let address = status.pod_ip.clone().filter(|ip| !ip.is_empty())?;
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let serving = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let terminating = pod.metadata.deletion_timestamp.is_some();
    Some(Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(publish_all || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        node_name: pod.spec.as_ref().and_then(|s| s.node_name.clone()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        hostname: pod.spec.as_ref().filter(|s| s.subdomain.is_some()).and_then(|s| s.hostname.clone()),
        ..Endpoint::default()
    })
}

/// The port that a Service port means on this Pod; `None` if it names a port that the Pod does not have.
fn resolve(port: &ServicePort, pod: &Pod) -> Option<EndpointPort> {
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

fn slice(
    service: &Service,
    ports_key: &str,
    index: usize,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    let name = service.metadata.name.clone().unwrap_or_default();
    let hash = hex::encode(&Sha256::digest(format!("{ports_key}/{index}").as_bytes())[..3]);
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(MANAGED_BY.to_owned(), CONTROLLER.to_owned());
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    if service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()) == Some("None") {
        labels.insert("service.kubernetes.io/headless".to_owned(), String::new());
    }
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Service".to_owned(),
                name,
                uid: service.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        address_type: "IPv4".to_owned(),
        endpoints: Some(endpoints),
        ports: Some(ports),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Vec<Arc<Service>> {
        let value = json!({"metadata": {"name": "web", "namespace": "default", "uid": "s"}, "spec": spec});
        vec![Arc::new(serde_json::from_value(value).unwrap())]
    }

    fn pod(name: &str, ip: &str, ready: &str, port: i32) -> Arc<Pod> {
        let value = json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [
                {"name": "http", "containerPort": port}]}]},
            "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn created(actions: Vec<Action>) -> Vec<EndpointSlice> {
        let only_created = |action| match action {
            Action::Create(slice) => slice,
            other => panic!("{other:?}"),
        };
        actions.into_iter().map(only_created).collect()
    }

    #[test]
    fn named_ports_are_resolved_per_pod_and_unready_pods_are_marked() {
        let services = service(json!({"selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": "http"}]}));
        let pods = [pod("a", "10.0.0.1", "True", 8080), pod("b", "10.0.0.2", "False", 9090)];
        let slices = created(plan(&services, &pods, &[]));
        assert_eq!(slices.len(), 2, "different numbers for the same name: two slices");
        for slice in slices {
            let port = slice.ports.unwrap()[0].port;
            let ready = slice.endpoints.as_ref().unwrap()[0].conditions.as_ref().unwrap().ready;
            assert_eq!(ready, Some(port == Some(8080)));
        }
    }

    #[test]
    fn a_second_plan_over_its_own_result_writes_nothing_and_a_deleted_service_loses_its_slices() {
        let services = service(json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}));
        let pods = [pod("a", "10.0.0.1", "True", 80)];
        let made: Vec<_> = created(plan(&services, &pods, &[])).into_iter().map(Arc::new).collect();
        assert_eq!(plan(&services, &pods, &made), []);
        assert!(matches!(plan(&[], &pods, &made)[..], [Action::Delete { .. }]));
        assert!(matches!(plan(&services, &[], &made)[..], [Action::Create(_), Action::Delete { .. }]));
    }

    #[test]
    fn a_service_without_selector_is_left_to_its_owner() {
        assert_eq!(plan(&service(json!({"ports": [{"port": 80}]})), &[], &[]), []);
    }
}
