//! Amounts of resources as the scheduler adds and compares them, many thousand times for one Pod: those that every Pod asks for
//! have places of their own.

use std::collections::BTreeMap;

use trine_typed::demand::Amounts;

/// Amounts in thousandths; beyond 9.2 PB of memory they are cut off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// Thousandths of a processor.
    pub cpu: i64,
    /// Thousandths of a byte.
    pub memory: i64,
    storage: i64,
    pods: i64,
    others: BTreeMap<String, i64>,
}

/// A resource by its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Processors.
    Cpu,
    /// Memory.
    Memory,
    /// Room on the node's disk.
    Storage,
    /// What only some ask for.
    Other(String),
}

impl Kind {
    /// A resource by its name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::Storage,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl From<Amounts> for Resources {
    fn from(amounts: Amounts) -> Self {
        let mut resources = Self::default();
        for (name, amount) in amounts {
            let amount = i64::try_from(amount).unwrap_or(i64::MAX);
            match name.as_str() {
                "cpu" => resources.cpu = amount,
                "memory" => resources.memory = amount,
                "ephemeral-storage" => resources.storage = amount,
                "pods" => resources.pods = amount,
                _ => drop(resources.others.insert(name, amount)),
            }
        }
        resources
    }
}

impl Resources {
    /// How much there is of one.
    #[must_use]
    pub fn of(&self, kind: &Kind) -> i64 {
        match kind {
            Kind::Cpu => self.cpu,
            Kind::Memory => self.memory,
            Kind::Storage => self.storage,
            Kind::Other(name) => self.others.get(name).copied().unwrap_or_default(),
        }
    }

    /// Takes out the resources that `which` names.
    pub fn leave_out(&mut self, which: impl Fn(&str) -> bool) {
        self.others.retain(|name, _| !which(name));
    }

    /// Counts `other` in.
    pub fn add(&mut self, other: &Self) {
        self.change(other, i64::saturating_add);
    }

    /// Counts `other` out.
    pub fn subtract(&mut self, other: &Self) {
        self.change(other, i64::saturating_sub);
        self.others.retain(|_, amount| *amount != 0);
    }

    fn change(&mut self, other: &Self, how: fn(i64, i64) -> i64) {
        self.cpu = how(self.cpu, other.cpu);
        self.memory = how(self.memory, other.memory);
        self.storage = how(self.storage, other.storage);
        self.pods = how(self.pods, other.pods);
        for (name, amount) in &other.others {
            let slot = self.others.entry(name.clone()).or_default();
            *slot = how(*slot, *amount);
        }
    }

    /// The resources that `wanted` asks for and that are short when `used` is taken from this: name, and whether all of this
    /// would not be enough.
    pub fn short<'a>(&'a self, used: &'a Self, wanted: &'a Self) -> impl Iterator<Item = (&'a str, bool)> {
        let main = [
            ("cpu", self.cpu, used.cpu, wanted.cpu),
            ("ephemeral-storage", self.storage, used.storage, wanted.storage),
            ("memory", self.memory, used.memory, wanted.memory),
            ("pods", self.pods, used.pods, wanted.pods),
        ];
        let of = |all: &Self, name: &str| all.others.get(name).copied().unwrap_or_default();
        let others = wanted
            .others
            .iter()
            .map(move |(name, wanted)| (name.as_str(), of(self, name), of(used, name), *wanted));
        let short = |(name, total, used, wanted): (&'a str, i64, i64, i64)| {
            (wanted > 0 && used.saturating_add(wanted) > total).then_some((name, wanted > total))
        };
        main.into_iter().chain(others).filter_map(short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(given: &[(&str, i128)]) -> Resources {
        given.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect::<Amounts>().into()
    }

    #[test]
    fn what_is_counted_out_again_leaves_nothing() {
        let mut sum = resources(&[("cpu", 1000)]);
        let more = resources(&[("cpu", 500), ("memory", 7), ("pods", 1000), ("x.io/gpu", 2000)]);
        sum.add(&more);
        assert_eq!((sum.cpu, sum.memory), (1500, 7));
        sum.subtract(&more);
        assert_eq!(sum, resources(&[("cpu", 1000)]));
    }

    #[test]
    fn short_is_what_is_asked_for_and_not_left() {
        let total = resources(&[("cpu", 4000), ("pods", 1000), ("x.io/gpu", 1000)]);
        let used = resources(&[("cpu", 3000), ("pods", 1000)]);
        let rows = [
            (vec![("cpu", 1000)], vec![]),
            (vec![("cpu", 2000)], vec![("cpu", false)]),
            (vec![("cpu", 5000), ("pods", 1000)], vec![("cpu", true), ("pods", false)]),
            (vec![("x.io/gpu", 2000), ("x.io/none", 1)], vec![("x.io/gpu", true), ("x.io/none", true)]),
            (vec![("memory", 0)], vec![]),
        ];
        for (wanted, expected) in rows {
            let wanted = resources(&wanted);
            assert_eq!(total.short(&used, &wanted).collect::<Vec<_>>(), expected, "{wanted:?}");
        }
    }
}
