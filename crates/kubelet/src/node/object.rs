//! What the Node object says, decided purely from the machine, the runtime's words and the clock.

use std::collections::BTreeMap;

use trine_contracts::cri;
use trine_objects::quantity::Quantity as Amount;
use trine_typed::k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeFeatures,
    NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeStatus, NodeSystemInfo,
};
use trine_typed::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::machine::{Machine, architecture};
use crate::config::{Config, MAX_PODS};
use crate::container::hugepages::HugePages;
use crate::eviction::{Pressure, Signal, Thresholds};

/// The release whose kubelet this is.
pub const VERSION: &str = "v1.37.0";
/// Says that attachments are made by the controller; upstream's attach/detach controller looks for it.
pub const CONTROLLER_ATTACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Images listed in the status at most (upstream).
const MAX_IMAGES: usize = 50;

/// Whether the runtime can take Pods.
#[derive(Debug, Clone, PartialEq)]
pub struct RuntimeHealth {
    /// Name and version, `trine://0.1.0`.
    pub version: String,
    /// `None` if ready, else reason and message.
    pub not_ready: Option<(String, String)>,
    /// Whether only the network is missing, so host-network Pods may start.
    pub network_ready: bool,
    /// What its handlers can do.
    pub handlers: Vec<NodeRuntimeHandler>,
    /// What it can do whichever handler it is.
    pub features: Option<NodeFeatures>,
}

/// Reads the runtime's conditions.
#[must_use]
pub fn health(version: &cri::VersionResponse, said: &cri::StatusResponse) -> RuntimeHealth {
    let conditions = said.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|c| c.r#type == kind);
    let mut reasons = Vec::new();
    for (kind, what) in [("RuntimeReady", "container runtime"), ("NetworkReady", "container runtime network")]
    {
        match find(kind) {
            Some(c) if c.status => {}
            Some(c) => reasons
                .push(format!("{what} not ready: {kind}=false reason:{} message:{}", c.reason, c.message)),
            None => reasons.push(format!("{what} not ready: the runtime says nothing of {kind}")),
        }
    }
    RuntimeHealth {
        version: format!("{}://{}", version.runtime_name, version.runtime_version),
        not_ready: (!reasons.is_empty()).then(|| ("KubeletNotReady".to_owned(), reasons.join(", "))),
        network_ready: find("NetworkReady").is_some_and(|c| c.status),
        handlers: said.runtime_handlers.iter().map(handler).collect(),
        features: said.features.as_ref().map(|features| NodeFeatures {
            supplemental_groups_policy: Some(features.supplemental_groups_policy),
        }),
    }
}

fn handler(said: &cri::RuntimeHandler) -> NodeRuntimeHandler {
    NodeRuntimeHandler {
        name: Some(said.name.clone()),
        features: said.features.as_ref().map(|features| NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(features.recursive_read_only_mounts),
            user_namespaces: Some(features.user_namespaces),
        }),
    }
}

fn condition(
    kind: &str,
    on: bool,
    words: (&str, &str),
    old: Option<&NodeCondition>,
    now: Timestamp,
) -> NodeCondition {
    let status = if on { "True" } else { "False" };
    let since = old.filter(|o| o.status == status).and_then(|o| o.last_transition_time.clone());
    NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(words.0.to_owned()),
        message: Some(words.1.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: since.or(Some(Time(now))),
    }
}

/// The four conditions; a condition keeps its transition time while its status stays.
#[must_use]
pub fn conditions(
    health: &RuntimeHealth,
    pressure: Pressure,
    old: &[NodeCondition],
    now: Timestamp,
) -> Vec<NodeCondition> {
    let find = |kind: &str| old.iter().find(|c| c.type_ == kind);
    let pressures = [
        (
            "MemoryPressure",
            pressure.memory,
            "KubeletHasInsufficientMemory",
            "KubeletHasSufficientMemory",
            "memory available",
        ),
        (
            "DiskPressure",
            pressure.disk,
            "KubeletHasDiskPressure",
            "KubeletHasNoDiskPressure",
            "disk pressure",
        ),
        (
            "PIDPressure",
            pressure.pid,
            "KubeletHasInsufficientPID",
            "KubeletHasSufficientPID",
            "PID available",
        ),
    ];
    let mut conditions: Vec<NodeCondition> = pressures
        .into_iter()
        .map(|(kind, on, bad, good, what)| {
            let message = match (kind, on) {
                ("DiskPressure", true) => "kubelet has disk pressure".to_owned(),
                ("DiskPressure", false) => "kubelet has no disk pressure".to_owned(),
                (_, true) => format!("kubelet has insufficient {what}"),
                (_, false) => format!("kubelet has sufficient {what}"),
            };
            condition(kind, on, (if on { bad } else { good }, &message), find(kind), now)
        })
        .collect();
    let ready = match &health.not_ready {
        None => {
            condition("Ready", true, ("KubeletReady", "kubelet is posting ready status"), find("Ready"), now)
        }
        Some((reason, message)) => condition("Ready", false, (reason, message), find("Ready"), now),
    };
    conditions.push(ready);
    conditions
}

