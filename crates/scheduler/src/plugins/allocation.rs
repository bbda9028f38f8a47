//! How much of a node would be used, as a score: the strategies of NodeResourcesFit and the evenness of
//! NodeResourcesBalancedAllocation. Pure. Shares are whole numbers and are cut off at each step where upstream's are.

use crate::amounts::{Kind, Resources};
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

/// A resource that counts, and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Which.
    pub kind: Kind,
    /// 1 to 100.
    pub weight: i64,
}

impl Share {
    /// A resource by its name.
    #[must_use]
    pub fn of(name: &str, weight: i64) -> Self {
        Self { kind: Kind::of(name), weight }
    }
}

/// A point of a line: how full a node is in hundredths, and its score from 0 to 100 then.
pub type Point = (i64, i64);

/// Which nodes are liked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    /// Those of which most is left.
    LeastAllocated,
    /// Those of which least is left.
    MostAllocated,
    /// By a line through points, how full a node is going up.
    RequestedToCapacityRatio(Vec<Point>),
}

/// What a resource of a node would be used for with a Pod, of how much.
#[derive(Debug, Clone, Copy)]
struct Use {
    before: i64,
    after: i64,
    total: i64,
}

/// A resource that not every Pod asks for counts only for those that do, and none counts that the node has not.
fn used(kind: &Kind, pod: &Resources, before: &Resources, node: &NodeInfo) -> Option<Use> {
    let wanted = pod.of(kind);
    let total = node.allocatable.of(kind);
    let skipped = total == 0 || (wanted == 0 && matches!(kind, Kind::Other(_)));
    let before = before.of(kind);
    (!skipped).then(|| Use { before, after: before.saturating_add(wanted), total })
}

/// 0 to 100: how much a node is liked for a Pod by a strategy. A container without a request of processor or memory counts as if it
/// asked for 100m and 200 MiB, so that those are spread, too.
#[must_use]
pub fn score(strategy: &Strategy, shares: &[Share], pod: &PodInfo, node: &NodeInfo) -> i64 {
    let (mut sum, mut weights) = (0_i64, 0_i64);
    for share in shares {
        let Some(used) = used(&share.kind, &pod.scored, &node.scored, node) else { continue };
        let score = match strategy {
            Strategy::LeastAllocated => least(used),
            Strategy::MostAllocated => most(used),
            Strategy::RequestedToCapacityRatio(line) => match along(line, fullness(used)) {
                0 => continue,
                score => score,
            },
        };
        sum += score * share.weight;
        weights += share.weight;
    }
    match (strategy, weights) {
        (_, 0) => 0,
        // Rounded, half away from nothing.
        (Strategy::RequestedToCapacityRatio(_), weights) => (2 * sum + weights) / (2 * weights),
        (_, weights) => sum / weights,
    }
}

fn least(used: Use) -> i64 {
    if used.after > used.total { 0 } else { hundredths(used.total - used.after, used.total) }
}

fn most(used: Use) -> i64 {
    hundredths(used.after.min(used.total), used.total)
}

fn fullness(used: Use) -> i64 {
    if used.after > used.total { 100 } else { hundredths(used.after, used.total) }
}

/// Of petabytes, in thousandths of a byte, no multiple is a number that fits.
fn hundredths(part: i64, whole: i64) -> i64 {
    part.checked_mul(100).map_or_else(|| part / (whole / 100), |share| share / whole)
}

/// The value at a place of the line; beyond its ends that of the end.
#[must_use]
pub fn along(line: &[Point], at: i64) -> i64 {
    let Some(next) = line.iter().position(|(place, _)| at <= *place) else {
        return line.last().map_or(0, |(_, value)| *value);
    };
    let (to, end) = line[next];
    let Some((from, begin)) = next.checked_sub(1).map(|before| line[before]) else { return end };
    begin + (end - begin) * (at - from) / (to - from)
}

/// 50 to 100: whether a node's resources would be used more alike with a Pod than without it. Nothing for a Pod that asks for none of
/// them: it would go where many such are.
#[must_use]
pub fn evenness(shares: &[Share], pod: &PodInfo, node: &NodeInfo) -> i64 {
    if shares.iter().all(|share| pod.requests.of(&share.kind) == 0) {
        return 0;
    }
    let uses = || shares.iter().filter_map(|share| used(&share.kind, &pod.requests, &node.requested, node));
    let after = even(uses().map(|used| fraction(used.after, used.total)));
    let before = even(uses().map(|used| fraction(used.before, used.total)));
    50 + (50 + after - before) / 2
}

#[allow(clippy::cast_precision_loss)]
fn fraction(part: i64, whole: i64) -> f64 {
    (part as f64 / whole as f64).min(1.0)
}

/// 100 less the standard deviation, in hundredths.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn even(fractions: impl Iterator<Item = f64> + Clone) -> i64 {
    let number = fractions.clone().count();
    if number < 2 {
        return 100;
    }
    let mean = fractions.clone().sum::<f64>() / number as f64;
    let deviation = match number {
        // The same by a shorter way, and with the same last digit as upstream's.
        2 => {
            let mut both = fractions;
            (both.next().unwrap_or_default() - both.next().unwrap_or_default()).abs() / 2.0
        }
        _ => (fractions.map(|one| (one - mean).powi(2)).sum::<f64>() / number as f64).sqrt(),
    };
    ((1.0 - deviation) * 100.0) as i64
}

#[cfg(test)]
#[path = "allocation_tests.rs"]
mod tests;
