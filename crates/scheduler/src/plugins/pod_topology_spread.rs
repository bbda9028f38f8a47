//! PodTopologySpread: Pods of one kind are spread evenly over zones, nodes, or what else a label says.

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Pod, TopologySpreadConstraint};

use super::{match_label_keys, node_affinity, taint_toleration};
use crate::framework::Rejection;
use crate::index::{NOWHERE, Places};
use crate::owners::Owners;
use crate::pod_info::PodInfo;
use crate::snapshot::{NodeInfo, Snapshot};
use crate::terms::{Question, Selection};

const MISSING: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
const UNEVEN: &str = "node(s) didn't match pod topology spread constraints";
/// How the Pods of Services and controllers are spread that ask for nothing else: label and skew. Upstream:
/// `systemDefaultConstraints`.
const DEFAULTS: [(&str, i64); 2] = [("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5)];

/// What is to be even, and how much.
#[derive(Debug, Clone)]
struct Constraint {
    key: String,
    max_skew: i64,
    min_domains: usize,
    question: Question,
    honors_affinity: bool,
    honors_taints: bool,
    soft: bool,
    /// A default: nodes without the label are not left out.
    default: bool,
}

impl Constraint {
    fn of(given: &TopologySpreadConstraint, pod: &Pod) -> Self {
        let selector = given.label_selector.clone().map(|mut selector| {
            match_label_keys(&mut selector, given.match_label_keys.iter().flatten(), pod, "In");
            selector
        });
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        Self {
            key: given.topology_key.clone(),
            max_skew: i64::from(given.max_skew),
            min_domains: given.min_domains.and_then(|n| usize::try_from(n).ok()).unwrap_or(1),
            question: Question::living(Selection::within(namespace, selector)),
            honors_affinity: given.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: given.node_taints_policy.as_deref() == Some("Honor"),
            soft: given.when_unsatisfiable == "ScheduleAnyway",
            default: false,
        }
    }

    fn all(pod: &Pod, owners: &Owners, given_to_all: Option<&[TopologySpreadConstraint]>) -> Vec<Self> {
        let given = pod.spec.as_ref().and_then(|spec| spec.topology_spread_constraints.as_ref());
        match given.filter(|given| !given.is_empty()) {
            Some(given) => given.iter().map(|one| Self::of(one, pod)).collect(),
            None => Self::defaults(pod, owners, given_to_all),
        }
    }

    fn defaults(pod: &Pod, owners: &Owners, given: Option<&[TopologySpreadConstraint]>) -> Vec<Self> {
        let Some(selector) = owners.selector(pod) else { return Vec::new() };
        if let Some(given) = given {
            let selecting = |one: &TopologySpreadConstraint| {
                let label_selector = Some(selector.clone());
                Self::of(&TopologySpreadConstraint { label_selector, ..one.clone() }, pod)
            };
            return given.iter().map(selecting).collect();
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let question = Question::living(Selection::within(namespace, Some(selector)));
        let one = |(key, max_skew): (&str, i64)| Self {
            key: key.to_owned(),
            max_skew,
            min_domains: 1,
            question: question.clone(),
            honors_affinity: true,
            honors_taints: false,
            soft: true,
            default: true,
        };
        DEFAULTS.map(one).into()
    }

    /// Whether the Pods of a node are counted for a Pod.
    fn covers(&self, pod: &Pod, node: &NodeInfo) -> bool {
        (!self.honors_affinity || node_affinity::selects(pod, node))
            && (!self.honors_taints || taint_toleration::filter(pod, node).is_ok())
    }

    /// Whether there can be nodes whose Pods are not counted.
    fn chooses(&self, pod: &Pod) -> bool {
        let spec = pod.spec.as_ref();
        let selects = spec.is_some_and(|s| s.node_selector.is_some() || s.affinity.is_some());
        self.honors_taints || (self.honors_affinity && selects)
    }
}

/// What a decision about a Pod asks the index for: labels, and which Pods are counted by them.
#[must_use]
pub fn asked(
    pod: &PodInfo,
    owners: &Owners,
    given_to_all: Option<&[TopologySpreadConstraint]>,
) -> Vec<(String, Question)> {
    Constraint::all(&pod.pod, owners, given_to_all)
        .into_iter()
        .map(|constraint| (constraint.key, constraint.question))
        .collect()
}

/// A constraint, and how many Pods it counts by place.
#[derive(Debug, Clone)]
struct Counted {
    constraint: Constraint,
    places: Arc<Places>,
    /// Nothing for a place none of whose nodes is one for the Pod.
    sums: Vec<Option<i64>>,
    /// How many places there are.
    domains: usize,
    /// The count of the emptiest place.
    fewest: i64,
    /// How many the Pod adds itself.
    own: i64,
}

impl Counted {
    fn all(constraints: Vec<Constraint>, pod: &PodInfo, snapshot: &Snapshot) -> Vec<Self> {
        if constraints.is_empty() {
            return Vec::new();
        }
        let places: Vec<_> =
            constraints.iter().map(|c| snapshot.index.places(&c.key, &snapshot.nodes)).collect();
        // A node without one of the keys is no place for any of the constraints.
        let default = |at: usize| constraints.get(at).is_some_and(|c| c.default);
        let lacks = |(at, places): (usize, &Arc<Places>), slot| !default(at) && places.at(slot) == NOWHERE;
        let whole = |slot: usize| !places.iter().enumerate().any(|one| lacks(one, slot));
        let slots: Vec<usize> = (0..snapshot.nodes.slots()).filter(|slot| whole(*slot)).collect();
        let each = constraints.into_iter().zip(&places);
        each.map(|(constraint, places)| Self::of(constraint, Arc::clone(places), &slots, pod, snapshot))
            .collect()
    }

    fn of(
        constraint: Constraint,
        places: Arc<Places>,
        slots: &[usize],
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> Self {
        let chooses = constraint.chooses(&pod.pod);
        let covers =
            |slot: usize| snapshot.nodes.at(slot).is_some_and(|node| constraint.covers(&pod.pod, node));
        let answer = snapshot.index.answer(&constraint.question, &snapshot.nodes, &snapshot.namespaces);
        let mut sums = vec![None; places.len()];
        for slot in slots.iter().copied().filter(|slot| !chooses || covers(*slot)) {
            if let Some(sum) = sums.get_mut(places.at(slot) as usize) {
                *sum.get_or_insert(0) += answer.get(slot).copied().map_or(0, i64::from);
            }
        }
        let known = || sums.iter().flatten().copied();
        let own = i64::from(constraint.question.counts(&pod.pod, &snapshot.namespaces));
        let (domains, fewest) = (known().count(), known().min().unwrap_or_default());
        Self { constraint, places, sums, domains, fewest, own }
    }

    fn at(&self, place: u32) -> i64 {
        self.sums.get(place as usize).copied().flatten().unwrap_or_default()
    }

    /// How many Pods more than in the snapshot a node holds of those that are counted.
    fn moved(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> i64 {
        let Some(original) = snapshot.original(node) else { return 0 };
        if !self.constraint.covers(&pod.pod, node) {
            return 0;
        }
        let count = |node: &NodeInfo| {
            let counts = |other: &&PodInfo| self.constraint.question.counts(&other.pod, &snapshot.namespaces);
            i64::try_from(node.pods.iter().filter(counts).count()).unwrap_or(i64::MAX)
        };
        count(node) - count(original)
    }

    /// The count of the emptiest place, if one holds `moved` more.
    fn fewest(&self, place: u32, moved: i64) -> i64 {
        if self.domains < self.constraint.min_domains {
            return 0;
        }
        if moved == 0 {
            return self.fewest;
        }
        let count =
            |(at, sum): (usize, &Option<i64>)| Some((*sum)? + if at == place as usize { moved } else { 0 });
        self.sums.iter().enumerate().filter_map(count).min().unwrap_or_default()
    }
}

/// What is known before the nodes are looked at.
#[derive(Debug, Clone, Default)]
pub struct State {
    hard: Vec<Counted>,
    soft: Vec<Counted>,
}

impl State {
    /// Looks up the counts.
    #[must_use]
    pub fn of(pod: &PodInfo, snapshot: &Snapshot, given_to_all: Option<&[TopologySpreadConstraint]>) -> Self {
        let all = Constraint::all(&pod.pod, &snapshot.owners, given_to_all);
        let (soft, hard) = all.into_iter().partition(|constraint| constraint.soft);
        Self { hard: Counted::all(hard, pod, snapshot), soft: Counted::all(soft, pod, snapshot) }
    }

    /// # Errors
    /// The Pod would make it too uneven there. `node` may hold other Pods than in the snapshot.
    pub fn filter(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> Result<(), Rejection> {
        for counted in &self.hard {
            let place = counted.places.at(node.slot());
            if place == NOWHERE {
                return Err(Rejection::lasting(MISSING));
            }
            let moved = counted.moved(pod, node, snapshot);
            let here = counted.at(place) + moved;
            if here + counted.own - counted.fewest(place, moved) > counted.constraint.max_skew {
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
        for counted in &self.soft {
            let place = counted.places.at(node.slot());
            match (place, counted.constraint.default) {
                (NOWHERE, true) => continue,
                (NOWHERE, false) => return None,
                _ => {}
            }
            // Few large places weigh less than many small ones, as upstream.
            let (here, places) = (counted.at(place), counted.domains);
            #[allow(clippy::cast_precision_loss)]
            let one = here as f64 * (places as f64 + 2.0).ln() + (counted.constraint.max_skew - 1) as f64;
            crowd += one;
        }
        (!self.soft.is_empty()).then_some(crowd)
    }
}

#[cfg(test)]
#[path = "pod_topology_spread_tests.rs"]
mod tests;
