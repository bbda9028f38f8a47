//! What is known of devices: slices by pool, classes, taints, and the claims with what they have. Each change touches only what has
//! changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use trine_cel::{About, Expression, Known, Selecting};

use super::in_use::{DeviceId, InUse};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::resource::v1::DeviceClaim;

use super::{AllocationResult, Device, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice, extended};

/// How many compiled selectors are kept.
const SELECTORS: usize = 512;

/// A pool: its driver and its name.
pub type PoolId = (String, String);
/// An object as it was and as it is; none: it was made, or is gone.
pub type Pair<K> = (Option<Arc<K>>, Option<Arc<K>>);
/// A selector that was compiled, or why it cannot be.
pub type Compiled = Arc<Result<Expression, String>>;

/// A slice, with what is worked out of it once.
#[derive(Debug)]
pub struct Offer {
    /// The object.
    pub slice: Arc<ResourceSlice>,
    /// Its devices' ids, in their order.
    pub ids: Vec<DeviceId>,
    /// Its devices as selectors see them, in their order, when one has looked.
    seen: Vec<OnceLock<Result<trine_cel::Device, String>>>,
}

impl Offer {
    fn new(slice: Arc<ResourceSlice>) -> Self {
        let devices = slice.spec.devices.as_deref().unwrap_or_default();
        let ids = devices.iter().map(|device| DeviceId {
            driver: slice.spec.driver.clone(),
            pool: slice.spec.pool.name.clone(),
            device: device.name.clone(),
        });
        let seen = devices.iter().map(|_| OnceLock::new()).collect();
        Self { ids: ids.collect(), seen, slice }
    }

    /// Its devices.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        self.slice.spec.devices.as_deref().unwrap_or_default()
    }

    /// The name of the slice.
    #[must_use]
    pub fn name(&self) -> &str {
        self.slice.metadata.name.as_deref().unwrap_or_default()
    }

    /// A device as selectors see it.
    ///
    /// # Errors
    /// It has values that they do not know.
    pub fn seen(&self, at: usize, selecting: &Selecting) -> Result<&trine_cel::Device, String> {
        let (Some(cell), Some(device)) = (self.seen.get(at), self.devices().get(at)) else {
            return Err("there is no such device".to_owned());
        };
        let seen = cell.get_or_init(|| {
            let device = serde_json::to_value(device).map_err(|error| error.to_string())?;
            selecting.device(&self.slice.spec.driver, &device)
        });
        seen.as_ref().map_err(Clone::clone)
    }
}

/// Devices that a Pod was given, of which the claim does not tell yet.
#[derive(Debug, Clone)]
struct Pending {
    pod: String,
    allocation: Arc<AllocationResult>,
}

/// All that is known of devices.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Whether the claims and slices that there are have been listed; before that nothing can be given away.
    pub listed: bool,
    /// Classes by name.
    pub classes: BTreeMap<String, Arc<DeviceClass>>,
    claims: HashMap<(String, String), Arc<ResourceClaim>>,
    /// Those that were written for what Pods ask for by resources, by the Pods' UIDs.
    extended: HashMap<String, Arc<ResourceClaim>>,
    /// Slices by pool and name.
    pools: BTreeMap<PoolId, BTreeMap<String, Arc<Offer>>>,
    /// How many slices of which pools are for one node alone.
    on_node: HashMap<String, BTreeMap<PoolId, usize>>,
    /// How many slices of which pools are for others.
    shared: BTreeMap<PoolId, usize>,
    /// Taints that administrators have put on devices.
    rules: BTreeMap<String, Arc<DeviceTaintRule>>,
    /// By the claims' UIDs.
    pending: HashMap<String, Pending>,
    /// What is counted as taken, by the claims' UIDs.
    counted: HashMap<String, Arc<AllocationResult>>,
    in_use: InUse,
    selectors: Arc<Mutex<HashMap<String, Compiled>>>,
}

