//! Hard eviction thresholds: what must be left of the node, written as upstream's `--eviction-hard` has it.
//!
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/>

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use trine_objects::quantity::Quantity;

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Memory that can be had without swapping, bytes.
    Memory,
    /// Room on the kubelet's file system, bytes.
    Disk,
    /// Its free inodes; a file system that counts none is never short of them.
    Inodes,
    /// Process ids.
    Pids,
}

impl Signal {
    const ALL: [(Self, &str); 4] = [
        (Self::Memory, "memory.available"),
        (Self::Disk, "nodefs.available"),
        (Self::Inodes, "nodefs.inodesFree"),
        (Self::Pids, "pid.available"),
    ];

    /// Upstream's name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(signal, _)| *signal == self).map_or("", |(_, name)| name)
    }
}

/// The least that must be left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Least {
    /// So much, in the signal's unit.
    Amount(Quantity),
    /// So many hundredths of all.
    Percent(f64),
}

impl Least {
    /// The amount, of so much in all.
    #[must_use]
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn of(self, all: u64) -> u64 {
        match self {
            Self::Amount(amount) => u64::try_from(amount.value()).unwrap_or_default(),
            Self::Percent(percent) => (all as f64 * percent / 100.0) as u64,
        }
    }
}

impl fmt::Display for Least {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Amount(amount) => amount.fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// How much there is of something, and how much of it is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// In all.
    pub all: u64,
    /// Of it free.
    pub left: u64,
}

/// The thresholds of a node; below one of them it takes no more Pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds(BTreeMap<Signal, Least>);

/// 100 MiB of memory and 5 % of the inodes, as upstream; but 1 GiB of the disk, not a tenth of it: a machine whose large
/// disk is nearly full can run Pods for long.
impl Default for Thresholds {
    fn default() -> Self {
        let mib = |n: u64| Least::Amount(Quantity::from_bytes(n << 20));
        Self(BTreeMap::from([
            (Signal::Memory, mib(100)),
            (Signal::Disk, mib(1024)),
            (Signal::Inodes, Least::Percent(5.0)),
        ]))
    }
}

impl Thresholds {
    /// The amount that must be left of so much in all; nothing where no threshold is set.
    #[must_use]
    pub fn least(&self, signal: Signal, all: u64) -> u64 {
        self.0.get(&signal).map_or(0, |least| least.of(all))
    }

    /// Whether less is left than must be.
    #[must_use]
    pub fn crossed(&self, signal: Signal, seen: Left) -> bool {
        seen.left < self.least(signal, seen.all)
    }

    /// Names and values, as `/configz` shows them.
    #[must_use]
    pub fn words(&self) -> BTreeMap<&'static str, String> {
        self.0.iter().map(|(signal, least)| (signal.name(), least.to_string())).collect()
    }
}

impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> =
            self.words().into_iter().map(|(name, least)| format!("{name}<{least}")).collect();
        f.write_str(&words.join(","))
    }
}

/// What is wrong with a threshold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// Not of the form.
    #[error("{0:?} is not of the form SIGNAL<LEAST, as memory.available<100Mi or nodefs.available<5%")]
    Form(String),
    /// A signal that is not watched.
    #[error(
        "{0:?} is not watched; these are: memory.available, nodefs.available, nodefs.inodesFree, pid.available"
    )]
    Signal(String),
    /// Neither a quantity nor a share.
    #[error("{0:?} is neither a quantity that is not negative nor a percentage from 0 to 100")]
    Least(String),
    /// Set twice.
    #[error("{0} is set twice")]
    Twice(&'static str),
}

impl FromStr for Least {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let wrong = || ThresholdError::Least(text.to_owned());
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.parse().map_err(|_| wrong())?;
            return (0.0..=100.0).contains(&percent).then_some(Self::Percent(percent)).ok_or_else(wrong);
        }
        let amount: Quantity = text.parse().map_err(|_| wrong())?;
        (!amount.is_negative()).then_some(Self::Amount(amount)).ok_or_else(wrong)
    }
}

/// What is named replaces all of the defaults, as upstream; an empty text sets none.
impl FromStr for Thresholds {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let mut all = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, least) = part.split_once('<').ok_or_else(|| ThresholdError::Form(part.to_owned()))?;
            let known = Signal::ALL.iter().find(|(_, known)| *known == name.trim());
            let (signal, name) = known.ok_or_else(|| ThresholdError::Signal(name.to_owned()))?;
            if all.insert(*signal, least.trim().parse()?).is_some() {
                return Err(ThresholdError::Twice(name));
            }
        }
        Ok(Self(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_written_as_they_are_read() {
        for text in
            ["", "memory.available<100Mi", "memory.available<1Gi,nodefs.available<10%,pid.available<500"]
        {
            assert_eq!(text.parse::<Thresholds>().unwrap().to_string(), text);
        }
        let default = "memory.available<100Mi,nodefs.available<1Gi,nodefs.inodesFree<5%";
        assert_eq!(Thresholds::default().to_string(), default);
        assert_eq!(default.parse(), Ok(Thresholds::default()));
        for (wrong, why) in [
            ("memory.available", "is not of the form"),
            ("memory.available>5%", "is not of the form"),
            ("memory<5%", "is not watched"),
            ("nodefs.available<101%", "is neither"),
            ("nodefs.available<-1Gi", "is neither"),
            ("nodefs.available<much", "is neither"),
            ("pid.available<1,pid.available<2", "pid.available is set twice"),
        ] {
            let error = wrong.parse::<Thresholds>().unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_threshold_is_crossed_when_less_is_left() {
        let thresholds: Thresholds = "nodefs.available<10%,memory.available<1Ki".parse().unwrap();
        for (signal, all, left, crossed) in [
            (Signal::Disk, 1000, 100, false),
            (Signal::Disk, 1000, 99, true),
            (Signal::Memory, 5000, 1024, false),
            (Signal::Memory, 5000, 1023, true),
            (Signal::Pids, 5, 0, false),
            (Signal::Inodes, 0, 0, false),
        ] {
            assert_eq!(thresholds.crossed(signal, Left { all, left }), crossed, "{signal:?} {left} of {all}");
        }
        assert!(
            !Thresholds::default().crossed(Signal::Inodes, Left { all: 0, left: 0 }),
            "btrfs counts no inodes"
        );
        assert!(!Thresholds::default().crossed(Signal::Disk, Left { all: 250 << 30, left: 2 << 30 }));
    }
}
