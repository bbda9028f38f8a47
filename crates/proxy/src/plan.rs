//! What the maps must hold, and what changes in them. Pure.
//!
//! ```text
//! (address, protocol, port) ──front──▶ target ──▶ chain n<count> ──(target, random slot)──▶ endpoint
//! ```
//! A target is a list of endpoints: its low twelve bits are how many there are, the rest is the list's number. Where clients stay
//! with their endpoints, the target leads to a chain that remembers them by that number, and the list's members are in a set,
//! so that nobody stays with an endpoint that went.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use crate::choice::{Choice, Place, choose};
use crate::model::{Proto, ServiceKey, ServicePort, ServiceSpec, SliceSpec};

/// Bits of a target that hold the number of endpoints.
pub const COUNT_BITS: u32 = 12;
/// The most endpoints of one list; further ones get no traffic.
pub const MAX_ENDPOINTS: usize = (1 << COUNT_BITS) - 1;
/// The most lists: the remaining bits less the top one, which marks a connection to be masqueraded.
const MAX_LISTS: u32 = 1 << (31 - COUNT_BITS);

/// Where clients connect to: a virtual address, or a port of the node if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Front {
    /// The virtual address.
    pub address: Option<IpAddr>,
    /// The protocol.
    pub proto: Proto,
    /// The port.
    pub port: u16,
}

/// Whose packets are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum From {
    /// Everybody's.
    Anywhere,
    /// Those of neither this node nor its Pods, which are looked up first.
    Outside,
}

/// The key of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A front that leads to a target.
    Front(From, Front),
    /// A front that leads nowhere.
    Refuse(From, Front),
    /// One endpoint of a target.
    Endpoint(u32, u16),
    /// The address of an endpoint on this node.
    Own(IpAddr),
    /// A target whose clients stay with their endpoints.
    Sticky(u32),
    /// An endpoint with which clients may stay, by the number of its list.
    Member(u32, IpAddr, u16),
}

/// What an element leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A list of endpoints.
    Target(u32),
    /// An endpoint.
    Endpoint(IpAddr, u16),
    /// The sender hears that nobody is there.
    Reject,
    /// The sender hears nothing (as upstream: a node without local endpoints must not look broken).
    Drop,
    /// Being there is all.
    Present,
    /// The chain of this many seconds and endpoints.
    Stay(u32, u16),
}

/// One change of the table, in the order in which they must be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// A chain for lists of this many endpoints.
    AddCount(u16),
    /// A chain for lists whose clients stay for so many seconds, of this many endpoints.
    AddSticky(u32, u16),
    /// An element goes.
    Remove(Key, Value),
    /// An element comes.
    Add(Key, Value),
}

/// Who holds an element: the first claim counts, the next takes over when it goes.
type Claims = Vec<(u32, Value)>;

/// Which list of a Service's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ListKind {
    Cluster,
    Local,
}

/// What one Service has in the table.
#[derive(Debug, Default)]
struct Held {
    owner: u32,
    elements: Vec<(Key, Value)>,
    lists: HashMap<(String, Proto, ListKind), u32>,
}

/// The table as it should be.
#[derive(Debug)]
pub struct Plan {
    node: String,
    own_pods: trine_kernel::netlink::Cidr,
    service_range: trine_kernel::netlink::Cidr,
    held: HashMap<ServiceKey, Held>,
    claims: HashMap<Key, Claims>,
    counts: BTreeSet<u16>,
    stickies: BTreeSet<(u32, u16)>,
    next_owner: u32,
    next_list: u32,
    free_lists: Vec<u32>,
    /// What the touched elements led to before, since the actions were last taken.
    before: HashMap<Key, Option<Value>>,
    new_counts: BTreeSet<u16>,
    new_stickies: BTreeSet<(u32, u16)>,
}

impl Plan {
    /// An empty table for a node, for the family of its Pod range.
    #[must_use]
    pub fn new(
        node: &str,
        own_pods: trine_kernel::netlink::Cidr,
        service_range: trine_kernel::netlink::Cidr,
    ) -> Self {
        Self {
            node: node.to_owned(),
            own_pods,
            service_range,
            held: HashMap::new(),
            claims: HashMap::new(),
            counts: BTreeSet::new(),
            stickies: BTreeSet::new(),
            next_owner: 0,
            next_list: 0,
            free_lists: Vec::new(),
            before: HashMap::new(),
            new_counts: BTreeSet::new(),
            new_stickies: BTreeSet::new(),
        }
    }

