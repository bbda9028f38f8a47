//! Finds devices for claims on a node: one device after the other is tried, in the order of pools, slices and devices, and taken back
//! where the rest does not work out. The first whole solution is taken, as upstream does.

use std::collections::{BTreeSet, HashMap};

use super::allocator::{Allocator, Problem};
use super::capacity;
use super::constraints::Constraint;
use super::counters::Counters;
use super::in_use::{Amounts, DeviceId};
use super::inventory::Offer;
use super::pools::{self, Pool, PoolState};
use super::requests::{Count, Request};
use super::{Device, MOST_DEVICES};
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::placement::covers_device;

/// How many devices are tried before it is given up. Upstream gives up after 10 s; this takes about as many tenths.
const MOST_TRIES: usize = 500_000;

/// A device of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub id: &'a DeviceId,
    pub device: &'a Device,
    pub offer: &'a Offer,
    /// Its number in the slice.
    pub at: usize,
    /// The number of its pool on the node.
    pool: usize,
}

/// A device that a claim gets.
#[derive(Debug)]
pub(super) struct Picked<'a> {
    pub candidate: Candidate<'a>,
    /// The number of the claim's request, and of the alternative.
    pub request: (usize, usize),
    /// What it has of it, if others may have the rest.
    pub share: Option<Amounts>,
}

/// What claims get: their devices, and which alternative of each request was taken.
#[derive(Debug)]
pub(super) struct Solution<'a> {
    pub picked: Vec<Vec<Picked<'a>>>,
    pub chosen: Vec<Vec<usize>>,
}

/// Which device is looked for.
#[derive(Debug, Clone, Copy)]
struct Spot {
    claim: usize,
    request: usize,
    /// The alternative that is tried.
    option: Option<usize>,
    /// The how manieth of the request.
    nth: usize,
}

impl Spot {
    fn request(self) -> (usize, usize) {
        (self.request, self.option.unwrap_or_default())
    }
}

enum Outcome {
    Found,
    NotFound,
    /// The claim would have more devices than it can have.
    TooMany,
}

/// What was changed for a device.
struct Taken {
    candidate: usize,
    constraints: usize,
    counters: bool,
    marked: bool,
    /// What was added, and whether the device was shared before.
    share: Option<bool>,
}

struct Search<'a, 's> {
    allocator: &'s Allocator<'a>,
    node: &'s Node,
    pools: &'s [Pool<'a>],
    candidates: Vec<Candidate<'a>>,
    /// For each request by number: whether each candidate fits, if it is known.
    fits: Vec<Vec<Option<bool>>>,
    /// For each request by number that asks for all: which those are.
    all: HashMap<usize, Vec<usize>>,
    constraints: Vec<Vec<Constraint<'a>>>,
    counters: HashMap<usize, Counters<'a>>,
    /// The claims that get all of a candidate.
    marked: Vec<BTreeSet<usize>>,
    /// What claims get of candidates that are shared.
    shared: HashMap<usize, Vec<Amounts>>,
    solution: Solution<'a>,
    tries: usize,
}

/// Finds devices for the allocator's claims on a node.
pub(super) fn find<'a>(
    allocator: &Allocator<'a>,
    node: &Node,
    pools: &[Pool<'a>],
) -> Result<Option<Solution<'a>>, Problem> {
    let mut candidates = Vec::new();
    for (number, pool) in pools.iter().enumerate().filter(|(_, pool)| pool.state == PoolState::Whole) {
        for offer in &pool.offers {
            let devices = offer.devices().iter().zip(&offer.ids).enumerate();
            candidates.extend(devices.map(|(at, (device, id))| Candidate {
                id,
                device,
                offer,
                at,
                pool: number,
            }));
        }
    }
    let claims = allocator.claims();
    let mut search = Search {
        allocator,
        node,
        pools,
        fits: vec![vec![None; candidates.len()]; allocator.requests()],
        all: HashMap::new(),
        constraints: allocator.constraints()?,
        counters: HashMap::new(),
        marked: vec![BTreeSet::new(); candidates.len()],
        shared: HashMap::new(),
        solution: Solution {
            picked: claims.iter().map(|_| Vec::new()).collect(),
            chosen: claims.iter().map(|claim| vec![0; claim.asked.len()]).collect(),
        },
        tries: 0,
        candidates,
    };
    search.gather_all()?;
    match search.one(Spot { claim: 0, request: 0, option: None, nth: 0 }, 0)? {
        Outcome::Found => Ok(Some(search.solution)),
        Outcome::NotFound | Outcome::TooMany => Ok(None),
    }
}

