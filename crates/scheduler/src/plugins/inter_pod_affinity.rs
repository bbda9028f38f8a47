//! InterPodAffinity: near which other Pods a Pod has to be, and near which it must not. What one Pod asks for holds for those who
//! come later, too.

use std::collections::{BTreeMap, BTreeSet};

use trine_typed::k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, WeightedPodAffinityTerm};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use trine_typed::placement::labels_match;

use super::match_label_keys;
use crate::framework::Rejection;
use crate::snapshot::{NodeInfo, Snapshot};

/// What a required affinity of a Pod that is there counts for one that comes. Upstream: `hardPodAffinityWeight`.
const HARD_WEIGHT: i64 = 1;

/// A term that is ready to be asked.
#[derive(Debug, Clone)]
struct Term {
    selector: Option<LabelSelector>,
    namespaces: BTreeSet<String>,
    topology_key: String,
}

impl Term {
    fn of(term: &PodAffinityTerm, owner: &Pod, snapshot: &Snapshot) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if let Some(selector) = &term.namespace_selector {
            let selected =
                snapshot.namespaces.iter().filter(|(_, labels)| labels_match(selector, Some(labels)));
            namespaces.extend(selected.map(|(name, _)| name.clone()));
        } else if namespaces.is_empty() {
            namespaces.extend(owner.metadata.namespace.clone());
        }
        let selector = term.label_selector.clone().map(|mut selector| {
            match_label_keys(&mut selector, term.match_label_keys.iter().flatten(), owner, "In");
            match_label_keys(&mut selector, term.mismatch_label_keys.iter().flatten(), owner, "NotIn");
            selector
        });
        Self { selector, namespaces, topology_key: term.topology_key.clone() }
    }

    fn all(terms: Option<&Vec<PodAffinityTerm>>, owner: &Pod, snapshot: &Snapshot) -> Vec<Self> {
        terms.into_iter().flatten().map(|term| Self::of(term, owner, snapshot)).collect()
    }

    fn weighted(
        terms: Option<&Vec<WeightedPodAffinityTerm>>,
        owner: &Pod,
        snapshot: &Snapshot,
        sign: i64,
    ) -> Vec<(Self, i64)> {
        let terms = terms.into_iter().flatten();
        terms
            .map(|term| (Self::of(&term.pod_affinity_term, owner, snapshot), sign * i64::from(term.weight)))
            .collect()
    }

    fn selects(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        self.namespaces.contains(namespace)
            && self.selector.as_ref().is_some_and(|s| labels_match(s, pod.metadata.labels.as_ref()))
    }
}

/// What a Pod asks for of others.
#[derive(Debug, Clone, Default)]
struct Wishes {
    near: Vec<Term>,
    apart: Vec<Term>,
    /// With weights, negative for those to be kept away from.
    preferred: Vec<(Term, i64)>,
}

impl Wishes {
    fn of(pod: &Pod, snapshot: &Snapshot) -> Self {
        let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else {
            return Self::default();
        };
        let near = affinity.pod_affinity.as_ref();
        let apart = affinity.pod_anti_affinity.as_ref();
        let mut preferred = Term::weighted(
            near.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
            pod,
            snapshot,
            1,
        );
        preferred.extend(Term::weighted(
            apart.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
            pod,
            snapshot,
            -1,
        ));
        Self {
            near: Term::all(
                near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
                pod,
                snapshot,
            ),
            apart: Term::all(
                apart.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
                pod,
                snapshot,
            ),
            preferred,
        }
    }
}

/// A label of nodes and its value: all nodes that have it are one place.
type Place = (String, String);

/// How many Pods there are by place.
#[derive(Debug, Clone, Default)]
struct Counts {
    /// Which do not want the Pod near.
    unwilling: BTreeMap<Place, i64>,
    /// Which all terms of the Pod's affinity select.
    near: BTreeMap<Place, i64>,
    /// Which a term of its anti-affinity selects.
    apart: BTreeMap<Place, i64>,
}

/// What is known before the nodes are looked at.
#[derive(Debug, Clone, Default)]
pub struct State {
    wishes: Wishes,
    counts: Counts,
    /// How much each place is liked.
    liked: BTreeMap<Place, i64>,
    selects_itself: bool,
}