    /// A Service is as given, or is gone.
    pub fn set(&mut self, key: &ServiceKey, service: Option<(&ServiceSpec, Vec<&SliceSpec>)>) {
        let mut held = self.held.remove(key).unwrap_or_else(|| {
            self.next_owner += 1;
            Held { owner: self.next_owner, ..Held::default() }
        });
        let old_lists = std::mem::take(&mut held.lists);
        let elements = match &service {
            Some((spec, slices)) => self.elements(spec, slices, &old_lists, &mut held),
            None => Vec::new(),
        };
        let released =
            old_lists.iter().filter(|(list, _)| !held.lists.contains_key(*list)).map(|(_, id)| *id);
        let released: Vec<u32> = released.collect();
        let wanted: HashMap<Key, Value> = elements.iter().copied().collect();
        let had: HashMap<Key, Value> = held.elements.iter().copied().collect();
        for (element, value) in &had {
            if wanted.get(element) != Some(value) {
                self.release(held.owner, *element);
            }
        }
        for (element, value) in &wanted {
            if had.get(element) != Some(value) {
                self.claim(held.owner, *element, *value);
            }
        }
        self.free_lists.extend(released);
        held.elements = wanted.into_iter().collect();
        if service.is_some() {
            self.held.insert(key.clone(), held);
        }
    }

    /// What must be done since the last call.
    pub fn take_actions(&mut self) -> Vec<Action> {
        let mut actions: Vec<Action> =
            std::mem::take(&mut self.new_counts).into_iter().map(Action::AddCount).collect();
        let stickies = std::mem::take(&mut self.new_stickies);
        actions.extend(stickies.into_iter().map(|(seconds, count)| Action::AddSticky(seconds, count)));
        for (key, before) in std::mem::take(&mut self.before) {
            let now = self.claims.get(&key).and_then(|claims| claims.first()).map(|claim| claim.1);
            if now == before {
                continue;
            }
            actions.extend(before.map(|value| Action::Remove(key, value)));
            actions.extend(now.map(|value| Action::Add(key, value)));
        }
        actions.sort_unstable();
        actions
    }

    /// Everything, for a new table; what was to be done before is part of it.
    pub fn everything(&mut self) -> Vec<Action> {
        self.before.clear();
        self.new_counts.clear();
        self.new_stickies.clear();
        let counts = self.counts.iter().map(|count| Action::AddCount(*count));
        let stickies = self.stickies.iter().map(|(seconds, count)| Action::AddSticky(*seconds, *count));
        let elements = self
            .claims
            .iter()
            .filter_map(|(key, claims)| claims.first().map(|claim| Action::Add(*key, claim.1)));
        let mut actions: Vec<Action> = counts.chain(stickies).chain(elements).collect();
        actions.sort_unstable();
        actions
    }

    fn remember(&mut self, key: Key) {
        let now = self.claims.get(&key).and_then(|claims| claims.first()).map(|claim| claim.1);
        self.before.entry(key).or_insert(now);
    }

    fn claim(&mut self, owner: u32, key: Key, value: Value) {
        self.remember(key);
        self.claims.entry(key).or_default().push((owner, value));
    }

    fn release(&mut self, owner: u32, key: Key) {
        self.remember(key);
        if let Some(claims) = self.claims.get_mut(&key) {
            claims.retain(|claim| claim.0 != owner);
            if claims.is_empty() {
                self.claims.remove(&key);
            }
        }
    }

    fn elements(
        &mut self,
        spec: &ServiceSpec,
        slices: &[&SliceSpec],
        old: &HashMap<(String, Proto, ListKind), u32>,
        held: &mut Held,
    ) -> Vec<(Key, Value)> {
        let own_pods = self.own_pods;
        let v4 = own_pods.addr.is_ipv4();
        let node = self.node.clone();
        let is_local_address = |address| own_pods.contains(address);
        let place = Place { node: &node, is_local_address: &is_local_address, v4 };
        let mut out = Vec::new();
        for port in &spec.ports {
            let choice = choose(port, slices, &place);
            out.extend(choice.own.iter().map(|address| (Key::Own(*address), Value::Present)));
            let affinity = spec.affinity;
            let mut port_plan = PortPlan { plan: self, held, old, port, affinity, out: &mut out };
            port_plan.fronts(spec, &choice, v4);
        }
        out
    }

