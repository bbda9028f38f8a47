//! Requests and limits as cgroup numbers, and the QoS class.

use trine_contracts::cri::LinuxContainerResources;
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod};

use super::quantity;

/// Scheduling period of the CPU quota, microseconds.
const PERIOD: i64 = 100_000;
/// Smallest quota that the kernel takes, microseconds.
const MIN_QUOTA: i64 = 1000;
/// Bounds of `cpu.shares`.
const SHARES: (i64, i64) = (2, 262_144);

/// `Guaranteed`, `Burstable` or `BestEffort`.
#[must_use]
pub fn qos(pod: &Pod) -> &'static str {
    let spec = pod.spec.as_ref();
    let all: Vec<&Container> = spec
        .into_iter()
        .flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()))
        .collect();
    let amount = |container: &Container, limits: bool, resource: &str| {
        let resources = container.resources.as_ref();
        let map = resources.and_then(|r| if limits { r.limits.as_ref() } else { r.requests.as_ref() });
        map.and_then(|m| m.get(resource)).and_then(|q| quantity::milli(&q.0)).filter(|q| *q > 0)
    };
    let mut any = false;
    let mut guaranteed = !all.is_empty();
    for container in &all {
        for resource in ["cpu", "memory"] {
            let limit = amount(container, true, resource);
            // The API server copies a limit to a missing request; a hand-made object may lack it.
            let request = amount(container, false, resource).or(limit);
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (_, true) => "Guaranteed",
        _ => "Burstable",
    }
}

/// On version 2, all processes of a container are killed together for want of memory, as upstream does: what is left of a
/// program after one of its processes is gone, is rarely of use.
const TOGETHER: (&str, &str) = ("memory.oom.group", "1");

/// The numbers for `container`; `memory` is the node's, bytes.
#[must_use]
pub fn linux(pod: &Pod, container: &Container, memory: u64, cgroup_2: bool) -> LinuxContainerResources {
    let amount = |limits: bool, resource: &str| {
        let resources = container.resources.as_ref();
        let map = resources.and_then(|r| if limits { r.limits.as_ref() } else { r.requests.as_ref() });
        map.and_then(|m| m.get(resource)).and_then(|q| quantity::milli(&q.0))
    };
    let cpu_limit = amount(true, "cpu").unwrap_or_default();
    let cpu = amount(false, "cpu").or(amount(true, "cpu")).unwrap_or_default();
    let memory_limit = amount(true, "memory").unwrap_or_default() / 1000;
    let memory_request = (amount(false, "memory").or(amount(true, "memory")).unwrap_or_default()) / 1000;
    let number = |n: i128| i64::try_from(n).unwrap_or(i64::MAX);
    LinuxContainerResources {
        cpu_shares: (number(cpu) * 1024 / 1000).clamp(SHARES.0, SHARES.1),
        cpu_quota: if cpu_limit > 0 { (number(cpu_limit) * PERIOD / 1000).max(MIN_QUOTA) } else { 0 },
        cpu_period: if cpu_limit > 0 { PERIOD } else { 0 },
        memory_limit_in_bytes: number(memory_limit),
        oom_score_adj: oom_score(qos(pod), memory_request, memory),
        unified: cgroup_2.then(|| (TOGETHER.0.to_owned(), TOGETHER.1.to_owned())).into_iter().collect(),
        ..Default::default()
    }
}

/// How early the kernel kills it when memory runs out (upstream's formula).
#[must_use]
pub fn oom_score(qos: &str, memory_request: i128, memory: u64) -> i64 {
    match qos {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ if memory == 0 => 999,
        _ => {
            let share = 1000 * memory_request / i128::from(memory);
            i64::try_from(1000 - share).unwrap_or(999).clamp(2, 999)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(containers: Value) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": containers}})).unwrap()
    }

    #[test]
    fn the_class_follows_from_requests_and_limits_of_all_containers() {
        let both =
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}});
        let rows = [
            ("nothing", json!([{"name": "a"}]), "BestEffort"),
            ("equal", json!([{"name": "a", "resources": both}]), "Guaranteed"),
            (
                "limits only",
                json!([{"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]),
                "Guaranteed",
            ),
            ("one without", json!([{"name": "a", "resources": both}, {"name": "b"}]), "Burstable"),
            ("cpu only", json!([{"name": "a", "resources": {"limits": {"cpu": "1"}}}]), "Burstable"),
        ];
        for (name, containers, expected) in rows {
            assert_eq!(qos(&pod(containers)), expected, "{name}");
        }
    }

    #[test]
    fn cgroup_numbers_are_upstreams() {
        let rows = [
            ("nothing", json!({}), (2, 0, 0, 1000)),
            ("half a cpu", json!({"requests": {"cpu": "500m"}}), (512, 0, 0, 999)),
            ("limit", json!({"limits": {"cpu": "100m", "memory": "1Gi"}}), (102, 10_000, 1 << 30, -997)),
            ("tiny limit", json!({"limits": {"cpu": "1m"}}), (2, 1000, 0, 999)),
            ("quarter of memory", json!({"requests": {"memory": "1Gi"}}), (2, 0, 0, 750)),
        ];
        for (name, resources, expected) in rows {
            let pod = pod(json!([{"name": "a", "resources": resources}]));
            let got = linux(&pod, &pod.spec.as_ref().unwrap().containers[0], 4 << 30, true);
            assert_eq!(
                (got.cpu_shares, got.cpu_quota, got.memory_limit_in_bytes, got.oom_score_adj),
                expected,
                "{name}"
            );
            assert_eq!(got.unified.len(), 1, "{name}");
        }
    }
}
