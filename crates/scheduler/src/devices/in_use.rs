//! Which devices claims have.

use std::collections::{BTreeMap, HashMap};

use trine_objects::quantity::Quantity;

use super::AllocationResult;

/// Amounts by name.
pub type Amounts = BTreeMap<String, Quantity>;

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    /// Who offers it.
    pub driver: String,
    /// In which pool.
    pub pool: String,
    /// Its name there.
    pub device: String,
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// Who has parts of a device.
#[derive(Debug, Clone, Default)]
struct Shares {
    count: usize,
    consumed: Amounts,
}

/// Which devices are taken, and of which parts are.
#[derive(Debug, Clone, Default)]
pub struct InUse {
    whole: HashMap<DeviceId, usize>,
    shared: HashMap<DeviceId, Shares>,
}

impl InUse {
    /// A claim has got devices. Access by an administrator takes none.
    pub fn add(&mut self, allocation: &AllocationResult) {
        self.change(allocation, true);
    }

    /// A claim has given them back.
    pub fn remove(&mut self, allocation: &AllocationResult) {
        self.change(allocation, false);
    }

    /// Whether a claim has all of a device.
    #[must_use]
    pub fn has_whole(&self, id: &DeviceId) -> bool {
        self.whole.contains_key(id)
    }

    /// Whether a claim has a part of a device, or all of it.
    #[must_use]
    pub fn has(&self, id: &DeviceId) -> bool {
        self.has_whole(id) || self.shared.contains_key(id)
    }

    /// Whether claims share a device, and what they have of it.
    #[must_use]
    pub fn consumed(&self, id: &DeviceId) -> Option<&Amounts> {
        self.shared.get(id).map(|shares| &shares.consumed)
    }

    fn change(&mut self, allocation: &AllocationResult, add: bool) {
        for result in allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten()) {
            if result.admin_access == Some(true) {
                continue;
            }
            let id = DeviceId {
                driver: result.driver.clone(),
                pool: result.pool.clone(),
                device: result.device.clone(),
            };
            if result.share_id.is_none() {
                let count = self.whole.entry(id.clone()).or_default();
                *count = if add { *count + 1 } else { count.saturating_sub(1) };
                if *count == 0 {
                    self.whole.remove(&id);
                }
                continue;
            }
            let shares = self.shared.entry(id.clone()).or_default();
            shares.count = if add { shares.count + 1 } else { shares.count.saturating_sub(1) };
            for (name, amount) in result.consumed_capacity.iter().flatten() {
                let Ok(amount) = amount.0.parse::<Quantity>() else { continue };
                let sum = shares.consumed.entry(name.clone()).or_insert(amount.with_nano(0));
                *sum = if add { *sum + amount } else { *sum - amount };
            }
            if shares.count == 0 {
                self.shared.remove(&id);
            }
        }
    }
}
