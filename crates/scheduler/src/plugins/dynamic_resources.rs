//! DynamicResources: a Pod goes where its claims of devices are, or can be given some.

use std::collections::HashSet;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{ContainerExtendedResourceRequest, Node, Pod};
use trine_typed::placement;
use trine_typed::pods::is_user;

use crate::devices::allocator::{Allocator, Problem};
use crate::devices::claims::{self, shown_claim};
use crate::devices::extended::{Extended, Variant};
use crate::devices::inventory::{Inventory, allocation_of, asked};
use crate::devices::{AllocationResult, ResourceClaim};
use crate::framework::Rejection;

/// How many alternatives a request can have. Upstream: `FirstAvailableDeviceRequestMaxSize`.
const MOST_ALTERNATIVES: usize = 8;

/// Devices that claims are to get.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// Claims that have none yet, one perhaps still to be written, and what each gets.
    pub claims: Vec<(Arc<ResourceClaim>, AllocationResult)>,
    /// Which container has which request of the one that is to be written.
    pub extended: Vec<ContainerExtendedResourceRequest>,
}

/// What is known of a Pod with claims before nodes are looked at.
#[derive(Debug)]
pub struct State<'a> {
    claims: Vec<&'a Arc<ResourceClaim>>,
    /// Gives devices to those that have none; nothing if all have some.
    allocator: Option<Result<Allocator<'a>, String>>,
    /// What it asks for by resources.
    extended: Option<&'a Extended>,
    /// The same for those and each variant of the claim that is written for it.
    with_extended: Vec<(&'a Variant, Result<Allocator<'a>, String>)>,
    /// That claim, if an attempt before has left it.
    stale: Option<&'a Arc<ResourceClaim>>,
}

/// Why a node is not taken.
#[derive(Debug, PartialEq)]
pub enum Refusal {
    /// It is no place for the Pod.
    Here(Rejection),
    /// No node is, before something is put right.
    Everywhere(String),
}

impl<'a> State<'a> {
    /// Looks at the claims of a Pod; nothing if it has none.
    ///
    /// # Errors
    /// No node can be looked at for them yet.
    pub fn of(
        pod: &Pod,
        inventory: &'a Inventory,
        extended: Option<&'a Extended>,
    ) -> Result<Option<Self>, String> {
        if claims::wanted(pod).is_empty() && extended.is_none() {
            return Ok(None);
        }
        let claims = claims::of(pod, inventory).map_err(|missing| missing.message)?;
        if claims.is_empty() && extended.is_none() {
            return Ok(None);
        }
        let without: Vec<_> = claims.iter().filter(|claim| allocation_of(claim).is_none()).copied().collect();
        for claim in &without {
            if inventory.is_pending(claim) {
                let shown = shown_claim(claim);
                return Err(format!("resource claim {shown} is in the process of being allocated"));
            }
            classes_are_there(claim, inventory)?;
        }
        let variants = extended.into_iter().flat_map(Extended::variants);
        let with_extended = variants.map(|variant| {
            let all = without.iter().copied().chain([&variant.claim]);
            (variant, Allocator::new(inventory, all))
        });
        let with_extended = with_extended.collect();
        let allocator = (!without.is_empty()).then(|| Allocator::new(inventory, without));
        let stale = extended.and_then(|_| inventory.extended_of(pod));
        Ok(Some(Self { claims, allocator, extended, with_extended, stale }))
    }

