//! NodeResourcesBalancedAllocation: nodes whose processors and memory would be used alike are liked.

use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

/// 0 to 100: 100 less half the distance of the two shares that would be used, in hundredths.
#[must_use]
pub fn score(pod: &PodInfo, node: &NodeInfo) -> i64 {
    let (total, used, wanted) = (&node.allocatable, &node.requested, &pod.requests);
    let cpu = share(total.cpu, used.cpu.saturating_add(wanted.cpu));
    let memory = share(total.memory, used.memory.saturating_add(wanted.memory));
    100 - (cpu - memory).abs() / 2 / 100
}

/// In hundredths of a hundredth.
fn share(total: i64, used: i64) -> i64 {
    if total <= 0 || used >= total {
        return 10_000;
    }
    // Of petabytes, in thousandths of a byte, no multiple is a number that fits.
    used.checked_mul(10_000).map_or_else(|| used / (total / 10_000), |share| share / total)
}
