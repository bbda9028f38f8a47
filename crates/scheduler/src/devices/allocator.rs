//! What the claims of a Pod get on a node.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use trine_cel::Selecting;
use trine_typed::k8s_openapi::api::core::v1::Node;

use super::claims::shown_claim;
use super::constraints::{self, Constraint};
use super::in_use::{DeviceId, InUse};
use super::inventory::Inventory;
use super::pools::{self, PoolState};
use super::requests::{self, Asked, Request};
use super::search::{self, Candidate};
use super::{AllocationResult, DeviceTaintRule, ResourceClaim, result};

/// Why claims get nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Not on this node; the reason, as upstream counts it.
    OnNode(String),
    /// Something is wrong with a claim or a class: nowhere.
    Fatal(String),
    /// Too much was tried.
    TooLong,
}

/// A claim that is to get devices.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    pub claim: &'a Arc<ResourceClaim>,
    /// As messages name it.
    pub shown: String,
    pub asked: Vec<Asked<'a>>,
}

/// Gives devices to the claims of a Pod; the same for all nodes.
#[derive(Debug)]
pub struct Allocator<'a> {
    inventory: &'a Inventory,
    claims: Vec<Claim<'a>>,
    requests: usize,
    selecting: Selecting,
    /// Whether a request by number takes a device of a slice: the answer is the same for all nodes that reach it.
    taken: RefCell<HashMap<(usize, *const super::inventory::Offer, usize), bool>>,
}

impl<'a> Allocator<'a> {
    /// For claims that have no devices yet.
    ///
    /// # Errors
    /// Something is wrong with one of them.
    pub fn new(
        inventory: &'a Inventory,
        claims: impl IntoIterator<Item = &'a Arc<ResourceClaim>>,
    ) -> Result<Self, String> {
        let mut number = 0;
        let claims = claims.into_iter().map(|claim| {
            let shown = shown_claim(claim);
            let asked = requests::of(claim, &shown, inventory, &mut number)?;
            Ok(Claim { claim, shown, asked })
        });
        let claims = claims.collect::<Result<_, String>>()?;
        let (selecting, taken) = (Selecting::default(), RefCell::default());
        Ok(Self { inventory, claims, requests: number, selecting, taken })
    }

    /// What each claim gets on a node, in their order. `share_id` gives each part of a device its id.
    ///
    /// # Errors
    /// They get nothing there, or nowhere.
    pub fn allocate(
        &self,
        node: &Node,
        share_id: &dyn Fn() -> String,
    ) -> Result<Vec<AllocationResult>, Problem> {
        let pools = pools::of(self.inventory, node);
        match search::find(self, node, &pools)? {
            Some(solution) => {
                let name = node.metadata.name.as_deref().unwrap_or_default();
                result::of(&self.claims, &solution, name, share_id)
            }
            None if pools.iter().any(|pool| pool.state == PoolState::Invalid) => {
                Err(Problem::OnNode("invalid resource pools were encountered".to_owned()))
            }
            None => Err(Problem::OnNode("cannot allocate all claims".to_owned())),
        }
    }

    pub(super) fn claims(&self) -> &[Claim<'a>] {
        &self.claims
    }

    /// How many requests there are, alternatives counted.
    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    pub(super) fn in_use(&self) -> &'a InUse {
        self.inventory.in_use()
    }

    pub(super) fn rules_for(&self, id: &'a DeviceId) -> impl Iterator<Item = &'a DeviceTaintRule> {
        self.inventory.rules_for(id)
    }

    /// The constraints of each claim.
    pub(super) fn constraints(&self) -> Result<Vec<Vec<Constraint<'a>>>, Problem> {
        let all = self.claims.iter().map(|claim| constraints::of(claim.claim, &claim.shown));
        all.collect::<Result<_, _>>().map_err(Problem::Fatal)
    }

    /// Whether the selectors of a request and its class take a device.
    pub(super) fn takes(&self, request: &Request<'a>, candidate: &Candidate<'a>) -> Result<bool, Problem> {
        let key = (request.number, std::ptr::from_ref(candidate.offer), candidate.at);
        if let Some(known) = self.taken.borrow().get(&key) {
            return Ok(*known);
        }
        let takes = self.asks(request, candidate).map_err(Problem::Fatal)?;
        self.taken.borrow_mut().insert(key, takes);
        Ok(takes)
    }

    fn asks(&self, request: &Request<'a>, candidate: &Candidate<'a>) -> Result<bool, String> {
        for selector in &request.selectors {
            let (of, at, id) = (&selector.of, selector.at, candidate.id);
            let compiled = selector.compiled.as_ref().as_ref();
            let compiled =
                compiled.map_err(|why| format!("{of}: selector #{at}: CEL compile error: {why}"))?;
            let failed = |why: String| {
                let mut said = format!("{of}: selector #{at} on device {id}: CEL runtime error: {why}");
                if why.contains("no such key:") {
                    said += ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check \
                             with has() for optional fields";
                }
                said
            };
            let device = candidate.offer.seen(candidate.at, &self.selecting).map_err(failed)?;
            if !self.selecting.takes(compiled, device).map_err(failed)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