impl Inventory {
    /// A slice is there, is another, or is gone.
    pub fn put_slice(&mut self, (old, new): Pair<ResourceSlice>) {
        if let Some(old) = old {
            self.count_slice(&old, false);
        }
        if let Some(new) = new {
            self.count_slice(&new, true);
        }
    }

    fn count_slice(&mut self, slice: &Arc<ResourceSlice>, add: bool) {
        let id: PoolId = (slice.spec.driver.clone(), slice.spec.pool.name.clone());
        let name = slice.metadata.name.clone().unwrap_or_default();
        let slices = self.pools.entry(id.clone()).or_default();
        if add {
            slices.insert(name, Arc::new(Offer::new(Arc::clone(slice))));
        } else {
            slices.remove(&name);
        }
        if slices.is_empty() {
            self.pools.remove(&id);
        }
        let node = slice.spec.node_name.as_ref().filter(|node| !node.is_empty());
        let counts = match node {
            Some(node) => self.on_node.entry(node.clone()).or_default(),
            None => &mut self.shared,
        };
        let count = counts.entry(id.clone()).or_default();
        *count = if add { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            counts.remove(&id);
        }
        if let Some(node) = node
            && self.on_node.get(node).is_some_and(BTreeMap::is_empty)
        {
            self.on_node.remove(node);
        }
    }

    /// A taint for devices is there, is another, or is gone.
    pub fn put_rule(&mut self, (old, new): Pair<DeviceTaintRule>) {
        match (old, new) {
            (_, Some(new)) => {
                drop(self.rules.insert(new.metadata.name.clone().unwrap_or_default(), new));
            }
            (Some(old), None) => drop(self.rules.remove(old.metadata.name.as_deref().unwrap_or_default())),
            (None, None) => {}
        }
    }

    /// A claim is there, is another, or is gone. True if devices have become free by it.
    pub fn put_claim(&mut self, (old, new): Pair<ResourceClaim>) -> bool {
        let uid = |claim: &Arc<ResourceClaim>| claim.metadata.uid.clone().unwrap_or_default();
        let (old_uid, new_uid) = (old.as_ref().map(uid), new.as_ref().map(uid));
        let mut freed = false;
        if let Some(pod) = old.as_ref().and_then(|claim| extended::written_for(claim)) {
            self.extended.remove(pod);
            // Its Pod may be looked at again.
            freed |= new.is_none();
        }
        if let Some((pod, new)) = new.as_ref().and_then(|claim| Some((extended::written_for(claim)?, claim)))
        {
            self.extended.insert(pod.to_owned(), Arc::clone(new));
        }
        if let Some(old) = &old
            && old_uid != new_uid
        {
            self.claims.remove(&key_of(old));
            let old = uid(old);
            self.pending.remove(&old);
            freed |= self.count(&old, None);
        }
        if let (Some(new), Some(uid)) = (new, new_uid) {
            let has = allocation_of(&new).cloned().map(Arc::new);
            if has.is_some() {
                self.pending.remove(&uid);
                // What was taken for a claim before it was written is taken by it now.
                if let Some(before) = extended::written_for(&new).map(extended::unwritten_uid)
                    && self.pending.remove(&before).is_some()
                {
                    self.count(&before, None);
                }
            }
            self.claims.insert(key_of(&new), new);
            let counts =
                has.or_else(|| self.pending.get(&uid).map(|pending| Arc::clone(&pending.allocation)));
            freed |= self.count(&uid, counts);
        }
        freed
    }

    /// Counts what a claim has. True if it has nothing any more.
    fn count(&mut self, uid: &str, has: Option<Arc<AllocationResult>>) -> bool {
        let before = self.counted.get(uid);
        if before == has.as_ref() {
            return false;
        }
        let had = before.is_some();
        if let Some(before) = before {
            self.in_use.remove(before);
        }
        let Some(has) = has else {
            self.counted.remove(uid);
            return had;
        };
        self.in_use.add(&has);
        self.counted.insert(uid.to_owned(), has);
        false
    }

