//! PodTopologySpread: Pods of one kind are spread evenly over zones, nodes, or what else a label says.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::{Pod, TopologySpreadConstraint};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use trine_typed::placement::labels_match;

use super::{match_label_keys, node_affinity, taint_toleration};
use crate::framework::Rejection;
use crate::snapshot::{NodeInfo, Snapshot};

const MISSING: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
const UNEVEN: &str = "node(s) didn't match pod topology spread constraints";

/// A constraint, and how many Pods it counts by the value of its key.
#[derive(Debug, Clone)]
struct Constraint {
    key: String,
    max_skew: i64,
    min_domains: usize,
    selector: Option<LabelSelector>,
    honors_affinity: bool,
    honors_taints: bool,
    counts: BTreeMap<String, i64>,
}

impl Constraint {
    fn of(given: &TopologySpreadConstraint, pod: &Pod) -> Self {
        let selector = given.label_selector.clone().map(|mut selector| {
            match_label_keys(&mut selector, given.match_label_keys.iter().flatten(), pod, "In");
            selector
        });
        Self {
            key: given.topology_key.clone(),
            max_skew: i64::from(given.max_skew),
            min_domains: given.min_domains.and_then(|n| usize::try_from(n).ok()).unwrap_or(1),
            selector,
            honors_affinity: given.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: given.node_taints_policy.as_deref() == Some("Honor"),
            counts: BTreeMap::new(),
        }
    }

    fn selects(&self, other: &Pod, namespace: Option<&String>) -> bool {
        other.metadata.namespace.as_ref() == namespace
            && other.metadata.deletion_timestamp.is_none()
            && self.selector.as_ref().is_some_and(|s| labels_match(s, other.metadata.labels.as_ref()))
    }

    fn counted_on(&self, node: &NodeInfo, namespace: Option<&String>) -> i64 {
        let pods = node.pods.iter().filter(|other| self.selects(other, namespace)).count();
        i64::try_from(pods).unwrap_or(i64::MAX)
    }

    /// Whether the Pods of a node are counted for a Pod.
    fn covers(&self, pod: &Pod, node: &NodeInfo) -> bool {
        (!self.honors_affinity || node_affinity::filter(pod, node).is_ok())
            && (!self.honors_taints || taint_toleration::filter(pod, node).is_ok())
    }
}

/// What is known before the nodes are looked at.
#[derive(Debug, Clone, Default)]
pub struct State {
    hard: Vec<Constraint>,
    soft: Vec<Constraint>,
}

impl State {
    /// Counts the Pods of all nodes.
    #[must_use]
    pub fn of(pod: &Pod, snapshot: &Snapshot) -> Self {
        let given = pod.spec.as_ref().and_then(|spec| spec.topology_spread_constraints.as_ref());
        let (soft, hard): (Vec<_>, Vec<_>) = given
            .into_iter()
            .flatten()
            .partition(|constraint| constraint.when_unsatisfiable == "ScheduleAnyway");
        let counted = |given: Vec<&TopologySpreadConstraint>| {
            let mut all: Vec<Constraint> = given.into_iter().map(|one| Constraint::of(one, pod)).collect();
            let keys: Vec<String> = all.iter().map(|constraint| constraint.key.clone()).collect();
            // A node without one of the keys is no place for any of the constraints.
            let nodes =
                snapshot.nodes.values().filter(|node| keys.iter().all(|key| node.label(key).is_some()));
            for node in nodes {
                for constraint in &mut all {
                    if constraint.covers(pod, node)
                        && let Some(value) = node.label(&constraint.key)
                    {
                        let count = constraint.counted_on(node, pod.metadata.namespace.as_ref());
                        *constraint.counts.entry(value.to_owned()).or_default() += count;
                    }
                }
            }
            all
        };
        Self { hard: counted(hard), soft: counted(soft) }
    }

    /// # Errors
    /// The Pod would make it too uneven there. `node` may hold other Pods than in the snapshot.
    pub fn filter(&self, pod: &Pod, node: &NodeInfo, snapshot: &Snapshot) -> Result<(), Rejection> {
        let namespace = pod.metadata.namespace.as_ref();
        for constraint in &self.hard {
            let Some(value) = node.label(&constraint.key) else { return Err(Rejection::lasting(MISSING)) };
            let mut moved = 0;
            if let Some(original) = snapshot.nodes.get(node.name())
                && original.pods.len() != node.pods.len()
                && constraint.covers(pod, node)
            {
                moved = constraint.counted_on(node, namespace) - constraint.counted_on(original, namespace);
            }
            let count = |(name, count): (&String, &i64)| if name == value { count + moved } else { *count };
            let fewest = match constraint.counts.len() < constraint.min_domains {
                true => 0,
                false => constraint.counts.iter().map(count).min().unwrap_or_default(),
            };
            let here = constraint.counts.get(value).copied().unwrap_or_default() + moved;
            let own = i64::from(constraint.selects(pod, namespace));
            if here + own - fewest > constraint.max_skew {
                return Err(Rejection::passing(UNEVEN));
            }
        }
        Ok(())
    }

    /// How crowded the places of a node are by the constraints that may be broken; the less the better. Nothing where a key is
    /// missing, and if there are no such constraints.
    #[must_use]
    pub fn crowd(&self, node: &NodeInfo) -> Option<f64> {
        let mut crowd = 0.0;
        for constraint in &self.soft {
            let value = node.label(&constraint.key)?;
            let here = constraint.counts.get(value).copied().unwrap_or_default();
            // Few large places weigh less than many small ones, as upstream.
            let places = constraint.counts.len();
            #[allow(clippy::cast_precision_loss)]
            let one = here as f64 * (places as f64 + 2.0).ln() + (constraint.max_skew - 1) as f64;
            crowd += one;
        }
        (!self.soft.is_empty()).then_some(crowd)
    }
}

#[cfg(test)]
#[path = "pod_topology_spread_tests.rs"]
mod tests;
