//! Which pressures the node is under. One that is gone is said for five minutes more, so that Pods do not come back at
//! once and bring it about again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use trine_typed::k8s_openapi::api::core::v1::Pod;

use super::observe::Observed;
use super::plan;
use super::thresholds::{Left, Signal, Thresholds};
use crate::config::Config;
use crate::container::resources;

/// How long a pressure is said after it was seen last (upstream: `evictionPressureTransitionPeriod`).
const HELD: SignedDuration = SignedDuration::from_mins(5);

/// The pressures that a Node speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// Too little memory left.
    pub memory: bool,
    /// Too little disk left, in bytes or in files.
    pub disk: bool,
    /// Too few process ids left.
    pub pid: bool,
}

impl Pressure {
    /// The conditions that are true.
    #[must_use]
    pub fn conditions(self) -> Vec<&'static str> {
        let all = [(self.memory, "MemoryPressure"), (self.disk, "DiskPressure"), (self.pid, "PIDPressure")];
        all.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect()
    }
}

/// When each signal was below its threshold last.
#[derive(Debug, Default)]
struct Held(BTreeMap<Signal, Timestamp>);

impl Held {
    fn update(&mut self, short: &[Signal], now: Timestamp) -> Pressure {
        self.0.extend(short.iter().map(|signal| (*signal, now)));
        self.0.retain(|_, last| now.duration_since(*last) < HELD);
        let on = |signal| self.0.contains_key(&signal);
        Pressure {
            memory: on(Signal::Memory),
            disk: on(Signal::Disk) || on(Signal::Inodes),
            pid: on(Signal::Pids),
        }
    }
}

/// What is short now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// Which signal.
    pub signal: Signal,
    /// The amount that must be left.
    pub least: u64,
    /// What is left.
    pub seen: Left,
}

/// The node's pressures, as its kubelet sees them.
#[derive(Debug)]
pub struct Pressures {
    config: Arc<Config>,
    held: Mutex<Held>,
}

impl Pressures {
    /// Those of the node of `config`.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        Self { config, held: Mutex::default() }
    }

    /// Looks now: what the Node says, and what is short at this moment, what is most urgent first.
    #[must_use]
    pub fn look(&self) -> (Pressure, Vec<Short>) {
        let short = short(&Observed::now(&self.config.root), &self.config.eviction_hard);
        let signals: Vec<Signal> = short.iter().map(|s| s.signal).collect();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        (held.update(&signals, Timestamp::now()), short)
    }

    /// Why the node does not take the Pod now.
    #[must_use]
    pub fn keep_out(&self, pod: &Pod) -> Option<String> {
        let (pressure, _) = self.look();
        plan::keeps_out(&pressure.conditions(), pod, resources::qos(pod) == "BestEffort")
    }
}

fn short(seen: &Observed, thresholds: &Thresholds) -> Vec<Short> {
    let below = seen.0.iter().filter(|(signal, left)| thresholds.crossed(**signal, **left));
    below
        .map(|(signal, seen)| Short {
            signal: *signal,
            least: thresholds.least(*signal, seen.all),
            seen: *seen,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pressure_is_said_five_minutes_longer_than_it_lasts() {
        let mut held = Held::default();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let disk = Pressure { disk: true, ..Pressure::default() };
        for (seconds, short, expected) in [
            (0, vec![], Pressure::default()),
            (10, vec![Signal::Inodes], disk),
            (20, vec![Signal::Inodes, Signal::Memory], Pressure { memory: true, ..disk }),
            (60, vec![Signal::Disk], Pressure { memory: true, ..disk }),
            (319, vec![], Pressure { memory: true, ..disk }),
            (321, vec![], disk),
            (361, vec![], Pressure::default()),
        ] {
            assert_eq!(held.update(&short, at(seconds)), expected, "{seconds}");
        }
        assert_eq!(Pressure { memory: true, ..disk }.conditions(), ["MemoryPressure", "DiskPressure"]);
    }

    #[test]
    fn memory_is_the_most_urgent() {
        let left = |left| Left { all: 1000, left };
        let seen =
            Observed([(Signal::Disk, left(5)), (Signal::Memory, left(9)), (Signal::Pids, left(900))].into());
        let thresholds = "memory.available<1%,nodefs.available<6,pid.available<10%".parse().unwrap();
        let short: Vec<(Signal, u64)> =
            short(&seen, &thresholds).iter().map(|s| (s.signal, s.least)).collect();
        assert_eq!(short, [(Signal::Memory, 10), (Signal::Disk, 6)]);
    }
}
