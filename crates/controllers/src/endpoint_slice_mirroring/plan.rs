//! Which slices say what Endpoints say that somebody wrote for a Service without a selector.

use std::collections::BTreeMap;
use std::net::IpAddr;

use trine_typed::k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use trine_typed::k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};

use crate::endpoint_slice::place::{Group, Owner, SERVICE_NAME};

/// Who keeps them, upstream's name.
pub const CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";
/// Addresses of one subset that are shown. Upstream: `--mirroring-max-endpoints-per-subset`.
const MAX_ADDRESSES: usize = 1000;
/// Says that these Endpoints are not to be shown.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Endpoints that are no endpoints but a lock.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations that say nothing about the slices.
const PRIVATE: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "endpoints.kubernetes.io/last-change-trigger-time"];

/// Whether slices are to say what these Endpoints say.
#[must_use]
pub fn is_mirrored(service: Option<&Service>, endpoints: &Endpoints) -> bool {
    let selector = |service: &Service| service.spec.as_ref().and_then(|spec| spec.selector.clone());
    let meta = &endpoints.metadata;
    let skipped = meta.labels.as_ref().and_then(|labels| labels.get(SKIP)).is_some_and(|v| v == "true");
    let lock = meta.annotations.as_ref().is_some_and(|a| a.contains_key(LEADER));
    service.is_some_and(|service| selector(service).is_none_or(|s| s.is_empty()))
        && !skipped
        && !lock
        && meta.deletion_timestamp.is_none()
}

/// Who the slices belong to.
#[must_use]
pub fn owner(endpoints: &Endpoints) -> Owner {
    let meta = &endpoints.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let mut labels = meta.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !PRIVATE.contains(&key.as_str()));
    Owner {
        api_version: "v1",
        kind: "Endpoints",
        namespace: meta.namespace.clone().unwrap_or_default(),
        name,
        uid: meta.uid.clone().unwrap_or_default(),
        labels,
        annotations,
        manager: CONTROLLER,
    }
}

/// What they say, by ports and address family.
#[must_use]
pub fn groups(endpoints: &Endpoints) -> Vec<Group> {
    let mut groups: BTreeMap<(&'static str, String), Group> = BTreeMap::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports = ports(subset);
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let waiting = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        for (address, ready) in ready.chain(waiting).take(MAX_ADDRESSES) {
            let family = match address.ip.parse() {
                Ok(IpAddr::V4(_)) => "IPv4",
                Ok(IpAddr::V6(_)) => "IPv6",
                Err(_) => continue,
            };
            let fresh = || Group { family, ports: ports.clone(), endpoints: Vec::new() };
            let group = groups.entry((family, format!("{ports:?}"))).or_insert_with(fresh);
            group.endpoints.push(endpoint(address, ready));
        }
    }
    groups.into_values().collect()
}

fn ports(subset: &EndpointSubset) -> Vec<EndpointPort> {
    let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    });
    ports.collect()
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn endpoints(metadata: Value, subsets: Value) -> Endpoints {
        serde_json::from_value(json!({"metadata": metadata, "subsets": subsets})).unwrap()
    }

    #[test]
    fn only_endpoints_that_somebody_wrote_for_a_service_are_shown() {
        let service = |spec: Value| serde_json::from_value::<Service>(json!({"spec": spec})).unwrap();
        let (without, with) = (service(json!({})), service(json!({"selector": {"a": "b"}})));
        let plain = endpoints(json!({"name": "e"}), json!([]));
        assert!(is_mirrored(Some(&without), &plain));
        assert!(!is_mirrored(Some(&with), &plain), "the other controller's");
        assert!(!is_mirrored(None, &plain), "no Service");
        for metadata in [json!({"labels": {SKIP: "true"}}), json!({"annotations": {LEADER: "x"}})] {
            assert!(!is_mirrored(Some(&without), &endpoints(metadata, json!([]))));
        }
    }

    #[test]
    fn slices_are_by_ports_and_family() {
        let subsets = json!([
            {"addresses": [{"ip": "192.0.2.1", "hostname": "h"}, {"ip": "fd00::1"}], "notReadyAddresses": [{"ip": "192.0.2.2"}],
             "ports": [{"port": 80}]},
            {"addresses": [{"ip": "192.0.2.3"}], "ports": [{"port": 80}]},
            {"addresses": [{"ip": "192.0.2.4"}], "ports": [{"port": 81, "name": "b", "protocol": "UDP"}]},
        ]);
        let shown: Vec<String> = groups(&endpoints(json!({}), subsets))
            .iter()
            .map(|group| {
                let one = |e: &Endpoint| {
                    format!("{}={}", e.addresses[0], e.conditions.as_ref().unwrap().ready.unwrap())
                };
                let all: Vec<String> = group.endpoints.iter().map(one).collect();
                format!("{} {:?}: {}", group.family, group.ports[0].port.unwrap(), all.join(" "))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "IPv4 80: 192.0.2.1=true 192.0.2.2=false 192.0.2.3=true",
                "IPv4 81: 192.0.2.4=true",
                "IPv6 80: fd00::1=true",
            ]
        );
    }

    #[test]
    fn what_the_endpoints_are_labelled_with_is_passed_on() {
        let metadata = json!({"name": "e", "namespace": "n", "uid": "u", "labels": {"a": "b"},
            "annotations": {"c": "d", PRIVATE[0]: "x"}});
        let owner = owner(&endpoints(metadata, json!([])));
        assert_eq!(owner.labels.get("a").map(String::as_str), Some("b"));
        assert_eq!(owner.annotations.into_iter().collect::<Vec<_>>(), [("c".to_owned(), "d".to_owned())]);
    }
}
