//! The pools of devices that a node can reach.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Node, NodeSelector};
use trine_typed::placement;

use super::Device;
use super::inventory::{Inventory, Offer, PoolId};

/// A pool as one node sees it.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    pub id: &'a PoolId,
    pub state: PoolState,
    /// Slices with devices for the node, in the order of their names.
    pub offers: Vec<&'a Arc<Offer>>,
    /// All slices of the pool's generation.
    pub all: Vec<&'a Arc<Offer>>,
}

/// Whether devices of a pool can be given away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolState {
    /// They can.
    Whole,
    /// Slices are missing: the driver is changing it.
    Incomplete,
    /// Its slices contradict one another.
    Invalid,
}

impl std::fmt::Display for Pool<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.id.0, self.id.1)
    }
}

/// The pools of a node: in the order of driver and name, those whose devices have to be made ready last.
pub(super) fn of<'a>(inventory: &'a Inventory, node: &Node) -> Vec<Pool<'a>> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let pools = inventory.pools_near(name).filter_map(|(id, slices)| pool(id, slices, node));
    let (late, mut pools): (Vec<_>, Vec<_>) = pools.partition(|pool: &Pool<'_>| {
        let mut devices = pool.offers.iter().flat_map(|offer| offer.devices());
        devices.any(|device| device.binding_conditions.is_some())
    });
    pools.extend(late);
    pools
}

/// What a node sees of a pool; nothing if it has no devices for it, or only old ones.
fn pool<'a>(id: &'a PoolId, slices: &'a BTreeMap<String, Arc<Offer>>, node: &Node) -> Option<Pool<'a>> {
    // Groups of devices that may be used together are an alpha feature: who needs it leaves the pool incomplete.
    let known = || slices.values().filter(|offer| !has_groups(offer));
    let mut offers: Vec<_> = known().filter(|offer| is_for(offer, node)).collect();
    let generation = offers.iter().map(|offer| generation(offer)).max()?;
    offers.retain(|offer| self::generation(offer) == generation);
    let wanted = offers.first().map(|offer| offer.slice.spec.pool.resource_slice_count)?;
    let complete = |count: usize| i64::try_from(count).is_ok_and(|count| count == wanted);
    if !complete(offers.len()) && slices.values().any(|offer| self::generation(offer) > generation) {
        return None;
    }
    let all: Vec<_> = known().filter(|offer| self::generation(offer) == generation).collect();
    let whole = complete(offers.len()) || complete(all.len());
    let state = match (whole, whole && contradicts(&offers, &all)) {
        (false, _) => PoolState::Incomplete,
        (true, true) => PoolState::Invalid,
        (true, false) => PoolState::Whole,
    };
    Some(Pool { id, state, offers, all })
}

fn generation(offer: &Offer) -> i64 {
    offer.slice.spec.pool.generation
}

fn has_groups(offer: &Offer) -> bool {
    let consumed =
        offer.devices().iter().flat_map(|device| device.consumes_counters.as_deref().unwrap_or_default());
    consumed.into_iter().any(|consumed| consumed.compatibility_groups.as_ref().is_some_and(|g| !g.is_empty()))
}

fn is_for(offer: &Offer, node: &Node) -> bool {
    let spec = &offer.slice.spec;
    if spec.node_name.is_some() || spec.all_nodes == Some(true) || spec.node_selector.is_some() {
        return reaches(spec.node_name.as_deref(), spec.all_nodes, spec.node_selector.as_ref(), node);
    }
    spec.per_device_node_selection == Some(true)
        && offer.devices().iter().any(|device| device_reaches(device, node))
}

/// Whether a device that says itself where it is can be reached from a node.
pub(super) fn device_reaches(device: &Device, node: &Node) -> bool {
    reaches(device.node_name.as_deref(), device.all_nodes, device.node_selector.as_ref(), node)
}

fn reaches(name: Option<&str>, all: Option<bool>, selector: Option<&NodeSelector>, node: &Node) -> bool {
    match name.filter(|name| !name.is_empty()) {
        Some(name) => node.metadata.name.as_deref() == Some(name),
        None => all == Some(true) || selector.is_some_and(|selector| placement::matches(selector, node)),
    }
}

/// Two devices or two sets of counters have one name, or a device consumes counters that there are not.
fn contradicts(offers: &[&Arc<Offer>], all: &[&Arc<Offer>]) -> bool {
    let mut names = HashSet::new();
    let mut devices = offers.iter().flat_map(|offer| offer.devices());
    if !devices.all(|device| names.insert(device.name.as_str())) {
        return true;
    }
    let mut sets = HashMap::new();
    for set in all.iter().flat_map(|offer| offer.slice.spec.shared_counters.as_deref().unwrap_or_default()) {
        if sets.insert(set.name.as_str(), &set.counters).is_some() {
            return true;
        }
    }
    let devices = all.iter().flat_map(|offer| offer.devices());
    let consumed = devices.flat_map(|device| device.consumes_counters.as_deref().unwrap_or_default());
    consumed.into_iter().any(|consumed| {
        let set = sets.get(consumed.counter_set.as_str());
        set.is_none_or(|set| consumed.counters.keys().any(|name| !set.contains_key(name)))
    })
}
