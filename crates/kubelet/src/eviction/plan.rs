//! Which Pod has to leave, and in which words. Pure.
//!
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#pod-selection-for-kubelet-eviction>

use std::cmp::Reverse;

use trine_objects::quantity::Quantity;
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod};

use super::thresholds::{Left, Signal};
use super::usage::PodUse;
use crate::container::quantity;
use crate::pod::spec;

/// Priority from which on a Pod is critical (upstream: `SystemCriticalPriority`).
pub const CRITICAL: i32 = 2_000_000_000;

/// A Pod that has to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// Its UID.
    pub uid: String,
    /// Why, as its status says it.
    pub message: String,
}

impl Signal {
    /// The resource that is short, as messages name it.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }
}

/// Whether nothing may evict the Pod.
#[must_use]
pub fn is_critical(pod: &Pod) -> bool {
    priority(pod) >= CRITICAL
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|s| s.priority).unwrap_or_default()
}

/// Pods that use more of the node's disk than they said that they would. Each leaves for the first limit that it is over.
#[must_use]
pub fn over_their_limits(pods: &[PodUse]) -> Vec<Eviction> {
    let evict = |used: &PodUse| {
        let message = full_volume(used).or_else(|| full_pod(used)).or_else(|| full_container(used))?;
        Some(Eviction { uid: spec::uid(&used.pod).to_owned(), message })
    };
    pods.iter().filter(|used| !is_critical(&used.pod)).filter_map(evict).collect()
}

/// Whether the Pod has a limit that [`over_their_limits`] would have to look at.
#[must_use]
pub fn has_limits(pod: &Pod) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    volumes.any(|v| v.empty_dir.as_ref().is_some_and(|dir| dir.size_limit.is_some()))
        || spec::containers(pod).iter().any(|c| limit(c).is_some())
}

fn full_volume(used: &PodUse) -> Option<String> {
    let volumes = used.pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let mut limited = volumes.filter_map(|v| Some((&v.name, v.empty_dir.as_ref()?.size_limit.as_ref()?)));
    limited.find_map(|(name, most)| {
        let bytes = bytes(&most.0).filter(|bytes| *bytes > 0)?;
        let full = used.volumes.get(name).is_some_and(|room| room.bytes > bytes);
        full.then(|| format!("Usage of EmptyDir volume {name:?} exceeds the limit {:?}. ", most.0))
    })
}

fn full_pod(used: &PodUse) -> Option<String> {
    let limits: Vec<u64> = spec::containers(&used.pod).iter().filter_map(limit).collect();
    let most: u64 = limits.iter().sum();
    let full = !limits.is_empty() && used.disk().bytes > most;
    let shown = Quantity::from_bytes(most);
    full.then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {shown}. "))
}

fn full_container(used: &PodUse) -> Option<String> {
    spec::containers(&used.pod).iter().find_map(|container| {
        let most = limit(container)?;
        let full = used.containers.get(&container.name).is_some_and(|c| c.disk().bytes > most);
        let (name, shown) = (&container.name, Quantity::from_bytes(most).to_string());
        full.then(|| format!("Container {name} exceeded its local ephemeral storage limit {shown:?}. "))
    })
}

fn limit(container: &Container) -> Option<u64> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    bytes(&limits.get("ephemeral-storage")?.0)
}

fn bytes(text: &str) -> Option<u64> {
    quantity::value(text).and_then(|n| u64::try_from(n).ok())
}

fn request(container: &Container, resource: &str) -> u64 {
    let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    requests.and_then(|r| bytes(&r.get(resource)?.0)).unwrap_or_default()
}

/// The Pod that leaves first when the node is short of `signal`: of those that use more than they asked for before the
/// others, the one of least priority, and of these the one that is furthest above what it asked for.
#[must_use]
pub fn first(signal: Signal, least: u64, seen: Left, pods: &[PodUse]) -> Option<Eviction> {
    let rank = |used: &&PodUse| {
        let (taken, asked) = (taken(signal, used), asked(signal, &used.pod));
        let above = i128::from(taken) - i128::from(asked);
        (above <= 0 && counts_requests(signal), priority(&used.pod), Reverse(above))
    };
    let used = pods.iter().filter(|used| !is_critical(&used.pod)).min_by_key(rank)?;
    Some(Eviction { uid: spec::uid(&used.pod).to_owned(), message: message(signal, least, seen, used) })
}

/// Nobody asks for inodes or process ids.
fn counts_requests(signal: Signal) -> bool {
    matches!(signal, Signal::Memory | Signal::Disk)
}

fn taken(signal: Signal, used: &PodUse) -> u64 {
    match signal {
        Signal::Memory => used.memory(),
        Signal::Disk => used.disk().bytes,
        Signal::Inodes => used.disk().inodes,
        Signal::Pids => 0,
    }
}

fn asked(signal: Signal, pod: &Pod) -> u64 {
    if !counts_requests(signal) {
        return 0;
    }
    let of =
        |list: &[Container]| -> Vec<u64> { list.iter().map(|c| request(c, signal.resource())).collect() };
    let main: u64 = of(spec::containers(pod)).iter().sum();
    main.max(of(spec::init_containers(pod)).into_iter().max().unwrap_or_default())
}

fn message(signal: Signal, least: u64, seen: Left, used: &PodUse) -> String {
    let counted = |amount: u64| match signal {
        Signal::Memory | Signal::Disk => Quantity::from_bytes(amount).to_string(),
        Signal::Inodes | Signal::Pids => amount.to_string(),
    };
    let resource = signal.resource();
    let mut text = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        counted(least),
        counted(seen.left)
    );
    for container in spec::containers(&used.pod) {
        let Some(of_container) = used.containers.get(&container.name) else { continue };
        let taken = match signal {
            Signal::Memory => of_container.memory,
            Signal::Disk => of_container.disk().bytes,
            Signal::Inodes | Signal::Pids => continue,
        };
        let asked = request(container, resource);
        if taken > asked {
            let (name, taken, asked) = (&container.name, counted(taken), counted(asked));
            text += &format!(
                "Container {name} was using {taken}, request is {asked}, has larger consumption of {resource}. "
            );
        }
    }
    text
}

/// Why a node under pressure does not take the Pod: memory pressure keeps out who asked for none, any other pressure all.
#[must_use]
pub fn keeps_out(pressures: &[&str], pod: &Pod, best_effort: bool) -> Option<String> {
    if pressures.is_empty() || is_critical(pod) {
        return None;
    }
    if pressures == ["MemoryPressure"] {
        let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_deref()).unwrap_or_default();
        let tolerated = tolerations.iter().any(|t| {
            let key = t.key.as_deref().unwrap_or_default();
            let effect = t.effect.as_deref().unwrap_or_default();
            (key == "node.kubernetes.io/memory-pressure"
                || key.is_empty() && t.operator.as_deref() == Some("Exists"))
                && matches!(effect, "" | "NoSchedule")
        });
        if !best_effort || tolerated {
            return None;
        }
    }
    Some(format!("The node had condition: [{}]. ", pressures.join(" ")))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