    /// What the claims that have none get on a node, which `offers` some resources by itself.
    ///
    /// # Errors
    /// Those that have some are not there, or there is not enough for the others.
    pub fn filter(&self, node: &Node, offers: impl Fn(&str) -> bool) -> Result<Given, Refusal> {
        if self.stale.is_some() {
            // It is taken away first: what it has may not do any more.
            return Err(Refusal::Here(Rejection::lasting("cannot schedule extended resource claim")));
        }
        let variant = self.extended.and_then(|extended| extended.on(offers));
        let variant = variant.and_then(|at| self.with_extended.get(at));
        let allocator =
            variant.map(|(_, allocator)| allocator.as_ref()).or(self.allocator.as_ref().map(Result::as_ref));
        let mut given = Given::default();
        if let Some(allocator) = allocator {
            let allocator = allocator.map_err(|why| Refusal::Everywhere(why.clone()))?;
            let share_id = || uuid::Uuid::new_v4().to_string();
            let allocations = allocator.allocate(node, &share_id).map_err(|problem| match problem {
                Problem::OnNode(why) => Refusal::Here(Rejection::lasting(why)),
                Problem::Fatal(why) => Refusal::Everywhere(why),
                Problem::TooLong => {
                    let name = node.metadata.name.as_deref().unwrap_or_default();
                    Refusal::Everywhere(format!("node {name}: timed out trying to allocate devices"))
                }
            })?;
            let claims = self.without().chain(variant.map(|(variant, _)| &variant.claim));
            given.claims = claims.cloned().zip(allocations).collect();
            given.extended = variant.map(|(variant, _)| variant.mappings.clone()).unwrap_or_default();
        }
        match self.unavailable(node).next() {
            Some(_) => Err(Refusal::Here(Rejection::lasting("resourceclaim not available on the node"))),
            None => Ok(given),
        }
    }

    /// How early in the requests' lists stands what is given: the earlier, the more.
    #[must_use]
    pub fn score(&self, given: &Given) -> i64 {
        let had = self.claims.iter().filter_map(|claim| Some((&***claim, allocation_of(claim)?)));
        let given = given.claims.iter().map(|(claim, allocation)| (&**claim, allocation));
        had.chain(given).map(|(claim, allocation)| earliness(claim, allocation)).sum()
    }

    /// A claim that nobody uses, and that keeps the Pod from one of these nodes: it can give its devices back.
    pub fn to_give_back<'n>(
        &self,
        pod: &Pod,
        mut nodes: impl Iterator<Item = &'n Node>,
    ) -> Option<Arc<ResourceClaim>> {
        if let Some(stale) = self.stale {
            return Some(Arc::clone(stale));
        }
        let unused = |claim: &Arc<ResourceClaim>| {
            let users = claim.status.as_ref().and_then(|status| status.reserved_for.as_deref());
            match users.unwrap_or_default() {
                [] => true,
                [_] => is_user(pod, claim),
                _ => false,
            }
        };
        nodes.find_map(|node| self.unavailable(node).find(|claim| unused(claim)).cloned())
    }

    fn without(&self) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.claims.iter().filter(|claim| allocation_of(claim).is_none()).copied()
    }

    /// The claims whose devices a node cannot reach, or that failed to be made ready.
    fn unavailable(&self, node: &Node) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.claims.iter().copied().filter(|claim| {
            allocation_of(claim).is_some_and(|allocation| {
                let selector = allocation.node_selector.as_ref();
                selector.is_some_and(|selector| !placement::matches(selector, node))
            })
        })
    }
}

fn classes_are_there(claim: &ResourceClaim, inventory: &Inventory) -> Result<(), String> {
    let requests = asked(claim).into_iter().flat_map(|devices| devices.requests.iter().flatten());
    for request in requests {
        let exactly =
            request.exactly.iter().map(|exactly| (request.name.clone(), &exactly.device_class_name));
        let list = request.first_available.iter().flatten();
        let list = list.map(|sub| (format!("{}/{}", request.name, sub.name), &sub.device_class_name));
        for (name, class) in exactly.chain(list) {
            if !inventory.classes.contains_key(class) {
                return Err(format!("request {name}: device class {class} does not exist"));
            }
        }
    }
    Ok(())
}

fn earliness(claim: &ResourceClaim, allocation: &AllocationResult) -> i64 {
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let taken: HashSet<&str> = results.map(|result| result.request.as_str()).collect();
    let requests = asked(claim).into_iter().flat_map(|devices| devices.requests.iter().flatten());
    let points = requests.flat_map(|request| {
        let list = request.first_available.iter().flatten().enumerate();
        let taken = &taken;
        list.filter(move |(_, sub)| taken.contains(format!("{}/{}", request.name, sub.name).as_str()))
            .map(|(at, _)| i64::try_from(MOST_ALTERNATIVES.saturating_sub(at)).unwrap_or_default())
    });
    points.sum()
}

#[cfg(test)]
#[path = "dynamic_resources_tests.rs"]
mod tests;
