//! Counters that devices of a pool share: parts of one thing, of which not all can be had at once.

use std::collections::HashMap;

use trine_objects::quantity::Quantity;

use super::Device;
use super::in_use::InUse;
use super::pools::Pool;

/// A counter: its set and its name.
type Counter<'a> = (&'a str, &'a str);

/// What is left of a pool's counters, in billionths.
#[derive(Debug)]
pub(super) struct Counters<'a> {
    left: HashMap<Counter<'a>, i128>,
}

impl<'a> Counters<'a> {
    /// Of a pool, without what devices that are taken consume.
    pub fn of(pool: &Pool<'a>, in_use: &InUse) -> Self {
        let mut left = HashMap::new();
        for offer in &pool.all {
            for set in offer.slice.spec.shared_counters.as_deref().unwrap_or_default() {
                let counters = set.counters.iter();
                left.extend(
                    counters.map(|(name, counter)| {
                        ((set.name.as_str(), name.as_str()), amount(&counter.value.0))
                    }),
                );
            }
        }
        let mut counters = Self { left };
        for offer in &pool.all {
            for (device, id) in offer.devices().iter().zip(&offer.ids) {
                if in_use.has(id) {
                    counters.take(device);
                }
            }
        }
        counters
    }

    /// Takes what a device consumes, if there is enough of all.
    pub fn consume(&mut self, device: &'a Device) -> bool {
        self.take(device);
        if self.left.values().all(|left| *left >= 0) {
            return true;
        }
        self.give_back(device);
        false
    }

    /// Gives back what a device has consumed.
    pub fn give_back(&mut self, device: &'a Device) {
        self.change(device, 1);
    }

    fn take(&mut self, device: &'a Device) {
        self.change(device, -1);
    }

    fn change(&mut self, device: &'a Device, by: i128) {
        for consumed in device.consumes_counters.as_deref().unwrap_or_default() {
            for (name, counter) in &consumed.counters {
                if let Some(left) = self.left.get_mut(&(consumed.counter_set.as_str(), name.as_str())) {
                    *left += by * amount(&counter.value.0);
                }
            }
        }
    }
}

/// Validation leaves nothing here that is no quantity.
fn amount(text: &str) -> i128 {
    text.parse::<Quantity>().map(|quantity| quantity.nano()).unwrap_or_default()
}