fn quantity(value: u64, unit: &str) -> Quantity {
    Quantity(format!("{value}{unit}"))
}

/// What there is, and what Pods may have of it (less the hard eviction thresholds).
#[must_use]
pub fn resources(
    machine: &Machine,
    thresholds: &Thresholds,
) -> (BTreeMap<String, Quantity>, BTreeMap<String, Quantity>) {
    let huge = || {
        machine
            .huge_pages
            .iter()
            .map(|pages| (pages.resource(), Quantity(Amount::from_bytes(pages.bytes()).to_string())))
    };
    let of = |memory: u64, disk: Quantity| {
        let mut all = BTreeMap::from([
            ("cpu".to_owned(), quantity(machine.cpus, "")),
            ("memory".to_owned(), quantity(memory / 1024, "Ki")),
            ("ephemeral-storage".to_owned(), disk),
            ("pods".to_owned(), quantity(u64::from(MAX_PODS), "")),
        ]);
        all.extend(huge());
        all
    };
    let capacity = of(machine.memory, quantity(machine.disk / 1024, "Ki"));
    let less = |signal, all: u64| all.saturating_sub(thresholds.least(signal, all));
    let disk = less(Signal::Disk, machine.disk);
    // What is set aside for huge pages is nobody's memory any more.
    let set_aside: u64 = machine.huge_pages.iter().map(HugePages::bytes).sum();
    let memory = less(Signal::Memory, machine.memory).saturating_sub(set_aside);
    let allocatable = of(memory, quantity(disk, ""));
    (capacity, allocatable)
}

/// Labels that every Node carries.
#[must_use]
pub fn labels(config: &Config) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), config.node_name.clone()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), architecture().to_owned()),
        ("beta.kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("beta.kubernetes.io/arch".to_owned(), architecture().to_owned()),
    ]);
    labels.extend(config.node_labels.iter().cloned());
    labels
}

/// The images of the status, largest first.
#[must_use]
pub fn images(mut images: Vec<cri::Image>) -> Vec<ContainerImage> {
    images.sort_by_key(|i| std::cmp::Reverse(i.size));
    let entry = |image: cri::Image| {
        let names: Vec<String> = image.repo_digests.into_iter().chain(image.repo_tags).take(5).collect();
        ContainerImage { names: Some(names), size_bytes: i64::try_from(image.size).ok() }
    };
    images.into_iter().take(MAX_IMAGES).map(entry).collect()
}

/// Everything that goes into the status.
pub struct Facts<'a> {
    /// What the kubelet was told.
    pub config: &'a Config,
    /// What the machine is.
    pub machine: &'a Machine,
    /// What the runtime says.
    pub health: &'a RuntimeHealth,
    /// Whether anything runs short.
    pub pressure: Pressure,
    /// The port that the HTTPS server got.
    pub port: u16,
    /// The images on this node.
    pub images: Vec<ContainerImage>,
    /// Volumes in use.
    pub volumes_in_use: Vec<String>,
}

/// The status that this node reports. Fields that others own (`volumesAttached`) are left out.
#[must_use]
pub fn status(facts: &Facts<'_>, old: &[NodeCondition], now: Timestamp) -> NodeStatus {
    let (capacity, allocatable) = resources(facts.machine, &facts.config.eviction_hard);
    let address = |kind: &str, address: String| NodeAddress { type_: kind.to_owned(), address };
    NodeStatus {
        addresses: Some(
            facts
                .config
                .node_ips()
                .map(|ip| address("InternalIP", ip.to_string()))
                .chain([address("Hostname", facts.config.node_name.clone())])
                .collect(),
        ),
        capacity: Some(capacity),
        allocatable: Some(allocatable),
        conditions: Some(conditions(facts.health, facts.pressure, old, now)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(facts.port) }),
        }),
        node_info: Some(NodeSystemInfo {
            architecture: architecture().to_owned(),
            boot_id: facts.machine.boot_id.clone(),
            container_runtime_version: facts.health.version.clone(),
            kernel_version: facts.machine.kernel.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: VERSION.to_owned(),
            machine_id: facts.machine.machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: facts.machine.os_image.clone(),
            system_uuid: facts.machine.system_uuid.clone(),
            ..Default::default()
        }),
        images: Some(facts.images.clone()),
        runtime_handlers: Some(facts.health.handlers.clone()).filter(|all| !all.is_empty()),
        features: facts.health.features.clone(),
        volumes_in_use: Some(facts.volumes_in_use.clone()),
        ..Default::default()
    }
}