impl State {
    /// Counts the Pods of all nodes.
    #[must_use]
    pub fn of(pod: &Pod, snapshot: &Snapshot) -> Self {
        let wishes = Wishes::of(pod, snapshot);
        let selects_itself = wishes.near.iter().all(|term| term.selects(pod));
        let mut state = Self { wishes, selects_itself, ..Self::default() };
        let mut counts = Counts::default();
        for node in snapshot.nodes.values() {
            for other in &node.pods {
                let theirs = Wishes::of(other, snapshot);
                state.count(&mut counts, pod, other, &theirs, node, 1);
                state.like(pod, other, &theirs, node);
            }
        }
        state.counts = counts;
        state
    }

    fn count(&self, counts: &mut Counts, pod: &Pod, other: &Pod, theirs: &Wishes, node: &NodeInfo, by: i64) {
        let mut note = |map: fn(&mut Counts) -> &mut BTreeMap<Place, i64>, term: &Term| {
            if let Some(place) = place(node, term) {
                *map(counts).entry(place).or_default() += by;
            }
        };
        for term in theirs.apart.iter().filter(|term| term.selects(pod)) {
            note(|counts| &mut counts.unwilling, term);
        }
        if !self.wishes.near.is_empty() && self.wishes.near.iter().all(|term| term.selects(other)) {
            for term in &self.wishes.near {
                note(|counts| &mut counts.near, term);
            }
        }
        for term in self.wishes.apart.iter().filter(|term| term.selects(other)) {
            note(|counts| &mut counts.apart, term);
        }
    }

    fn like(&mut self, pod: &Pod, other: &Pod, theirs: &Wishes, node: &NodeInfo) {
        let own = self.wishes.preferred.iter().filter(|(term, _)| term.selects(other));
        let preferred = theirs.preferred.iter().filter(|(term, _)| term.selects(pod));
        let required = theirs.near.iter().filter(|term| term.selects(pod)).map(|term| (term, HARD_WEIGHT));
        let all = own.chain(preferred).map(|(term, weight)| (term, *weight)).chain(required);
        let places: Vec<(Place, i64)> =
            all.filter_map(|(term, weight)| Some((place(node, term)?, weight))).collect();
        for (place, weight) in places {
            *self.liked.entry(place).or_default() += weight;
        }
    }

    /// # Errors
    /// The node is too near to some Pods, or not near enough to others. `node` may hold other Pods than in the snapshot.
    pub fn filter(&self, pod: &Pod, node: &NodeInfo, snapshot: &Snapshot) -> Result<(), Rejection> {
        let mut changed = None;
        if let Some(original) = snapshot.nodes.get(node.name())
            && original.pods.len() != node.pods.len()
        {
            let mut counts = self.counts.clone();
            for (pods, by) in [(&original.pods, -1), (&node.pods, 1)] {
                for other in pods {
                    self.count(&mut counts, pod, other, &Wishes::of(other, snapshot), node, by);
                }
            }
            changed = Some(counts);
        }
        let counts = changed.as_ref().unwrap_or(&self.counts);
        let any = |map: &BTreeMap<Place, i64>, place: Option<Place>| {
            place.is_some_and(|place| map.get(&place).is_some_and(|count| *count > 0))
        };
        let near = self.wishes.near.iter().all(|term| any(&counts.near, place(node, term)));
        // The first of those that want to be together.
        let first = || {
            self.selects_itself
                && counts.near.values().all(|count| *count <= 0)
                && self.wishes.near.iter().all(|term| place(node, term).is_some())
        };
        if !near && !first() {
            return Err(Rejection::lasting("node(s) didn't match pod affinity rules"));
        }
        if self.wishes.apart.iter().any(|term| any(&counts.apart, place(node, term))) {
            return Err(Rejection::passing("node(s) didn't match pod anti-affinity rules"));
        }
        let unwilling = |((key, value), count): (&Place, &i64)| *count > 0 && node.label(key) == Some(value);
        if counts.unwilling.iter().any(unwilling) {
            return Err(Rejection::passing("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }

    /// How much the places of a node are liked; to be compared with other nodes.
    #[must_use]
    pub fn score(&self, node: &NodeInfo) -> i64 {
        let here = self.liked.iter().filter(|((key, value), _)| node.label(key) == Some(value));
        here.map(|(_, weight)| *weight).sum()
    }
}

fn place(node: &NodeInfo, term: &Term) -> Option<Place> {
    Some((term.topology_key.clone(), node.label(&term.topology_key)?.to_owned()))
}

#[cfg(test)]
#[path = "inter_pod_affinity_tests.rs"]
mod tests;
