//! What Pods ask of each other, made ready once per Pod: terms of affinity, and the questions "which Pods are these?" that the
//! [index](crate::index) keeps answers to.

use std::collections::{BTreeMap, BTreeSet};

use trine_typed::k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, WeightedPodAffinityTerm};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use trine_typed::placement::labels_match;

use crate::plugins::match_label_keys;

/// Labels of namespaces by name.
pub type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

/// Which Pods are meant: all that are in one of the namespaces and have the labels.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    selector: Option<LabelSelector>,
    namespaces: BTreeSet<String>,
    namespace_selector: Option<LabelSelector>,
}

impl Selection {
    /// The Pods of one namespace that a selector means; without a selector none.
    #[must_use]
    pub fn within(namespace: &str, selector: Option<LabelSelector>) -> Self {
        Self { selector, namespaces: [namespace.to_owned()].into(), namespace_selector: None }
    }

    /// Whether a Pod is meant.
    #[must_use]
    pub fn selects(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let selected = |selector: &LabelSelector| {
            namespaces.get(namespace).is_some_and(|labels| labels_match(selector, Some(labels)))
        };
        let within =
            self.namespaces.contains(namespace) || self.namespace_selector.as_ref().is_some_and(selected);
        within && self.selector.as_ref().is_some_and(|s| labels_match(s, pod.metadata.labels.as_ref()))
    }

    fn id(&self) -> String {
        serde_json::to_string(&(&self.selector, &self.namespaces, &self.namespace_selector))
            .unwrap_or_default()
    }
}

/// A term that is ready to be asked.
#[derive(Debug, Clone)]
pub struct Term {
    /// The label of nodes whose values are the places.
    pub topology_key: String,
    /// Which Pods it is about.
    pub question: Question,
}

impl Term {
    fn of(term: &PodAffinityTerm, owner: &Pod) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if term.namespace_selector.is_none() && namespaces.is_empty() {
            namespaces.extend(owner.metadata.namespace.clone());
        }
        let selector = term.label_selector.clone().map(|mut selector| {
            match_label_keys(&mut selector, term.match_label_keys.iter().flatten(), owner, "In");
            match_label_keys(&mut selector, term.mismatch_label_keys.iter().flatten(), owner, "NotIn");
            selector
        });
        let selection =
            Selection { selector, namespaces, namespace_selector: term.namespace_selector.clone() };
        Self { topology_key: term.topology_key.clone(), question: Question::all_of(vec![selection]) }
    }

    fn all(terms: Option<&Vec<PodAffinityTerm>>, owner: &Pod) -> Vec<Self> {
        terms.into_iter().flatten().map(|term| Self::of(term, owner)).collect()
    }

    fn weighted(terms: Option<&Vec<WeightedPodAffinityTerm>>, owner: &Pod, sign: i64) -> Vec<(Self, i64)> {
        let terms = terms.into_iter().flatten();
        terms.map(|term| (Self::of(&term.pod_affinity_term, owner), sign * i64::from(term.weight))).collect()
    }
}

/// Which Pods are these, on each node? Two questions with one id have one answer.
#[derive(Debug, Clone, Default)]
pub struct Question {
    id: String,
    all_of: Vec<Selection>,
    living: bool,
}

impl Question {
    /// The Pods that all of these mean; of no selections none.
    #[must_use]
    pub fn all_of(all_of: Vec<Selection>) -> Self {
        Self { id: ids(&all_of), all_of, living: false }
    }

    /// The Pods that this means and that are not on their way out.
    #[must_use]
    pub fn living(selection: Selection) -> Self {
        Self { id: format!("living {}", selection.id()), all_of: vec![selection], living: true }
    }

    /// What tells it from others.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether a Pod is one of them.
    #[must_use]
    pub fn counts(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        let going = self.living && pod.metadata.deletion_timestamp.is_some();
        let selected = |selection: &Selection| selection.selects(pod, namespaces);
        !going && !self.all_of.is_empty() && self.all_of.iter().all(selected)
    }

    /// The one namespace that they are in, if that is known.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        let selection =
            self.all_of.iter().find(|s| s.namespace_selector.is_none() && s.namespaces.len() == 1)?;
        selection.namespaces.first().map(String::as_str)
    }

    /// Whether the answer depends on the labels of namespaces.
    #[must_use]
    pub fn asks_namespaces(&self) -> bool {
        self.all_of.iter().any(|selection| selection.namespace_selector.is_some())
    }
}

fn ids(selections: &[Selection]) -> String {
    selections.iter().map(Selection::id).collect::<Vec<_>>().join("&")
}

/// What a Pod asks for of others.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// Near these it has to be.
    pub near: Vec<Term>,
    /// The Pods that all of `near` mean.
    pub near_all: Question,
    /// Near these it must not be.
    pub apart: Vec<Term>,
    /// With weights, negative for those to be kept away from.
    pub preferred: Vec<(Term, i64)>,
}

impl Wishes {
    /// Of a Pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else {
            return Self::default();
        };
        let (near, apart) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
        let wanted = near.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
        let disliked = apart.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
        let mut preferred = Term::weighted(wanted, pod, 1);
        preferred.extend(Term::weighted(disliked, pod, -1));
        let needed = near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        let refused = apart.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        let near = Term::all(needed, pod);
        let near_all =
            Question::all_of(near.iter().flat_map(|term| term.question.all_of.iter().cloned()).collect());
        Self { near, near_all, apart: Term::all(refused, pod), preferred }
    }
}