    fn list(&mut self, old: Option<u32>) -> u32 {
        old.or_else(|| self.free_lists.pop()).unwrap_or_else(|| {
            self.next_list = (self.next_list + 1) % MAX_LISTS;
            self.next_list
        })
    }
}

/// The elements of one port of a Service, being made.
struct PortPlan<'a> {
    plan: &'a mut Plan,
    held: &'a mut Held,
    old: &'a HashMap<(String, Proto, ListKind), u32>,
    port: &'a ServicePort,
    affinity: Option<u32>,
    out: &'a mut Vec<(Key, Value)>,
}

impl PortPlan<'_> {
    fn fronts(&mut self, spec: &ServiceSpec, choice: &Choice, v4: bool) {
        let same = choice.local == choice.cluster;
        let cluster = self.target(ListKind::Cluster, &choice.cluster);
        let needs_local = !same && (spec.external_local || spec.internal_local);
        let local = if needs_local { self.target(ListKind::Local, &choice.local) } else { cluster };
        let inside = if spec.internal_local { local } else { cluster };
        for address in spec.cluster_ips.iter().filter(|a| a.is_ipv4() == v4) {
            self.front(From::Anywhere, Some(*address), inside, cluster);
        }
        let outer = spec.external_ips.iter().filter(|a| a.is_ipv4() == v4).map(|a| Some(*a));
        let outer: Vec<_> = outer.chain(self.port.node_port.map(|_| None)).collect();
        for address in outer {
            self.front(From::Anywhere, address, cluster, cluster);
            if spec.external_local {
                self.front(From::Outside, address, local, cluster);
            }
        }
    }

    /// The target for a list; nothing if it is empty.
    fn target(&mut self, kind: ListKind, endpoints: &[(IpAddr, u16)]) -> Option<u32> {
        let endpoints = &endpoints[..endpoints.len().min(MAX_ENDPOINTS)];
        let count = u16::try_from(endpoints.len()).ok().filter(|count| *count > 0)?;
        let name = (self.port.name.clone(), self.port.proto, kind);
        let id = self.plan.list(self.old.get(&name).copied());
        self.held.lists.insert(name, id);
        if self.plan.counts.insert(count) {
            self.plan.new_counts.insert(count);
        }
        let target = (id << COUNT_BITS) | u32::from(count);
        let slots = (0..count).zip(endpoints);
        self.out.extend(slots.map(|(slot, at)| (Key::Endpoint(target, slot), Value::Endpoint(at.0, at.1))));
        if let Some(seconds) = self.affinity {
            if self.plan.stickies.insert((seconds, count)) {
                self.plan.new_stickies.insert((seconds, count));
            }
            self.out.push((Key::Sticky(target), Value::Stay(seconds, count)));
            let members =
                endpoints.iter().map(|at| (Key::Member(target >> COUNT_BITS, at.0, at.1), Value::Present));
            self.out.extend(members);
        }
        Some(target)
    }

    /// Without a target the front refuses: it drops if there are endpoints elsewhere, else it rejects. Addresses in
    /// the Service range need no element for that: whatever is not translated is rejected there.
    fn front(&mut self, from: From, address: Option<IpAddr>, target: Option<u32>, elsewhere: Option<u32>) {
        let port = if address.is_some() { self.port.port } else { self.port.node_port.unwrap_or(0) };
        let front = Front { address, proto: self.port.proto, port };
        let in_range = address.is_some_and(|a| self.plan.service_range.contains(a));
        match target {
            Some(target) => self.out.push((Key::Front(from, front), Value::Target(target))),
            None if elsewhere.is_some() => self.out.push((Key::Refuse(from, front), Value::Drop)),
            None if in_range || from == From::Outside => {}
            None => self.out.push((Key::Refuse(from, front), Value::Reject)),
        }
    }
}

#[cfg(test)]
mod tests;
