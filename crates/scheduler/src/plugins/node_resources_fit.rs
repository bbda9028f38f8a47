//! NodeResourcesFit: requests against what is left, and the LeastAllocated score.

use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::framework::Rejection;
use crate::snapshot::{NodeInfo, requests};

/// # Errors
/// Every resource that is short, each as its own reason.
pub fn filter(pod: &Pod, node: &NodeInfo) -> Result<(), Vec<Rejection>> {
    let allocatable = node.allocatable();
    let mut short = Vec::new();
    for (name, wanted) in requests(pod) {
        let total = allocatable.get(&name).copied().unwrap_or_default();
        let used = node.requested.get(&name).copied().unwrap_or_default();
        if wanted > 0 && used + wanted > total {
            let reason =
                if name == "pods" { "Too many pods".to_owned() } else { format!("Insufficient {name}") };
            // Emptying the node would not help a Pod that is larger than the node.
            short.push(if wanted > total { Rejection::lasting(reason) } else { Rejection::passing(reason) });
        }
    }
    if short.is_empty() { Ok(()) } else { Err(short) }
}

/// 0 to 100: the more is left of cpu and memory, the higher. Containers without a request count as 100m and
/// 200 MiB, as upstream's `GetNonzeroRequests`.
#[must_use]
pub fn score(pod: &Pod, node: &NodeInfo) -> i128 {
    let allocatable = node.allocatable();
    let wanted = requests(pod);
    let share = |name: &str, floor: i128| {
        let total = allocatable.get(name).copied().unwrap_or_default();
        let asked = wanted.get(name).copied().unwrap_or_default().max(floor);
        let used = node.requested.get(name).copied().unwrap_or_default() + asked;
        if total == 0 || used > total { 0 } else { (total - used) * 100 / total }
    };
    i128::midpoint(share("cpu", 100), share("memory", 200 * 1024 * 1024 * 1000))
}
