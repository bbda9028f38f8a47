//! InterPodAffinity: near which other Pods a Pod has to be, and near which it must not. What one Pod asks for holds for those who
//! come later, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::framework::Rejection;
use crate::index::{Holds, NOWHERE, Places};
use crate::pod_info::PodInfo;
use crate::profile::Args;
use crate::snapshot::{NodeInfo, Snapshot};
use crate::terms::{Question, Term};

/// How many Pods there are by place.
#[derive(Debug, Clone)]
struct Count {
    places: Arc<Places>,
    sums: Vec<i64>,
}

impl Count {
    fn of(question: &Question, key: &str, snapshot: &Snapshot) -> Self {
        let places = snapshot.index.places(key, &snapshot.nodes);
        let answer = snapshot.index.answer(question, &snapshot.nodes, &snapshot.namespaces);
        Self { sums: places.sums(&answer), places }
    }

    /// At the place of a node; nothing if it is in none.
    fn at(&self, slot: usize) -> Option<i64> {
        let place = self.places.at(slot);
        (place != NOWHERE).then(|| self.sums.get(place as usize).copied().unwrap_or_default())
    }

    fn add(&mut self, other: &Self, weight: i64) {
        self.sums.resize(self.sums.len().max(other.sums.len()), 0);
        for (sum, more) in self.sums.iter_mut().zip(&other.sums) {
            *sum += more * weight;
        }
    }
}

/// Sums by the label that makes the places.
type ByKey = BTreeMap<String, Count>;

fn add(by_key: &mut ByKey, key: &str, count: &Count, weight: i64) {
    let none = || Count { places: Arc::clone(&count.places), sums: Vec::new() };
    by_key.entry(key.to_owned()).or_insert_with(none).add(count, weight);
}

/// What is known before the nodes are looked at.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Which do not want the Pod near.
    unwilling: ByKey,
    /// Which all terms of the Pod's affinity select, for each term.
    near: Vec<Count>,
    /// Whether there are any of them in a place.
    near_anywhere: bool,
    /// Which a term of its anti-affinity selects, for each term.
    apart: Vec<Count>,
    /// How much each place is liked.
    liked: ByKey,
    selects_itself: bool,
}

impl State {
    /// Looks up the counts.
    #[must_use]
    pub fn of(pod: &PodInfo, snapshot: &Snapshot, args: &Args) -> Self {
        let wishes = &pod.wishes;
        // Of what those like that are there nothing counts, if that is so wanted, for one that likes nothing.
        let heeds = args.heeds_existing || !wishes.preferred.is_empty();
        let selects_itself =
            wishes.near.iter().all(|term| term.question.counts(&pod.pod, &snapshot.namespaces));
        let near: Vec<Count> = wishes
            .near
            .iter()
            .map(|term| Count::of(&wishes.near_all, &term.topology_key, snapshot))
            .collect();
        let near_anywhere = near.iter().flat_map(|count| &count.sums).any(|sum| *sum > 0);
        let count = |term: &Term| Count::of(&term.question, &term.topology_key, snapshot);
        let apart = wishes.apart.iter().map(count).collect();
        let (mut unwilling, mut liked) = (ByKey::new(), ByKey::new());
        for (term, weight) in &wishes.preferred {
            add(&mut liked, &term.topology_key, &count(term), *weight);
        }
        for held in snapshot.index.held() {
            if !held.term.question.counts(&pod.pod, &snapshot.namespaces) {
                continue;
            }
            let places = snapshot.index.places(&held.term.topology_key, &snapshot.nodes);
            let count = Count { sums: places.sums(&held.by_slot), places };
            let weight = match held.holds {
                Holds::Apart => {
                    add(&mut unwilling, &held.term.topology_key, &count, 1);
                    continue;
                }
                Holds::Needs => args.hard_affinity_weight,
                Holds::Likes(weight) => weight,
            };
            if heeds && weight != 0 {
                add(&mut liked, &held.term.topology_key, &count, weight);
            }
        }
        Self { unwilling, near, near_anywhere, apart, liked, selects_itself }
    }

    /// # Errors
    /// The node is too near to some Pods, or not near enough to others. `node` may hold other Pods than in the snapshot.
    pub fn filter(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> Result<(), Rejection> {
        let slot = node.slot();
        let moved = Moved::of(pod, node, snapshot);
        let more = |count: &Count, by: i64| count.at(slot).is_some_and(|there| there + by > 0);
        if !self.near.iter().all(|count| more(count, moved.near)) && !self.is_first(slot, moved.near) {
            return Err(Rejection::lasting("node(s) didn't match pod affinity rules"));
        }
        let apart =
            |(i, count): (usize, &Count)| more(count, moved.apart.get(i).copied().unwrap_or_default());
        if self.apart.iter().enumerate().any(apart) {
            return Err(Rejection::passing("node(s) didn't match pod anti-affinity rules"));
        }
        let by = |key: &str| moved.unwilling.get(key).copied().unwrap_or_default();
        let unwilling = |(key, count): (&String, &Count)| more(count, by(key));
        let newcomer = |(key, by): (&&str, &i64)| {
            *by > 0 && !self.unwilling.contains_key(*key) && node.label(key).is_some()
        };
        if self.unwilling.iter().any(unwilling) || moved.unwilling.iter().any(newcomer) {
            return Err(Rejection::passing("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }

    /// Whether the Pod would be the first of those that want to be together.
    fn is_first(&self, slot: usize, moved: i64) -> bool {
        let nobody = |count: &Count| {
            let here = count.places.at(slot) as usize;
            let there = |(place, sum): (usize, &i64)| sum + if place == here { moved } else { 0 } > 0;
            !count.sums.iter().enumerate().any(there)
        };
        let alone = if moved == 0 { !self.near_anywhere } else { self.near.iter().all(nobody) };
        self.selects_itself && alone && self.near.iter().all(|count| count.places.at(slot) != NOWHERE)
    }

    /// How much the places of a node are liked; to be compared with other nodes.
    #[must_use]
    pub fn score(&self, node: &NodeInfo) -> i64 {
        self.liked.values().filter_map(|count| count.at(node.slot())).sum()
    }
}

/// How many Pods more (or less) than in the snapshot a node holds.
#[derive(Debug, Default)]
struct Moved<'a> {
    near: i64,
    /// For each term of the Pod's anti-affinity.
    apart: Vec<i64>,
    /// That do not want the Pod near, by the label that makes their places.
    unwilling: BTreeMap<&'a str, i64>,
}

impl<'a> Moved<'a> {
    fn of(pod: &PodInfo, node: &'a NodeInfo, snapshot: &'a Snapshot) -> Self {
        let mut moved = Self::default();
        let Some(original) = snapshot.original(node) else { return moved };
        let namespaces = &snapshot.namespaces;
        moved.apart = vec![0; pod.wishes.apart.len()];
        for (pods, by) in [(&original.pods, -1), (&node.pods, 1)] {
            for other in pods {
                if pod.wishes.near_all.counts(&other.pod, namespaces) {
                    moved.near += by;
                }
                for (count, term) in moved.apart.iter_mut().zip(&pod.wishes.apart) {
                    *count += by * i64::from(term.question.counts(&other.pod, namespaces));
                }
                for term in &other.wishes.apart {
                    if term.question.counts(&pod.pod, namespaces) {
                        *moved.unwilling.entry(&term.topology_key).or_default() += by;
                    }
                }
            }
        }
        moved
    }
}

#[cfg(test)]
#[path = "inter_pod_affinity_tests.rs"]
mod tests;
