//! What is written down of the devices that a claim gets.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use trine_typed::k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
};
use trine_typed::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::AllocationResult;
use super::allocator::{Claim, Problem};
use super::inventory::asked;
use super::requests::Request;
use super::search::{Picked, Solution};

/// The allocations of claims, in their order.
pub(super) fn of(
    claims: &[Claim<'_>],
    solution: &Solution<'_>,
    node: &str,
    share_id: &dyn Fn() -> String,
) -> Result<Vec<AllocationResult>, Problem> {
    let one = |((claim, picked), chosen): ((&Claim<'_>, &Vec<Picked<'_>>), &Vec<usize>)| {
        let requests: Vec<&Request<'_>> =
            claim.asked.iter().zip(chosen).map(|(asked, option)| &asked.options[*option]).collect();
        let results = picked.iter().map(|picked| device(claim, picked, share_id)).collect();
        let config = config(claim, &requests);
        let node_selector = node_selector(picked, node).map_err(|why| {
            let name = claim.claim.metadata.name.as_deref().unwrap_or_default();
            Problem::Fatal(format!("create NodeSelector for claim {name}: {why}"))
        })?;
        Ok(AllocationResult {
            allocation_timestamp: None,
            devices: Some(DeviceAllocationResult {
                results: Some(results),
                config: (!config.is_empty()).then_some(config),
            }),
            node_selector,
        })
    };
    claims.iter().zip(&solution.picked).zip(&solution.chosen).map(one).collect()
}

fn device(
    claim: &Claim<'_>,
    picked: &Picked<'_>,
    share_id: &dyn Fn() -> String,
) -> DeviceRequestAllocationResult {
    let (request, option) = picked.request;
    let request = &claim.asked[request].options[option];
    let (id, device) = (picked.candidate.id, picked.candidate.device);
    let consumed = picked.share.as_ref().filter(|amounts| !amounts.is_empty());
    DeviceRequestAllocationResult {
        request: request.name(),
        driver: id.driver.clone(),
        pool: id.pool.clone(),
        device: id.device.clone(),
        admin_access: request.admin.then_some(true),
        tolerations: request.tolerations.cloned(),
        share_id: picked.share.as_ref().map(|_| share_id()),
        consumed_capacity: consumed.map(|amounts| {
            let text = |(name, amount): (&String, &trine_objects::quantity::Quantity)| {
                (name.clone(), Quantity(amount.to_string()))
            };
            amounts.iter().map(text).collect::<BTreeMap<_, _>>()
        }),
        binding_conditions: device.binding_conditions.clone(),
        binding_failure_conditions: device.binding_failure_conditions.clone(),
        skip_node_operations: None,
    }
}

/// The settings of the requests' classes, each once, then those of the claim that are for what was chosen.
fn config(claim: &Claim<'_>, requests: &[&Request<'_>]) -> Vec<DeviceAllocationConfiguration> {
    let mut all: Vec<DeviceAllocationConfiguration> = Vec::new();
    let mut of_class: BTreeMap<&str, std::ops::Range<usize>> = BTreeMap::new();
    for request in requests {
        let class = request.class.metadata.name.as_deref().unwrap_or_default();
        if let Some(known) = of_class.get(class) {
            for config in &mut all[known.clone()] {
                config.requests.get_or_insert_default().push(request.name());
            }
            continue;
        }
        let start = all.len();
        for config in request.class.spec.iter().flat_map(|spec| spec.config.iter().flatten()) {
            all.push(DeviceAllocationConfiguration {
                opaque: config.opaque.clone(),
                requests: Some(vec![request.name()]),
                source: "FromClass".to_owned(),
            });
        }
        of_class.insert(class, start..all.len());
    }
    let of_claim = asked(claim.claim).and_then(|devices| devices.config.as_deref());
    for config in of_claim.unwrap_or_default() {
        let names = config.requests.as_deref().unwrap_or_default();
        if names.is_empty() || requests.iter().any(|request| request.is_among(names)) {
            all.push(DeviceAllocationConfiguration {
                opaque: config.opaque.clone(),
                requests: config.requests.clone(),
                source: "FromClaim".to_owned(),
            });
        }
    }
    for config in &mut all {
        let names = config.requests.as_deref().unwrap_or_default();
        // None named means all.
        if requests.iter().all(|request| request.is_among(names)) {
            config.requests = None;
        }
    }
    all
}

/// From which nodes the devices can be reached; nothing if from all.
fn node_selector(picked: &[Picked<'_>], node: &str) -> Result<Option<NodeSelector>, String> {
    let mut joint = NodeSelectorTerm::default();
    for picked in picked {
        let (spec, device) = (&picked.candidate.offer.slice.spec, picked.candidate.device);
        let (name, selector) = if spec.per_device_node_selection == Some(true) {
            (&device.node_name, &device.node_selector)
        } else {
            (&spec.node_name, &spec.node_selector)
        };
        if name.is_some() || device.binds_to_node == Some(true) {
            let field = NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.to_owned()]),
            };
            let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
            return Ok(Some(NodeSelector { node_selector_terms: vec![term] }));
        }
        match selector.as_ref().map(|selector| selector.node_selector_terms.as_slice()) {
            None | Some([]) => {}
            Some([term]) => {
                join(&mut joint.match_fields, term.match_fields.as_deref());
                join(&mut joint.match_expressions, term.match_expressions.as_deref());
            }
            Some(terms) => {
                return Err(format!("unsupported ResourceSlice.NodeSelector with {} terms", terms.len()));
            }
        }
    }
    let some = joint.match_fields.is_some() || joint.match_expressions.is_some();
    Ok(some.then(|| NodeSelector { node_selector_terms: vec![joint] }))
}

fn join(to: &mut Option<Vec<NodeSelectorRequirement>>, from: Option<&[NodeSelectorRequirement]>) {
    for requirement in from.unwrap_or_default() {
        let to = to.get_or_insert_default();
        if !to.contains(requirement) {
            to.push(requirement.clone());
        }
    }
}
