//! NodeResourcesBalancedAllocation: nodes whose processors and memory would be used alike are liked.

use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::snapshot::{NodeInfo, requests};

/// 0 to 100: 100 less half the distance of the two shares that would be used, in hundredths.
#[must_use]
pub fn score(pod: &Pod, node: &NodeInfo) -> i64 {
    let (allocatable, wanted) = (node.allocatable(), requests(pod));
    let share = |name: &str| {
        let total = allocatable.get(name).copied().unwrap_or_default();
        let used = node.requested.get(name).copied().unwrap_or_default()
            + wanted.get(name).copied().unwrap_or_default();
        if total == 0 { 10_000 } else { (used * 10_000 / total).min(10_000) }
    };
    let apart = (share("cpu") - share("memory")).abs() / 2;
    i64::try_from(100 - apart / 100).unwrap_or_default()
}
