//! Where a volume may be. Pure.

use std::collections::{BTreeMap, HashMap};

use sha2::{Digest, Sha256};
use trine_contracts::csi::{Topology, TopologyRequirement};
use trine_typed::k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, TopologySelectorTerm, VolumeNodeAffinity,
};
use trine_typed::k8s_openapi::api::storage::v1::CSINode;

use super::plan::World;

/// A node's place: topology keys with their values.
type Segment = BTreeMap<String, String>;

/// The requirement for a claim. A chosen node is required alone; else all places of the cluster where the driver is
/// and `allowed` permits, starting at one that the claim's name picks, so that claims spread.
///
/// # Errors
/// Text for the event, if no place is known (yet).
pub fn requirement(
    world: &World,
    driver: &str,
    selected: Option<&str>,
    allowed: &[TopologySelectorTerm],
    claim: &str,
) -> Result<Option<TopologyRequirement>, String> {
    if let Some(node) = selected {
        let place = segment(world, driver, node)?;
        // A driver without keys on its nodes is reachable from everywhere.
        return Ok(
            place.map(|p| TopologyRequirement { requisite: vec![said(&p)], preferred: vec![said(&p)] })
        );
    }
    let mut places: Vec<Segment> =
        world.csi_nodes.keys().filter_map(|node| segment(world, driver, node).ok().flatten()).collect();
    places.sort();
    places.dedup();
    places.retain(|place| permitted(place, allowed));
    if places.is_empty() {
        return if allowed.is_empty() {
            Ok(None)
        } else {
            Err(format!("no node with driver {driver} is in the class's allowedTopologies"))
        };
    }
    let requisite: Vec<Topology> = places.iter().map(said).collect();
    let first = usize::from(Sha256::digest(claim)[0]) % requisite.len();
    let mut preferred = requisite.clone();
    preferred.rotate_left(first);
    Ok(Some(TopologyRequirement { requisite, preferred }))
}

/// The place of `node` for `driver`: its keys from CSINode, their values from the Node's labels. `None` if the driver
/// has no keys there.
fn segment(world: &World, driver: &str, node: &str) -> Result<Option<Segment>, String> {
    let entry = world
        .csi_nodes
        .get(node)
        .and_then(|n: &std::sync::Arc<CSINode>| n.spec.drivers.iter().find(|d| d.name == driver));
    let entry =
        entry.ok_or_else(|| format!("driver {driver} is not registered on node {node:?} (CSINode)"))?;
    let labels = world.nodes.get(node).and_then(|n| n.metadata.labels.as_ref());
    let mut place = Segment::new();
    for key in entry.topology_keys.iter().flatten() {
        let value = labels.and_then(|l| l.get(key)).ok_or_else(|| {
            format!("node {node:?} has no label {key:?}, a topology key of driver {driver}")
        })?;
        place.insert(key.clone(), value.clone());
    }
    Ok((!place.is_empty()).then_some(place))
}

fn said(place: &Segment) -> Topology {
    Topology { segments: place.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<HashMap<_, _>>() }
}

/// Terms are alternatives, the expressions of one hold together.
fn permitted(place: &Segment, allowed: &[TopologySelectorTerm]) -> bool {
    allowed.is_empty()
        || allowed.iter().any(|term| {
            let expressions = term.match_label_expressions.iter().flatten();
            expressions.into_iter().all(|e| place.get(&e.key).is_some_and(|value| e.values.contains(value)))
        })
}

/// The PersistentVolume's node affinity for where the volume is reachable; places are alternatives.
#[must_use]
pub fn affinity(accessible: &[Topology]) -> Option<VolumeNodeAffinity> {
    let terms: Vec<NodeSelectorTerm> = accessible
        .iter()
        .filter(|topology| !topology.segments.is_empty())
        .map(|topology| {
            let sorted: BTreeMap<_, _> = topology.segments.iter().collect();
            let expression = |(key, value): (&String, &String)| NodeSelectorRequirement {
                key: key.clone(),
                operator: "In".to_owned(),
                values: Some(vec![value.clone()]),
            };
            NodeSelectorTerm {
                match_expressions: Some(sorted.into_iter().map(expression).collect()),
                match_fields: None,
            }
        })
        .collect();
    (!terms.is_empty())
        .then_some(VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: terms }) })
}

/// The values of an affinity as [`affinity`] writes it: of a driver per node, the nodes' names.
#[must_use]
pub fn values(affinity: Option<&VolumeNodeAffinity>) -> Vec<String> {
    let terms = affinity.and_then(|a| a.required.as_ref()).into_iter().flat_map(|r| &r.node_selector_terms);
    let expressions = terms.flat_map(|term| term.match_expressions.iter().flatten());
    expressions.flat_map(|e| e.values.iter().flatten().cloned()).collect()
}

/// True if `node` is among those that `affinity` allows (as [`affinity`] writes it: `In` only).
#[must_use]
pub fn allows(affinity: Option<&VolumeNodeAffinity>, node: &Node) -> bool {
    let Some(required) = affinity.and_then(|a| a.required.as_ref()) else { return true };
    let labels = node.metadata.labels.as_ref();
    required.node_selector_terms.iter().any(|term| {
        term.match_expressions.iter().flatten().all(|e| {
            let value = labels.and_then(|l| l.get(&e.key));
            e.operator == "In" && value.is_some_and(|v| e.values.iter().flatten().any(|x| x == v))
        })
    })
}
