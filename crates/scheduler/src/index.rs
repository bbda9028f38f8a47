//! Counts that are kept, so that no decision goes over all Pods: of the Pods that somebody asked for, by node; of the terms that
//! placed Pods hold, by node; and in which place each node is, by a label's value.
//!
//! Nothing here decides anything: whoever asks for what is not kept gets it counted anew.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::nodes::{NodeInfo, Nodes};
use crate::pod_info::PodInfo;
use crate::terms::{Namespaces, Question, Term, Wishes};

/// Answers that are kept; the one that was asked for longest ago makes room for another.
const KEPT: usize = 1000;

/// A place that a node is not in.
pub const NOWHERE: u32 = u32::MAX;

/// The places that a label of nodes makes: all nodes with one value are in one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    by_value: HashMap<String, u32>,
    by_slot: Vec<u32>,
}

impl Places {
    fn of(nodes: &Nodes, key: &str) -> Self {
        let mut places = Self::default();
        for node in nodes.values() {
            places.put(node, key);
        }
        places
    }

    fn put(&mut self, node: &NodeInfo, key: &str) {
        let next = u32::try_from(self.by_value.len()).unwrap_or(NOWHERE);
        let place = node.label(key).map_or(NOWHERE, |value| match self.by_value.get(value) {
            Some(place) => *place,
            None => *self.by_value.entry(value.to_owned()).or_insert(next),
        });
        if self.by_slot.len() <= node.slot() {
            self.by_slot.resize(node.slot() + 1, NOWHERE);
        }
        self.by_slot[node.slot()] = place;
    }

    /// How many places there are or were.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_value.len()
    }

    /// Whether there never was one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_value.is_empty()
    }

    /// The place that a node is in, or [`NOWHERE`].
    #[must_use]
    pub fn at(&self, slot: usize) -> u32 {
        self.by_slot.get(slot).copied().unwrap_or(NOWHERE)
    }

    /// Counts by node, summed up by place.
    #[must_use]
    pub fn sums(&self, by_slot: &[u32]) -> Vec<i64> {
        let mut sums = vec![0; self.len()];
        for (place, count) in self.by_slot.iter().zip(by_slot) {
            if let Some(sum) = sums.get_mut(*place as usize) {
                *sum += i64::from(*count);
            }
        }
        sums
    }
}

#[derive(Debug, Clone)]
struct Answer {
    question: Question,
    by_slot: Vec<u32>,
    asked: u64,
}

/// What a placed Pod's term means for one that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// It does not want those that the term selects.
    Apart,
    /// It needs them near.
    Needs,
    /// It likes them so much; less than 0: dislikes.
    Likes(i64),
}

/// A term that placed Pods hold.
#[derive(Debug, Clone)]
pub struct HeldTerm {
    /// The term.
    pub term: Term,
    /// What it means.
    pub holds: Holds,
    /// How many Pods hold it, by node.
    pub by_slot: Vec<u32>,
    all: u32,
}

/// The counts.
#[derive(Debug, Clone, Default)]
pub struct Index {
    places: HashMap<String, Arc<Places>>,
    /// By the namespace of the Pods that are asked for (empty: there may be several) and the question's id.
    answers: HashMap<String, HashMap<String, Answer>>,
    kept: usize,
    asked: u64,
    held: HashMap<String, HeldTerm>,
}

impl Index {
    /// Counts a Pod that was placed on a node.
    pub fn placed(&mut self, pod: &PodInfo, slot: usize, namespaces: &Namespaces) {
        self.count(pod, slot, namespaces, u32::saturating_add);
        for (term, holds) in held_terms(&pod.wishes) {
            let id = held_id(term, holds);
            let entry = self.held.entry(id);
            let held =
                entry.or_insert_with(|| HeldTerm { term: term.clone(), holds, by_slot: Vec::new(), all: 0 });
            change(&mut held.by_slot, slot, u32::saturating_add);
            held.all += 1;
        }
    }

    /// Takes a Pod out of the counts of its node.
    pub fn removed(&mut self, pod: &PodInfo, slot: usize, namespaces: &Namespaces) {
        self.count(pod, slot, namespaces, u32::saturating_sub);
        for (term, holds) in held_terms(&pod.wishes) {
            let id = held_id(term, holds);
            if let Some(held) = self.held.get_mut(&id) {
                change(&mut held.by_slot, slot, u32::saturating_sub);
                held.all = held.all.saturating_sub(1);
                if held.all == 0 {
                    self.held.remove(&id);
                }
            }
        }
    }

    fn count(&mut self, pod: &PodInfo, slot: usize, namespaces: &Namespaces, how: fn(u32, u32) -> u32) {
        let namespace = pod.pod.metadata.namespace.as_deref().unwrap_or_default();
        for group in ["", namespace] {
            for answer in self.answers.get_mut(group).into_iter().flat_map(HashMap::values_mut) {
                if answer.question.counts(&pod.pod, namespaces) {
                    change(&mut answer.by_slot, slot, how);
                }
            }
            if namespace.is_empty() {
                break;
            }
        }
    }

