//! What a node has to hold of one family of addresses, and what changes in it. Pure.
//!
//! Chains and the sets that belong to a policy are named after what is in them: what says something else is another one. So
//! nothing that packets pass is ever changed but elements.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::lookup::{Member, Query, short};
use crate::model::{Key, Model};
use crate::policy::{Direction, Peer, Policy, Port, Proto, Rule};
use crate::ranges::{Range, merged};

/// What a set holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Addresses of Pods.
    Pods(Arc<BTreeSet<Member>>),
    /// Addresses of Pods, each with a port of one name.
    Named(Arc<BTreeSet<Member>>),
    /// Ranges of addresses, in order, none touching the next.
    Block(Vec<Range>),
    /// Ports with their protocols.
    Ports(BTreeSet<(Proto, u16)>),
}

/// Who is let pass: everybody, or whose address is in a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum From {
    /// Everybody.
    Anybody,
    /// Whose address is in this set.
    Set(String),
}

/// To which ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum To {
    /// All, of every protocol.
    Any,
    /// All of a protocol.
    All(Proto),
    /// From the first to the last.
    Numbers(Proto, u16, u16),
    /// Those in this set.
    Set(String),
    /// Those that this set has for the address.
    Named(Proto, String),
}

/// One rule of the kernel's: both have to fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pass {
    /// The other end.
    pub from: From,
    /// The port that is connected to.
    pub to: To,
    /// Which rule of the policy this is of, for listings.
    pub comment: String,
}

/// A chain that packets to or from isolated Pods pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chain {
    /// What one policy allows.
    Policy(Direction, Vec<Pass>),
    /// The policies of a Pod; what none of them allows is dropped.
    Profile(Vec<String>),
}

/// All that a node has to hold of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Sets by name.
    pub sets: BTreeMap<String, Content>,
    /// Chains by name.
    pub chains: BTreeMap<String, Chain>,
    /// The profile of each isolated address.
    pub pods: BTreeMap<(Direction, IpAddr), String>,
}

/// What a node has to hold; nothing if none of its Pods is isolated.
#[must_use]
pub fn desired(model: &mut Model, node: &str, v6: bool) -> Option<Desired> {
    let mut made = Desired::default();
    // Pods of one policy have the same chains.
    let mut known: BTreeMap<(Key, Direction), String> = BTreeMap::new();
    for (address, policies) in selected(model, node, v6) {
        for direction in Direction::ALL {
            let mut chains = Vec::new();
            for (key, policy) in &policies {
                let Some(rules) = policy.rules(direction) else { continue };
                let chain = known
                    .entry((key.clone(), direction))
                    .or_insert_with(|| made.policy(model, key, direction, rules, v6));
                chains.push(chain.clone());
            }
            if !chains.is_empty() {
                let profile = short(prefix(direction, 'p'), &chains.join(" "));
                made.chains.entry(profile.clone()).or_insert(Chain::Profile(chains));
                made.pods.insert((direction, address), profile);
            }
        }
    }
    (!made.pods.is_empty()).then_some(made)
}

/// A policy with its namespace and name.
type Known = (Key, Arc<Policy>);

/// The policies of each address of the node's Pods that has any.
fn selected(model: &Model, node: &str, v6: bool) -> Vec<(IpAddr, Vec<Known>)> {
    let mut by_namespace: BTreeMap<&str, Vec<(&Key, &Arc<Policy>)>> = BTreeMap::new();
    for (key, policy) in model.policies() {
        by_namespace.entry(&key.0).or_default().push((key, policy));
    }
    let own = model.on_node(node).filter(|(address, ..)| address.is_ipv6() == v6);
    let selected = own.filter_map(|(address, key, pod)| {
        let of_namespace = by_namespace.get(key.0.as_str())?.iter();
        let fits = of_namespace
            .filter(|(_, policy)| trine_typed::placement::labels_match(&policy.selector, Some(&pod.labels)));
        let policies: Vec<_> = fits.map(|(key, policy)| ((*key).clone(), (*policy).clone())).collect();
        (!policies.is_empty()).then_some((address, policies))
    });
    selected.collect()
}

fn prefix(direction: Direction, kind: char) -> &'static str {
    match (direction, kind) {
        (Direction::Ingress, 'p') => "to",
        (Direction::Egress, 'p') => "of",
        (Direction::Ingress, _) => "in",
        (Direction::Egress, _) => "out",
    }
}

impl Desired {
    /// The chain of a policy in one direction.
    fn policy(
        &mut self,
        model: &mut Model,
        key: &Key,
        direction: Direction,
        rules: &[Rule],
        v6: bool,
    ) -> String {
        let mut passes = Vec::new();
        for (number, rule) in rules.iter().enumerate() {
            let comment = format!("{}/{} {}[{number}]", key.0, key.1, direction.word());
            let tos = self.ports(model, rule.ports.as_deref());
            for from in self.peers(model, rule.peers.as_deref(), v6) {
                let pass = |to: &To| Pass { from: from.clone(), to: to.clone(), comment: comment.clone() };
                passes.extend(tos.iter().map(pass));
            }
        }
        let name = short(prefix(direction, 'c'), &format!("{key:?} {passes:?}"));
        self.chains.entry(name.clone()).or_insert(Chain::Policy(direction, passes));
        name
    }

