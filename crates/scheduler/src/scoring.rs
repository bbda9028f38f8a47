//! Which of the nodes that fit is the best: each plugin's score from 0 to 100, weighted as the profile says.

use crate::framework::CycleState;
use crate::plugins::{allocation, image_locality, node_affinity, taint_toleration};
use crate::pod_info::PodInfo;
use crate::profile::Plugin;
use crate::snapshot::{NodeInfo, Snapshot};

/// The scores of nodes, in their order; `devices` says how good what claims get there is, if there are any.
#[must_use]
pub fn scores(
    pod: &PodInfo,
    nodes: &[&NodeInfo],
    devices: Option<&[i64]>,
    snapshot: &Snapshot,
    state: &CycleState<'_>,
) -> Vec<i64> {
    let (chosen, args) = (&state.profile.chosen, &state.profile.args);
    let each = |score: &dyn Fn(&NodeInfo) -> i64| nodes.iter().map(|node| score(node)).collect::<Vec<i64>>();
    let mut sums = vec![0; nodes.len()];
    for (plugin, ..) in Plugin::DEFAULT {
        let Some(weight) = chosen.weight(*plugin) else { continue };
        let scores = match plugin {
            Plugin::TaintToleration => fewest_best(&each(&|node| taint_toleration::dislikes(&pod.pod, node))),
            Plugin::NodeAffinity => {
                let added = args.added_affinity.as_ref();
                share_of_most(&each(&|node| node_affinity::score(&pod.pod, node, added)))
            }
            Plugin::PodTopologySpread => {
                spread(&nodes.iter().map(|node| state.spread.crowd(node)).collect::<Vec<_>>())
            }
            Plugin::InterPodAffinity => between(&each(&|node| state.affinity.score(node))),
            Plugin::NodeResourcesFit => {
                each(&|node| allocation::score(&args.strategy, &args.shares, pod, node))
            }
            Plugin::NodeResourcesBalancedAllocation => {
                each(&|node| allocation::evenness(&args.balanced, pod, node))
            }
            Plugin::DynamicResources => match devices {
                Some(devices) => share_of_most(devices),
                None => continue,
            },
            Plugin::ImageLocality => {
                let images = image_locality::State::of(&pod.pod, snapshot);
                each(&|node| images.score(node))
            }
            _ => continue,
        };
        for (sum, score) in sums.iter_mut().zip(scores) {
            *sum += weight * score;
        }
    }
    sums
}

/// The most is 100.
fn share_of_most(raw: &[i64]) -> Vec<i64> {
    let most = raw.iter().copied().max().unwrap_or_default();
    raw.iter().map(|score| if most > 0 { score * 100 / most } else { 0 }).collect()
}

/// None is 100, the most 0.
fn fewest_best(raw: &[i64]) -> Vec<i64> {
    share_of_most(raw).into_iter().map(|score| 100 - score).collect()
}

/// The least is 0, the most 100.
fn between(raw: &[i64]) -> Vec<i64> {
    let least = raw.iter().copied().min().unwrap_or_default();
    share_of_most(&raw.iter().map(|score| score - least).collect::<Vec<_>>())
}

/// The least crowded is 100; a node that lacks a label is 0.
fn spread(crowds: &[Option<f64>]) -> Vec<i64> {
    let known = || crowds.iter().flatten().copied();
    let (least, most) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
    #[allow(clippy::cast_possible_truncation)]
    let one = |crowd: f64| if most > 0.0 { ((most + least - crowd) * 100.0 / most) as i64 } else { 100 };
    crowds.iter().map(|crowd| crowd.map_or(0, one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_brought_to_a_hundred_each_in_its_way() {
        assert_eq!(share_of_most(&[0, 5, 10]), [0, 50, 100]);
        assert_eq!(share_of_most(&[0, 0]), [0, 0]);
        assert_eq!(fewest_best(&[0, 1, 2]), [100, 50, 0]);
        assert_eq!(between(&[-10, 0, 10]), [0, 50, 100]);
        assert_eq!(spread(&[Some(2.0), Some(4.0), None]), [100, 50, 0]);
        assert_eq!(spread(&[Some(0.0), None]), [100, 0]);
    }
}
