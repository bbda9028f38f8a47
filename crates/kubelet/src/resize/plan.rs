//! Whether a change can be given, and whether a container has what it was given. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_contracts::cri::LinuxContainerResources;
use trine_typed::demand::{allocatable, requests};
use trine_typed::k8s_openapi::api::core::v1::{Container, Node, Pod};

use crate::admission::short;
use crate::container::resources;
use crate::pod::spec;
use crate::runtime::{ContainerView, RunState};

/// A change that is not given now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// `Deferred`: when others go; `Infeasible`: never on this node.
    pub reason: &'static str,
    /// In words.
    pub message: String,
}

/// Why `pod`, with what it asks for now, cannot have it beside `others` on `node`.
#[must_use]
pub fn judge(pod: &Pod, others: &[Arc<Pod>], node: &Node) -> Option<Pending> {
    let total = allocatable(node);
    for name in ["cpu", "memory"] {
        let unit = if name == "cpu" { 1 } else { 1000 };
        let want = requests(pod).get(name).copied().unwrap_or_default();
        let have = total.get(name).copied().unwrap_or_default();
        if want > have {
            let message = format!(
                "Node didn't have enough capacity: {name}, requested: {}, capacity: {}",
                want / unit,
                have / unit
            );
            return Some(Pending { reason: "Infeasible", message });
        }
    }
    short(pod, others, node).map(|refusal| Pending { reason: "Deferred", message: refusal.message })
}

/// What a container's group has, as far as it can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    /// `cpu.shares`.
    pub cpu_shares: i64,
    /// Microseconds per period; 0 without a limit.
    pub cpu_quota: i64,
    /// Bytes; 0 without a limit.
    pub memory: i64,
}

impl From<&LinuxContainerResources> for Numbers {
    fn from(resources: &LinuxContainerResources) -> Self {
        Self {
            cpu_shares: resources.cpu_shares,
            cpu_quota: resources.cpu_quota.max(0),
            memory: resources.memory_limit_in_bytes.max(0),
        }
    }
}

/// What each container of `pod` is to have; `memory` is the node's, bytes.
#[must_use]
pub fn numbers(pod: &Pod, memory: u64, cgroup_2: bool) -> BTreeMap<String, Numbers> {
    let of = |c: &Container| Numbers::from(&resources::linux(pod, c, memory, cgroup_2));
    spec::all(pod).map(|c| (c.name.clone(), of(c))).collect()
}

/// What has to be done for a running container to have `wanted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Its group is changed.
    Change,
    /// It is started again with the new numbers.
    Restart,
}

/// Decides by the container's `resizePolicy`. `set` is what this kubelet last set: some runtimes say it in other numbers.
#[must_use]
pub fn due(
    container: &Container,
    view: &ContainerView,
    wanted: Option<&Numbers>,
    set: Option<&Numbers>,
) -> Due {
    let (Some(wanted), Some(has)) = (wanted, &view.numbers) else { return Due::Nothing };
    if view.state != RunState::Running || has == wanted || set == Some(wanted) {
        return Due::Nothing;
    }
    let restarts = |resource: &str| {
        let mut policies = container.resize_policy.iter().flatten();
        policies.any(|p| p.resource_name == resource && p.restart_policy == "RestartContainer")
    };
    let cpu = has.cpu_shares != wanted.cpu_shares || has.cpu_quota != wanted.cpu_quota;
    let memory = has.memory != wanted.memory;
    if (cpu && restarts("cpu")) || (memory && restarts("memory")) { Due::Restart } else { Due::Change }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(requests: &Value) -> Pod {
        serde_json::from_value(
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}),
        )
        .unwrap()
    }

    #[test]
    fn a_change_is_given_waits_or_never_fits() {
        let node: Node = serde_json::from_value(
            json!({"status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "10"}}}),
        )
        .unwrap();
        let others = [Arc::new(pod(&json!({"cpu": "1"})))];
        let rows = [
            (json!({"cpu": "1"}), None),
            (
                json!({"cpu": "1500m"}),
                Some((
                    "Deferred",
                    "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000",
                )),
            ),
            (
                json!({"memory": "2Gi"}),
                Some((
                    "Infeasible",
                    "Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824",
                )),
            ),
        ];
        for (wanted, expected) in rows {
            let pending = judge(&pod(&wanted), &others, &node);
            let said = pending.as_ref().map(|p| (p.reason, p.message.as_str()));
            assert_eq!(said, expected, "{wanted}");
        }
    }

    #[test]
    fn a_container_is_changed_or_started_again_as_its_policy_says() {
        let container = |policy: &Value| -> Container {
            serde_json::from_value(json!({"name": "c", "resizePolicy": policy})).unwrap()
        };
        let numbers = |cpu_shares, memory| Numbers { cpu_shares, cpu_quota: 0, memory };
        let view = |state, numbers| ContainerView { state, numbers, ..ContainerView::default() };
        let (old, cpu, memory) = (numbers(2, 10), numbers(3, 10), numbers(2, 20));
        let restart = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"},
            {"resourceName": "cpu", "restartPolicy": "NotRequired"}]);
        let running = || view(RunState::Running, Some(old));
        let rows = [
            ("nothing new", running(), json!([]), Some(old), None, Due::Nothing),
            ("cpu", running(), json!([]), Some(cpu), None, Due::Change),
            ("cpu, beside memory's policy", running(), restart.clone(), Some(cpu), None, Due::Change),
            ("memory by policy", running(), restart.clone(), Some(memory), None, Due::Restart),
            ("already set", running(), restart, Some(memory), Some(memory), Due::Nothing),
            (
                "a runtime that does not say",
                view(RunState::Running, None),
                json!([]),
                Some(cpu),
                None,
                Due::Nothing,
            ),
            ("ended", view(RunState::Exited, Some(old)), json!([]), Some(cpu), None, Due::Nothing),
        ];
        for (name, view, policy, wanted, set, expected) in rows {
            assert_eq!(due(&container(&policy), &view, wanted.as_ref(), set.as_ref()), expected, "{name}");
        }
    }
}