    fn peers(&mut self, model: &mut Model, peers: Option<&[Peer]>, v6: bool) -> BTreeSet<From> {
        let Some(peers) = peers else { return BTreeSet::from([From::Anybody]) };
        let mut found = BTreeSet::new();
        let mut ranges = Vec::new();
        for peer in peers {
            match peer {
                Peer::Pods(query) => {
                    let (name, members) = model.ask(query);
                    self.sets.insert(name.clone(), Content::Pods(members));
                    found.insert(From::Set(name));
                }
                Peer::Block(block) => ranges.extend(block.iter().filter(|range| range.v6 == v6)),
            }
        }
        if !ranges.is_empty() {
            let ranges = merged(ranges);
            let name = short("block", &format!("{ranges:?}"));
            self.sets.insert(name.clone(), Content::Block(ranges));
            found.insert(From::Set(name));
        }
        found
    }

    fn ports(&mut self, model: &mut Model, ports: Option<&[Port]>) -> BTreeSet<To> {
        let Some(ports) = ports else { return BTreeSet::from([To::Any]) };
        let mut found = BTreeSet::new();
        let mut single = BTreeSet::new();
        for port in ports {
            match port {
                Port::All(proto) => drop(found.insert(To::All(*proto))),
                Port::Numbers(proto, first, last) if first == last => drop(single.insert((*proto, *first))),
                Port::Numbers(proto, first, last) => drop(found.insert(To::Numbers(*proto, *first, *last))),
                Port::Named(proto, name) => {
                    let (name, members) = model.ask(&Query::Named(*proto, name.clone()));
                    self.sets.insert(name.clone(), Content::Named(members));
                    found.insert(To::Named(*proto, name));
                }
            }
        }
        match single.first() {
            Some((proto, port)) if single.len() == 1 => drop(found.insert(To::Numbers(*proto, *port, *port))),
            Some(_) => {
                let name = short("ports", &format!("{single:?}"));
                self.sets.insert(name.clone(), Content::Ports(single));
                found.insert(To::Set(name));
            }
            None => {}
        }
        found
    }
}

/// One change, in the order in which they must be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A set comes.
    AddSet(String, Content),
    /// Elements of a set of Pods go.
    RemoveMembers(String, Content),
    /// Elements of a set of Pods come.
    AddMembers(String, Content),
    /// A chain comes; those that it leads to came before.
    AddChain(String, Chain),
    /// An address is not judged by a chain any more.
    Free(Direction, IpAddr, String),
    /// An address is judged by a chain.
    Isolate(Direction, IpAddr, String),
    /// A chain goes; those that it led to go after.
    RemoveChain(String),
    /// A set goes.
    RemoveSet(String),
}

impl Action {
    /// Whether something may be refused now that was allowed.
    #[must_use]
    pub fn narrows(&self) -> bool {
        matches!(self, Self::RemoveMembers(..) | Self::Isolate(..))
    }
}

/// What leads from one state to the other.
#[must_use]
pub fn changes(old: &Desired, new: &Desired) -> Vec<Action> {
    let mut actions = Vec::new();
    let added = new.sets.iter().filter(|(name, _)| !old.sets.contains_key(*name));
    actions.extend(added.map(|(name, content)| Action::AddSet(name.clone(), content.clone())));
    for (name, content) in &new.sets {
        if let Some(before) = old.sets.get(name) {
            actions.extend(members(name, before, content));
        }
    }
    let profile = |chain: &Chain| matches!(chain, Chain::Profile(_));
    for profiles in [false, true] {
        let added = new
            .chains
            .iter()
            .filter(|(name, chain)| profile(chain) == profiles && !old.chains.contains_key(*name));
        actions.extend(added.map(|(name, chain)| Action::AddChain(name.clone(), chain.clone())));
    }
    for (at, chain) in old.pods.iter().filter(|(at, chain)| new.pods.get(at) != Some(chain)) {
        actions.push(Action::Free(at.0, at.1, chain.clone()));
    }
    for (at, chain) in new.pods.iter().filter(|(at, chain)| old.pods.get(at) != Some(chain)) {
        actions.push(Action::Isolate(at.0, at.1, chain.clone()));
    }
    for profiles in [true, false] {
        let gone = old
            .chains
            .iter()
            .filter(|(name, chain)| profile(chain) == profiles && !new.chains.contains_key(*name));
        actions.extend(gone.map(|(name, _)| Action::RemoveChain(name.clone())));
    }
    let gone = old.sets.keys().filter(|name| !new.sets.contains_key(*name));
    actions.extend(gone.map(|name| Action::RemoveSet(name.clone())));
    actions
}

/// Changes within one set; only sets of Pods have any.
fn members(name: &str, before: &Content, now: &Content) -> Vec<Action> {
    let (named, before, now) = match (before, now) {
        (Content::Pods(before), Content::Pods(now)) => (false, before, now),
        (Content::Named(before), Content::Named(now)) => (true, before, now),
        _ => return Vec::new(),
    };
    if Arc::ptr_eq(before, now) {
        return Vec::new();
    }
    let less = |a: &BTreeSet<Member>, b: &BTreeSet<Member>| {
        let members: BTreeSet<Member> = a.difference(b).copied().collect();
        let members = (!members.is_empty()).then(|| Arc::new(members))?;
        Some(if named { Content::Named(members) } else { Content::Pods(members) })
    };
    let gone = less(before, now).map(|members| Action::RemoveMembers(name.to_owned(), members));
    let come = less(now, before).map(|members| Action::AddMembers(name.to_owned(), members));
    gone.into_iter().chain(come).collect()
}

#[cfg(test)]
mod tests;
