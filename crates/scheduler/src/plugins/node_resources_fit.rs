//! NodeResourcesFit: requests against what is left, and the LeastAllocated score.

use crate::framework::Rejection;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

/// # Errors
/// Every resource that is short, each as its own reason.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Vec<Rejection>> {
    let short = node.allocatable.short(&node.requested, &pod.requests);
    let reason = |(name, hopeless): (&str, bool)| {
        let reason = if name == "pods" { "Too many pods".to_owned() } else { format!("Insufficient {name}") };
        // Emptying the node would not help a Pod that is larger than the node.
        if hopeless { Rejection::lasting(reason) } else { Rejection::passing(reason) }
    };
    let short: Vec<Rejection> = short.map(reason).collect();
    if short.is_empty() { Ok(()) } else { Err(short) }
}

/// 0 to 100: the more is left of cpu and memory, the higher. Pods without a request count as 100m and 200 MiB, as upstream's
/// `GetNonzeroRequests`.
#[must_use]
pub fn score(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let (total, used, wanted) = (&node.allocatable, &node.requested, &pod.requests);
    let cpu = share_left(total.cpu, used.cpu.saturating_add(wanted.cpu.max(100)));
    let memory =
        share_left(total.memory, used.memory.saturating_add(wanted.memory.max(200 * 1024 * 1024 * 1000)));
    i64::midpoint(cpu, memory)
}

fn share_left(total: i64, used: i64) -> i64 {
    if total <= 0 || used > total {
        return 0;
    }
    let left = total - used;
    left.checked_mul(100).map_or_else(|| left / (total / 100), |share| share / total)
}
