//! What a hollow node says of itself, and what it does with a Pod. Pure: names, numbers and times are arguments.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

/// How long a lease is good for, seconds, and how often it is renewed. Upstream's kubelet: 40 s, a quarter of it.
pub const LEASE_SECONDS: u32 = 40;
/// How often a node's status is written when nothing has changed, seconds. Upstream: `nodeStatusReportFrequency`, 5 min.
pub const STATUS_SECONDS: u32 = 300;
/// Addresses of Pods: 100.64.0.0/10, which no network gives to anybody; 1,024 for each of 4,096 nodes.
const PODS: u32 = u32::from_be_bytes([100, 64, 0, 0]);
const PODS_OF_A_NODE: u32 = 1024;
/// Addresses of nodes: 100.48.0.0/12 is nobody's here, either.
const NODES: u32 = u32::from_be_bytes([100, 48, 0, 0]);

/// What hollow nodes are like.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Their names begin with this; a number follows.
    pub prefix: String,
    /// Zones that they are spread over.
    pub zones: u32,
    /// Processors of each.
    pub cpus: u32,
    /// Memory of each, GiB.
    pub memory: u32,
    /// Pods that each takes.
    pub pods: u32,
}

impl Shape {
    /// The name of the `n`-th.
    #[must_use]
    pub fn name(&self, n: u32) -> String {
        format!("{}-{n:05}", self.prefix)
    }

    /// Which one has this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        let n = name.strip_prefix(self.prefix.as_str())?.strip_prefix('-')?.parse().ok()?;
        (self.name(n) == name).then_some(n)
    }

    /// The Node.
    #[must_use]
    pub fn node(&self, n: u32, now: Timestamp) -> Value {
        let name = self.name(n);
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": format!("zone-{}", n % self.zones.max(1)), "trine.dev/hollow": "true"}},
            "status": self.status(n, now),
        })
    }

    /// Its status, all well.
    #[must_use]
    pub fn status(&self, n: u32, now: Timestamp) -> Value {
        let gives = json!({"cpu": self.cpus.to_string(), "memory": format!("{}Gi", self.memory),
            "pods": self.pods.to_string(), "ephemeral-storage": "100Gi"});
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": "hollow",
                "lastHeartbeatTime": now.to_string(), "lastTransitionTime": now.to_string()})
        };
        json!({
            "capacity": gives, "allocatable": gives,
            "addresses": [{"type": "InternalIP", "address": node_address(n).to_string()},
                {"type": "Hostname", "address": self.name(n)}],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady")],
            "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux", "osImage": "hollow",
                "kernelVersion": "hollow", "containerRuntimeVersion": "hollow://1", "kubeletVersion": "v1.37.0",
                "kubeProxyVersion": "", "machineID": "", "systemUUID": "", "bootID": ""},
        })
    }

    /// Its sign of life between two changes.
    #[must_use]
    pub fn heartbeat(&self, n: u32, now: Timestamp) -> Value {
        let mut conditions = self.status(n, now)["conditions"].take();
        for condition in conditions.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            condition.remove("lastTransitionTime");
        }
        json!({"status": {"conditions": conditions}})
    }

    /// Its lease.
    #[must_use]
    pub fn lease(&self, n: u32, uid: &str, now: Timestamp) -> Value {
        let name = self.name(n);
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "ownerReferences":
                [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]},
            "spec": self.renewed(n, now)["spec"]})
    }

    /// What is written to renew the lease.
    #[must_use]
    pub fn renewed(&self, n: u32, now: Timestamp) -> Value {
        json!({"spec": {"holderIdentity": self.name(n), "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format!("{now:.6}")}})
    }
}

/// The address of the `n`-th node.
#[must_use]
pub fn node_address(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(NODES + n % (1 << 20))
}

/// The `i`-th address that the `n`-th node gives to a Pod.
#[must_use]
pub fn pod_address(n: u32, i: u32) -> Ipv4Addr {
    Ipv4Addr::from(PODS + n % 4096 * PODS_OF_A_NODE + 1 + i % (PODS_OF_A_NODE - 2))
}

/// What is read of a Pod's spec.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Where it is.
    pub node_name: String,
    /// Its containers.
    pub containers: Vec<Container>,
    /// Those that come first, or stay beside.
    pub init_containers: Vec<Container>,
}

/// What is read of a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// `Always` for one that stays beside.
    pub restart_policy: String,
}

/// What is read of a Pod's status.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Its phase.
    pub phase: String,
}

/// What a node has to do for a Pod next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Say that it runs.
    Start,
    /// It has been asked to go, and goes at once.
    End,
}