/// The Node to create.
#[must_use]
pub fn node(facts: &Facts<'_>, now: Timestamp) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(facts.config.node_name.clone()),
            labels: Some(labels(facts.config)),
            annotations: Some(BTreeMap::from([(CONTROLLER_ATTACH.to_owned(), "true".to_owned())])),
            ..Default::default()
        },
        spec: None,
        status: Some(status(facts, &[], now)),
    }
}

/// Whether two statuses differ in more than their heartbeats.
#[must_use]
pub fn differs(a: &NodeStatus, b: &NodeStatus) -> bool {
    let still = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        status
    };
    still(a) != still(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn runtime(conditions: &[(&str, bool)]) -> RuntimeHealth {
        let conditions = conditions
            .iter()
            .map(|(kind, status)| cri::RuntimeCondition {
                r#type: (*kind).to_owned(),
                status: *status,
                reason: "R".into(),
                message: "m".into(),
            })
            .collect();
        let version = cri::VersionResponse {
            runtime_name: "trine".into(),
            runtime_version: "1".into(),
            ..Default::default()
        };
        let features =
            cri::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: false };
        let said = cri::StatusResponse {
            status: Some(cri::RuntimeStatus { conditions }),
            runtime_handlers: vec![cri::RuntimeHandler { name: String::new(), features: Some(features) }],
            ..Default::default()
        };
        health(&version, &said)
    }

    #[test]
    fn a_runtime_without_network_makes_the_node_not_ready_with_its_reason() {
        let health = runtime(&[("RuntimeReady", true), ("NetworkReady", false)]);
        let (reason, message) = health.not_ready.clone().unwrap();
        assert_eq!(reason, "KubeletNotReady");
        assert_eq!(message, "container runtime network not ready: NetworkReady=false reason:R message:m");
        let ready = conditions(&health, Pressure::default(), &[], at(1)).pop().unwrap();
        assert_eq!((ready.type_.as_str(), ready.status.as_str()), ("Ready", "False"));
        let handlers = serde_json::to_value(&health.handlers).unwrap();
        let expected = serde_json::json!([{"name": "", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": false}}]);
        assert_eq!(handlers, expected);
    }

    #[test]
    fn a_condition_keeps_its_transition_time_while_its_status_stays() {
        let good = runtime(&[("RuntimeReady", true), ("NetworkReady", true)]);
        let first = conditions(&good, Pressure::default(), &[], at(1));
        let second = conditions(&good, Pressure::default(), &first, at(2));
        assert!(second.iter().all(|c| c.last_transition_time == Some(Time(at(1)))));
        assert!(second.iter().all(|c| c.last_heartbeat_time == Some(Time(at(2)))));
        let bad = conditions(&runtime(&[]), Pressure::default(), &second, at(3));
        assert_eq!(bad.last().unwrap().last_transition_time, Some(Time(at(3))));
    }

    #[test]
    fn allocatable_is_capacity_less_the_eviction_thresholds() {
        let huge_pages = vec![HugePages { size: 2048, pages: 4 }];
        let machine =
            Machine { cpus: 2, memory: 1 << 30, disk: 1000 * 1024, huge_pages, ..Default::default() };
        let thresholds = "memory.available<100Mi,nodefs.available<10%".parse().unwrap();
        let (capacity, allocatable) = resources(&machine, &thresholds);
        assert_eq!(capacity["memory"].0, "1048576Ki");
        assert_eq!(allocatable["memory"].0, "937984Ki");
        assert_eq!(
            (capacity["hugepages-2Mi"].0.as_str(), allocatable["hugepages-2Mi"].0.as_str()),
            ("8Mi", "8Mi")
        );
        assert_eq!(capacity["ephemeral-storage"].0, "1000Ki");
        assert_eq!(allocatable["ephemeral-storage"].0, "921600");
        assert_eq!(allocatable["pods"].0, "110");
    }
}