    /// A node is there, or has other labels.
    pub fn node_is(&mut self, node: &NodeInfo) {
        for (key, places) in &mut self.places {
            Arc::make_mut(places).put(node, key);
        }
        // Values that come and go would fill the memory.
        self.places.retain(|_, places| places.len() <= 2 * places.by_slot.len() + 16);
    }

    /// A node is gone, and its Pods with it.
    pub fn node_gone(&mut self, slot: usize) {
        for places in self.places.values_mut() {
            if let Some(place) = Arc::make_mut(places).by_slot.get_mut(slot) {
                *place = NOWHERE;
            }
        }
    }

    /// Namespaces have come, gone, or got other labels: what depends on that is counted anew when it is asked for again.
    pub fn namespaces_changed(&mut self) {
        for group in self.answers.values_mut() {
            group.retain(|_, answer| !answer.question.asks_namespaces());
        }
        self.kept = self.answers.values().map(HashMap::len).sum();
    }

    /// Keeps the answer to a question from now on.
    pub fn keep(&mut self, question: &Question, nodes: &Nodes, namespaces: &Namespaces) {
        self.asked += 1;
        let group = question.namespace().unwrap_or_default();
        if let Some(answer) = self.answers.get_mut(group).and_then(|group| group.get_mut(question.id())) {
            answer.asked = self.asked;
            return;
        }
        if self.kept >= KEPT {
            self.drop_oldest();
        }
        let by_slot = counted(question, nodes, namespaces);
        let answer = Answer { question: question.clone(), by_slot, asked: self.asked };
        self.answers.entry(group.to_owned()).or_default().insert(question.id().to_owned(), answer);
        self.kept += 1;
    }

    /// Keeps half of the answers: those that were asked for last.
    fn drop_oldest(&mut self) {
        let mut ages: Vec<u64> = self.answers.values().flat_map(HashMap::values).map(|a| a.asked).collect();
        ages.sort_unstable();
        let oldest = ages.get(ages.len() / 2).copied().unwrap_or_default();
        for group in self.answers.values_mut() {
            group.retain(|_, answer| answer.asked > oldest);
        }
        self.answers.retain(|_, group| !group.is_empty());
        self.kept = self.answers.values().map(HashMap::len).sum();
    }

    /// Keeps which node is in which place by a label from now on.
    pub fn keep_places(&mut self, key: &str, nodes: &Nodes) {
        if !self.places.contains_key(key) {
            self.places.insert(key.to_owned(), Arc::new(Places::of(nodes, key)));
        }
    }

    /// The labels that held terms ask for and whose places are not kept.
    #[must_use]
    pub fn unkept_places(&self) -> Vec<String> {
        let keys = self.held.values().map(|held| &held.term.topology_key);
        keys.filter(|key| !self.places.contains_key(*key)).cloned().collect()
    }

    /// How many of these Pods each node has.
    #[must_use]
    pub fn answer(&self, question: &Question, nodes: &Nodes, namespaces: &Namespaces) -> Cow<'_, [u32]> {
        let group = self.answers.get(question.namespace().unwrap_or_default());
        match group.and_then(|group| group.get(question.id())) {
            Some(answer) => Cow::Borrowed(&answer.by_slot),
            None => Cow::Owned(counted(question, nodes, namespaces)),
        }
    }

    /// Which node is in which place by a label.
    #[must_use]
    pub fn places(&self, key: &str, nodes: &Nodes) -> Arc<Places> {
        self.places.get(key).map_or_else(|| Arc::new(Places::of(nodes, key)), Arc::clone)
    }

    /// The terms that placed Pods hold.
    pub fn held(&self) -> impl Iterator<Item = &HeldTerm> {
        self.held.values()
    }
}

/// Each term of a Pod that has a meaning for others, once it is placed.
pub fn held_terms(wishes: &Wishes) -> impl Iterator<Item = (&Term, Holds)> {
    let apart = wishes.apart.iter().map(|term| (term, Holds::Apart));
    let near = wishes.near.iter().map(|term| (term, Holds::Needs));
    let preferred = wishes.preferred.iter().map(|(term, weight)| (term, Holds::Likes(*weight)));
    apart.chain(near).chain(preferred)
}

fn held_id(term: &Term, holds: Holds) -> String {
    format!("{holds:?} {} {}", term.topology_key, term.question.id())
}

fn change(by_slot: &mut Vec<u32>, slot: usize, how: fn(u32, u32) -> u32) {
    if by_slot.len() <= slot {
        by_slot.resize(slot + 1, 0);
    }
    by_slot[slot] = how(by_slot[slot], 1);
}

fn counted(question: &Question, nodes: &Nodes, namespaces: &Namespaces) -> Vec<u32> {
    let mut by_slot = vec![0; nodes.slots()];
    for node in nodes.values() {
        let pods = node.pods.iter().filter(|pod| question.counts(&pod.pod, namespaces)).count();
        by_slot[node.slot()] = u32::try_from(pods).unwrap_or(u32::MAX);
    }
    by_slot
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