    /// A Pod was given devices for a claim; they are taken until the claim tells of them, or [`Inventory::release`].
    pub fn reserve(&mut self, claim: &ResourceClaim, pod: &str, allocation: AllocationResult) {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let allocation = Arc::new(allocation);
        let pending = Pending { pod: pod.to_owned(), allocation: Arc::clone(&allocation) };
        self.pending.insert(uid.clone(), pending);
        self.count(&uid, Some(allocation));
    }

    /// What a Pod was given and no claim tells of is free again. True if there was something.
    pub fn release(&mut self, pod: &str) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let its = self.pending.iter().filter(|(_, pending)| pending.pod == pod);
        let uids: Vec<String> = its.map(|(uid, _)| uid.clone()).collect();
        for uid in &uids {
            self.pending.remove(uid);
            self.count(uid, None);
        }
        !uids.is_empty()
    }

    /// A claim by namespace and name.
    #[must_use]
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<ResourceClaim>> {
        self.claims.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The claim that was written for what a Pod asks for by resources.
    #[must_use]
    pub fn extended_of(&self, pod: &Pod) -> Option<&Arc<ResourceClaim>> {
        self.extended.get(pod.metadata.uid.as_deref()?)
    }

    /// Whether a claim is being given devices.
    #[must_use]
    pub fn is_pending(&self, claim: &ResourceClaim) -> bool {
        claim.metadata.uid.as_ref().is_some_and(|uid| self.pending.contains_key(uid))
    }

    /// What is taken.
    #[must_use]
    pub fn in_use(&self) -> &InUse {
        &self.in_use
    }

    /// The pools of which a slice may be for a node, in their order, with all of their slices.
    pub(super) fn pools_near(
        &self,
        node: &str,
    ) -> impl Iterator<Item = (&PoolId, &BTreeMap<String, Arc<Offer>>)> {
        let own = self.on_node.get(node).into_iter().flat_map(BTreeMap::keys);
        let ids: BTreeSet<&PoolId> = own.chain(self.shared.keys()).collect();
        ids.into_iter().filter_map(|id| Some((id, self.pools.get(id)?)))
    }

    /// The taints that rules put on a device.
    pub(super) fn rules_for<'a>(&'a self, id: &'a DeviceId) -> impl Iterator<Item = &'a DeviceTaintRule> {
        let meets = |wanted: &Option<String>, is: &String| wanted.as_ref().is_none_or(|wanted| wanted == is);
        self.rules.values().map(AsRef::as_ref).filter(move |rule| {
            // Without a selector it is for none, with an empty one for all.
            rule.spec.device_selector.as_ref().is_some_and(|of| {
                meets(&of.driver, &id.driver) && meets(&of.pool, &id.pool) && meets(&of.device, &id.device)
            })
        })
    }

    /// A selector, compiled.
    pub(super) fn compiled(&self, text: &str) -> Compiled {
        let mut known = self.selectors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = known.get(text) {
            return Arc::clone(compiled);
        }
        if known.len() >= SELECTORS {
            known.clear();
        }
        let names = Known { about: About::Device, ..Known::default() };
        let compiled: Compiled = Arc::new(Expression::compile(text, &names));
        known.insert(text.to_owned(), Arc::clone(&compiled));
        compiled
    }
}

/// A claim's namespace and name.
#[must_use]
pub fn key_of(claim: &ResourceClaim) -> (String, String) {
    let meta = &claim.metadata;
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// What a claim asks for.
#[must_use]
pub fn asked(claim: &ResourceClaim) -> Option<&DeviceClaim> {
    claim.spec.as_ref()?.devices.as_ref()
}

/// What a claim tells that it has.
#[must_use]
pub fn allocation_of(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}