impl<'a> Search<'a, '_> {
    fn request(&self, claim: usize, (request, option): (usize, usize)) -> &Request<'a> {
        &self.allocator.claims()[claim].asked[request].options[option]
    }

    /// Finds out which devices those are that ask for all ask for.
    fn gather_all(&mut self) -> Result<(), Problem> {
        let allocator = self.allocator;
        for claim in allocator.claims() {
            for request in claim.asked.iter().flat_map(|asked| &asked.options) {
                if request.count != Count::All {
                    continue;
                }
                for pool in self.pools {
                    let why = match pool.state {
                        PoolState::Whole => continue,
                        PoolState::Incomplete => "being updated",
                        PoolState::Invalid => "invalid",
                    };
                    return Err(Problem::Fatal(format!(
                        "claim {}, request {}: asks for all devices, but resource pool {pool} is currently {why}",
                        claim.shown,
                        request.own()
                    )));
                }
                let mut all = Vec::new();
                for candidate in 0..self.candidates.len() {
                    if self.selectable(request, candidate)?
                        && self.consumed(&claim.shown, request, candidate)?.is_some()
                    {
                        all.push(candidate);
                    }
                }
                self.all.insert(request.number, all);
            }
        }
        Ok(())
    }

    /// Finds the device of a spot and all after it, from a candidate on.
    fn one(&mut self, spot: Spot, from: usize) -> Result<Outcome, Problem> {
        // As deep as there are devices to find.
        trine_cel::evaluating(|| self.one_level(spot, from))
    }

    fn one_level(&mut self, spot: Spot, from: usize) -> Result<Outcome, Problem> {
        let allocator = self.allocator;
        let Some(claim) = allocator.claims().get(spot.claim) else { return Ok(Outcome::Found) };
        let Some(asked) = claim.asked.get(spot.request) else {
            let next = Spot { claim: spot.claim + 1, request: 0, option: None, nth: 0 };
            // Another choice for an earlier claim may leave fewer devices to find.
            return Ok(match self.one(next, 0)? {
                Outcome::TooMany => Outcome::NotFound,
                outcome => outcome,
            });
        };
        if asked.list && spot.option.is_none() {
            return self.alternatives(spot, asked.options.len());
        }
        let request = self.request_at(spot);
        let (number, count) = (request.number, request.count);
        let all = self.all.get(&number).map(Vec::as_slice);
        let wanted = match count {
            Count::Exactly(count) => count,
            Count::All => all.map_or(0, <[usize]>::len),
        };
        if count == Count::All && wanted == 0 {
            return Ok(Outcome::NotFound);
        }
        if spot.nth >= wanted {
            return self.one(Spot { request: spot.request + 1, option: None, nth: 0, ..spot }, 0);
        }
        let room = MOST_DEVICES.saturating_sub(self.solution.picked[spot.claim].len());
        if wanted - spot.nth > room {
            return Ok(Outcome::TooMany);
        }
        let next = Spot { nth: spot.nth + 1, ..spot };
        if let Some(candidate) = all.and_then(|all| all.get(spot.nth)).copied() {
            let Some(taken) = self.take(spot, candidate, true)? else { return Ok(Outcome::NotFound) };
            let outcome = self.one(next, 0)?;
            if !matches!(outcome, Outcome::Found) {
                self.give_back(spot, taken);
            }
            return Ok(outcome);
        }
        for candidate in from..self.candidates.len() {
            let Some(taken) = self.take(spot, candidate, false)? else { continue };
            // The order of devices within a request does not matter: only later ones are tried with this one.
            let outcome = self.one(next, candidate + 1)?;
            if matches!(outcome, Outcome::Found) {
                return Ok(outcome);
            }
            self.give_back(spot, taken);
            if matches!(outcome, Outcome::TooMany) {
                return Ok(outcome);
            }
        }
        Ok(Outcome::NotFound)
    }

    fn request_at(&self, spot: Spot) -> &Request<'a> {
        self.request(spot.claim, spot.request())
    }

    /// The first alternative with which the rest works out.
    fn alternatives(&mut self, spot: Spot, count: usize) -> Result<Outcome, Problem> {
        let mut too_many = true;
        for option in 0..count {
            match self.one(Spot { option: Some(option), ..spot }, 0)? {
                Outcome::Found => {
                    self.solution.chosen[spot.claim][spot.request] = option;
                    return Ok(Outcome::Found);
                }
                Outcome::NotFound => too_many = false,
                Outcome::TooMany => {}
            }
        }
        Ok(if too_many { Outcome::TooMany } else { Outcome::NotFound })
    }

    /// Takes a candidate, if it can be had. With `must` nothing else would do.
    fn take(&mut self, spot: Spot, at: usize, must: bool) -> Result<Option<Taken>, Problem> {
        self.tries += 1;
        if self.tries > MOST_TRIES {
            return Err(Problem::TooLong);
        }
        let allocator = self.allocator;
        let claim = &allocator.claims()[spot.claim];
        let request = &claim.asked[spot.request].options[spot.option.unwrap_or_default()];
        let candidate = self.candidates[at];
        let shareable = candidate.device.allow_multiple_allocations == Some(true);
        let taken = if request.admin {
            self.marked[at].contains(&spot.claim)
        } else {
            !self.marked[at].is_empty() || allocator.in_use().has_whole(candidate.id)
        };
        if taken || !self.selectable(request, at)? {
            return Ok(None);
        }
        let Some(amounts) = self.consumed(&claim.shown, request, at)? else { return Ok(None) };
        let mut others: Vec<_> = vec![allocator.in_use().consumed(candidate.id)];
        others.extend(self.shared.get(&at).into_iter().flatten().map(Some));
        if !capacity::fits(&amounts, &others, candidate.device.capacity.as_ref()) {
            return Ok(None);
        }
        if !self.tolerated(request, &candidate) {
            return Ok(None);
        }
        let was_shared = self.shared.contains_key(&at);
        let mut taken = Taken { candidate: at, constraints: 0, counters: false, marked: false, share: None };
        // Who shares a device that is shared already consumes none of its counters again.
        let counted = shareable && (was_shared || allocator.in_use().consumed(candidate.id).is_some());
        if !counted
            && candidate.device.consumes_counters.as_ref().is_some_and(|consumed| !consumed.is_empty())
        {
            let pool = &self.pools[candidate.pool];
            let counters = self.counters.entry(candidate.pool);
            let counters = counters.or_insert_with(|| Counters::of(pool, allocator.in_use()));
            if !counters.consume(candidate.device) {
                return Ok(None);
            }
            taken.counters = true;
        }
        for constraint in &mut self.constraints[spot.claim] {
            if !constraint.add(request, &candidate.id.driver, candidate.device) {
                self.undo(spot, &taken);
                if must {
                    return Err(Problem::Fatal(format!(
                        "claim {}, request {}: cannot add device {} because a claim constraint would not be satisfied",
                        claim.shown,
                        request.own(),
                        candidate.id
                    )));
                }
                return Ok(None);
            }
            taken.constraints += 1;
        }
        let mut share = None;
        if shareable {
            self.shared.entry(at).or_default().push(amounts.clone());
            taken.share = Some(was_shared);
            share = Some(amounts);
        } else {
            self.marked[at].insert(spot.claim);
            taken.marked = true;
        }
        self.solution.picked[spot.claim].push(Picked { candidate, request: spot.request(), share });
        Ok(Some(taken))
    }

    fn give_back(&mut self, spot: Spot, taken: Taken) {
        self.solution.picked[spot.claim].pop();
        self.undo(spot, &taken);
    }

    fn undo(&mut self, spot: Spot, taken: &Taken) {
        if let Some(was_shared) = taken.share
            && let Some(shares) = self.shared.get_mut(&taken.candidate)
        {
            shares.pop();
            if !was_shared {
                self.shared.remove(&taken.candidate);
            }
        }
        if taken.marked {
            self.marked[taken.candidate].remove(&spot.claim);
        }
        let allocator = self.allocator;
        let request =
            &allocator.claims()[spot.claim].asked[spot.request].options[spot.option.unwrap_or_default()];
        for constraint in self.constraints[spot.claim].iter_mut().take(taken.constraints) {
            constraint.remove(request);
        }
        if taken.counters {
            let candidate = self.candidates[taken.candidate];
            if let Some(counters) = self.counters.get_mut(&candidate.pool) {
                counters.give_back(candidate.device);
            }
        }
    }

    /// Whether the selectors of a request take a candidate, and it can be reached from the node.
    fn selectable(&mut self, request: &Request<'a>, at: usize) -> Result<bool, Problem> {
        if let Some(known) = self.fits[request.number][at] {
            return Ok(known);
        }
        let candidate = self.candidates[at];
        let by_device = candidate.offer.slice.spec.per_device_node_selection == Some(true);
        let fits = self.allocator.takes(request, &candidate)?
            && (!by_device || pools::device_reaches(candidate.device, self.node));
        self.fits[request.number][at] = Some(fits);
        Ok(fits)
    }

    fn consumed(&self, shown: &str, request: &Request<'a>, at: usize) -> Result<Option<Amounts>, Problem> {
        let candidate = self.candidates[at];
        capacity::consumed(request.capacity, candidate.device.capacity.as_ref()).map_err(|why| {
            let own = request.own();
            Problem::Fatal(format!(
                "claim {shown}, request {own}: checking capacity for device {}: {why}",
                candidate.id
            ))
        })
    }

    fn tolerated(&self, request: &Request<'a>, candidate: &Candidate<'a>) -> bool {
        let own = candidate.device.taints.iter().flatten();
        let rules = self.allocator.rules_for(candidate.id).map(|rule| &rule.spec.taint);
        let mut keep_off =
            own.chain(rules).filter(|taint| ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str()));
        keep_off.all(|taint| {
            request.tolerations.into_iter().flatten().any(|toleration| covers_device(toleration, taint))
        })
    }
}