/// What is to be done for a Pod that is seen like this.
#[must_use]
pub fn act(deleted: bool, phase: &str) -> Option<Act> {
    match (deleted, phase) {
        (true, _) => Some(Act::End),
        (false, "" | "Pending") => Some(Act::Start),
        (false, _) => None,
    }
}

/// The status of a Pod that runs.
#[must_use]
pub fn running(spec: &Spec, node: u32, address: Ipv4Addr, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let one = |container: &Container, state: Value, ready: bool| {
        json!({"name": container.name, "image": container.image, "imageID": format!("hollow:{}", container.image),
            "containerID": format!("hollow://{address}/{}", container.name), "ready": ready, "started": ready,
            "restartCount": 0, "state": state})
    };
    let runs = |container: &Container| one(container, json!({"running": {"startedAt": now}}), true);
    let first = |container: &Container| match container.restart_policy.as_str() {
        "Always" => runs(container),
        _ => {
            let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}});
            let mut status = one(container, ended, true);
            status["started"] = false.into();
            status
        }
    };
    let kinds = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"];
    let conditions = kinds.map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}));
    let mut status = json!({
        "phase": "Running", "startTime": now, "conditions": conditions,
        "hostIP": node_address(node).to_string(), "hostIPs": [{"ip": node_address(node).to_string()}],
        "podIP": address.to_string(), "podIPs": [{"ip": address.to_string()}],
        "containerStatuses": spec.containers.iter().map(runs).collect::<Vec<_>>(),
    });
    if !spec.init_containers.is_empty() {
        status["initContainerStatuses"] = spec.init_containers.iter().map(first).collect();
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape { prefix: "hollow".to_owned(), zones: 3, cpus: 4, memory: 32, pods: 110 }
    }

    #[test]
    fn a_name_is_of_one_node() {
        assert_eq!(shape().name(7), "hollow-00007");
        let rows = [
            ("hollow-00007", Some(7)),
            ("hollow-123456", Some(123_456)),
            ("hollow-7", None),
            ("n-00007", None),
        ];
        for (name, expected) in rows {
            assert_eq!(shape().number(name), expected, "{name}");
        }
    }

    #[test]
    fn a_node_is_what_the_api_takes() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let node: trine_typed::k8s_openapi::api::core::v1::Node =
            serde_json::from_value(shape().node(4, now)).unwrap();
        assert_eq!(node.metadata.labels.unwrap()["topology.kubernetes.io/zone"], "zone-1");
        assert_eq!(node.status.unwrap().allocatable.unwrap()["pods"].0, "110");
        let lease: trine_typed::k8s_openapi::api::coordination::v1::Lease =
            serde_json::from_value(shape().lease(4, "u", now)).unwrap();
        assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some("hollow-00004"));
        let beat = shape().heartbeat(4, now);
        assert_eq!(beat["status"]["conditions"][3]["lastHeartbeatTime"], now.to_string());
        assert!(beat["status"]["conditions"][3].get("lastTransitionTime").is_none(), "nothing has changed");
    }

    #[test]
    fn a_pod_is_started_once_and_ended_when_it_is_to_go() {
        let rows = [
            (false, "Pending", Some(Act::Start)),
            (false, "", Some(Act::Start)),
            (false, "Running", None),
            (false, "Succeeded", None),
            (true, "Pending", Some(Act::End)),
            (true, "Running", Some(Act::End)),
        ];
        for (deleted, phase, expected) in rows {
            assert_eq!(act(deleted, phase), expected, "{deleted} {phase}");
        }
    }

    #[test]
    fn a_pod_that_runs_says_so_of_each_container() {
        let spec: Spec = serde_json::from_value(json!({"nodeName": "hollow-00001",
            "containers": [{"name": "c", "image": "i"}],
            "initContainers": [{"name": "first"}, {"name": "beside", "restartPolicy": "Always"}]}))
        .unwrap();
        let status = running(&spec, 1, pod_address(1, 0), "2026-01-01T00:00:00.5Z".parse().unwrap());
        let typed: trine_typed::k8s_openapi::api::core::v1::PodStatus =
            serde_json::from_value(status.clone()).unwrap();
        assert_eq!(typed.pod_ip.as_deref(), Some("100.64.4.1"));
        assert_eq!(status["containerStatuses"][0]["state"]["running"]["startedAt"], "2026-01-01T00:00:00Z");
        assert_eq!(status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
        assert_eq!(status["initContainerStatuses"][1]["started"], true);
        assert_ne!(pod_address(1, 1023), pod_address(2, 0));
    }
}
