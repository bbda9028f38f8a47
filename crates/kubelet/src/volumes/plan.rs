//! Which operations are due. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::model::{Actual, Certainty, Desired, DeviceKey, Lock, MountKey, Resolved, Wanted};
use super::source::Source;

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Find the PV of a claim, or the driver of an inline volume.
    Resolve {
        /// The Pod.
        uid: String,
        /// The volume's name in it.
        volume: String,
    },
    /// Wait until the volume is attached to this node.
    WaitForAttach {
        /// The Pod that asks.
        uid: String,
        /// What is waited for.
        resolved: Resolved,
    },
    /// NodeStageVolume.
    Stage {
        /// The Pod that asks.
        uid: String,
        /// What to stage.
        resolved: Resolved,
    },
    /// NodePublishVolume.
    Publish {
        /// For which Pod, where.
        key: MountKey,
        /// The volume's name in it.
        volume: String,
        /// What to publish.
        resolved: Resolved,
    },
    /// Say that another Pod has what one Pod alone may use.
    Refuse {
        /// For which Pod, where.
        key: MountKey,
        /// What it does not get.
        resolved: Resolved,
    },
    /// Make a local volume, or look at its files again.
    SetUp {
        /// For which Pod, where.
        key: MountKey,
        /// The volume's name in it.
        volume: String,
    },
    /// Take a Pod's volume down.
    TearDown {
        /// Which.
        key: MountKey,
    },
    /// NodeUnstageVolume.
    Unstage {
        /// Which.
        key: DeviceKey,
    },
}

impl Operation {
    /// What it locks.
    #[must_use]
    pub fn lock(&self) -> Lock {
        match self {
            Self::Resolve { uid, volume } => Lock::Claim(uid.clone(), volume.clone()),
            Self::WaitForAttach { resolved, .. } | Self::Stage { resolved, .. } => {
                Lock::Device(resolved.device())
            }
            Self::Publish { key, .. }
            | Self::Refuse { key, .. }
            | Self::SetUp { key, .. }
            | Self::TearDown { key } => Lock::Mount(key.clone()),
            Self::Unstage { key } => Lock::Device(key.clone()),
        }
    }

    /// The Pod that waits for its end, if it is one alone.
    #[must_use]
    pub fn uid(&self) -> Option<String> {
        match self {
            Self::Resolve { uid, .. } => Some(uid.clone()),
            Self::Publish { key, .. }
            | Self::Refuse { key, .. }
            | Self::SetUp { key, .. }
            | Self::TearDown { key } => Some(key.uid.clone()),
            _ => None,
        }
    }
}

/// What runs or waits.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// Locks of operations that run.
    pub running: BTreeSet<Lock>,
    /// Locks that wait until a time.
    pub waiting: BTreeMap<Lock, Timestamp>,
}

/// The operations to start now. Of those that lock the same, only the first is in it.
#[must_use]
pub fn plan(desired: &Desired, actual: &Actual, held: &Held, now: Timestamp) -> Vec<Operation> {
    let mut taken = held.running.clone();
    taken.extend(held.waiting.iter().filter(|(_, until)| **until > now).map(|(lock, _)| lock.clone()));
    let mut operations = Vec::new();
    let mut add = |operation: Operation| {
        if taken.insert(operation.lock()) {
            operations.push(operation);
        }
    };
    if desired.complete {
        for operation in downward(desired, actual) {
            add(operation);
        }
    }
    let mut alone = BTreeSet::new();
    for (uid, volumes) in &desired.pods {
        for wanted in volumes {
            match upward(uid, wanted, actual, held) {
                // Of two Pods that come at once the other one is refused next time.
                Some(Operation::Publish { resolved, .. })
                    if resolved.is_for_one_pod() && !alone.insert(resolved.device()) => {}
                Some(operation) => add(operation),
                None => {}
            }
        }
    }
    operations
}

fn upward(uid: &str, wanted: &Wanted, actual: &Actual, held: &Held) -> Option<Operation> {
    let volume = wanted.volume.clone();
    let Some(key) = wanted.key(uid) else {
        return Some(Operation::Resolve { uid: uid.to_owned(), volume });
    };
    let sure = actual.mounts.get(&key).is_some_and(|m| m.certainty == Certainty::Sure);
    match (&wanted.resolved, wanted.source) {
        (_, Source::Unsupported) => None,
        (None, Source::Inline) => Some(Operation::Resolve { uid: uid.to_owned(), volume }),
        (Some(resolved), Source::Inline) => {
            let due = !sure || (wanted.stale && resolved.republish);
            due.then(|| Operation::Publish { key, volume, resolved: resolved.clone() })
        }
        (Some(resolved), Source::Claim) => {
            if sure {
                let again = wanted.stale && resolved.republish;
                return again.then(|| Operation::Publish { key, volume, resolved: resolved.clone() });
            }
            let device = resolved.device();
            if resolved.is_for_one_pod() && has_another(actual, &device, uid) {
                return Some(Operation::Refuse { key, resolved: resolved.clone() });
            }
            let uid = uid.to_owned();
            let resolved = resolved.clone();
            if resolved.attach && !actual.attached.contains_key(&device) {
                return Some(Operation::WaitForAttach { uid, resolved });
            }
            if actual.devices.get(&device).is_none_or(|d| d.certainty == Certainty::Uncertain) {
                return Some(Operation::Stage { uid, resolved });
            }
            // Not while it is being unstaged.
            (!held.running.contains(&Lock::Device(device))).then_some(Operation::Publish {
                key,
                volume,
                resolved,
            })
        }
        _ => (!sure || wanted.stale).then_some(Operation::SetUp { key, volume }),
    }
}

/// Whether another Pod has, or may have, a driver's volume.
fn has_another(actual: &Actual, device: &DeviceKey, uid: &str) -> bool {
    actual.mounts.iter().any(|(key, mount)| key.uid != uid && mount.device.as_ref() == Some(device))
}

fn downward(desired: &Desired, actual: &Actual) -> Vec<Operation> {
    let mut wanted_mounts = BTreeSet::new();
    let mut wanted_devices = BTreeSet::new();
    let mut unresolved = BTreeSet::new();
    for (uid, volumes) in &desired.pods {
        for wanted in volumes {
            match wanted.key(uid) {
                Some(key) => drop(wanted_mounts.insert(key)),
                None => drop(unresolved.insert(uid.as_str())),
            }
            wanted_devices.extend(wanted.resolved.as_ref().map(Resolved::device));
        }
    }
    let mut operations = Vec::new();
    for key in actual.mounts.keys().filter(|key| !wanted_mounts.contains(*key)) {
        // A claim that is still looked up may turn out to be this very mount.
        let maybe = key.plugin == super::paths::CSI && unresolved.contains(key.uid.as_str());
        if !maybe && !desired.held.contains(&key.uid) {
            operations.push(Operation::TearDown { key: key.clone() });
        }
    }
    let mounted: BTreeSet<_> = actual.mounts.values().filter_map(|m| m.device.as_ref()).collect();
    for key in actual.devices.keys() {
        if !wanted_devices.contains(key) && !mounted.contains(key) {
            operations.push(Operation::Unstage { key: key.clone() });
        }
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::model::{Device, Mount};

    fn resolved() -> Resolved {
        Resolved {
            pv: "pv".into(),
            driver: "d".into(),
            handle: "h".into(),
            attach: true,
            ..Default::default()
        }
    }

    fn claim(resolved: Option<Resolved>) -> Wanted {
        Wanted { volume: "data".into(), source: Source::Claim, resolved, stale: false }
    }

    fn empty_dir(stale: bool) -> Wanted {
        Wanted { volume: "tmp".into(), source: Source::EmptyDir, resolved: None, stale }
    }

    fn desired(volumes: Vec<Wanted>) -> Desired {
        Desired { pods: BTreeMap::from([("u".to_owned(), volumes)]), complete: true, ..Default::default() }
    }

    fn actual(attached: bool, staged: Option<Certainty>, mounted: Option<Certainty>) -> Actual {
        let mut actual = Actual::default();
        let key = resolved().device();
        if attached {
            actual.attached.insert(key.clone(), BTreeMap::new());
        }
        if let Some(certainty) = staged {
            let device = Device { certainty, path: "/s".into(), pv: "pv".into(), block: false, attach: true };
            actual.devices.insert(key.clone(), device);
        }
        if let Some(certainty) = mounted {
            let mount = Mount { certainty, device: Some(key), host_path: "/m".into() };
            actual.mounts.insert(claim(Some(resolved())).key("u").unwrap(), mount);
        }
        actual
    }

    fn short(operations: &[Operation]) -> Vec<&'static str> {
        let name = |o: &Operation| match o {
            Operation::Resolve { .. } => "resolve",
            Operation::WaitForAttach { .. } => "attach",
            Operation::Stage { .. } => "stage",
            Operation::Publish { .. } => "publish",
            Operation::Refuse { .. } => "refuse",
            Operation::SetUp { .. } => "set up",
            Operation::TearDown { .. } => "tear down",
            Operation::Unstage { .. } => "unstage",
        };
        operations.iter().map(name).collect()
    }

    #[test]
    fn a_claim_goes_up_step_by_step_and_comes_down_in_reverse() {
        use Certainty::{Sure, Uncertain};
        let up = |r: bool| desired(vec![claim(r.then(resolved))]);
        let gone = || Desired { complete: true, ..Default::default() };
        let rows: Vec<(&str, Desired, Actual, &[&str])> = vec![
            ("unresolved", up(false), actual(false, None, None), &["resolve"]),
            ("not attached", up(true), actual(false, None, None), &["attach"]),
            ("not staged", up(true), actual(true, None, None), &["stage"]),
            ("staged perhaps", up(true), actual(true, Some(Uncertain), None), &["stage"]),
            ("not published", up(true), actual(true, Some(Sure), None), &["publish"]),
            ("published perhaps", up(true), actual(true, Some(Sure), Some(Uncertain)), &["publish"]),
            ("done", up(true), actual(true, Some(Sure), Some(Sure)), &[]),
            ("after a restart", up(true), actual(false, Some(Uncertain), Some(Uncertain)), &["attach"]),
            (
                "after a restart, unresolved",
                up(false),
                actual(false, Some(Uncertain), Some(Uncertain)),
                &["resolve"],
            ),
            ("gone, mounted", gone(), actual(true, Some(Sure), Some(Sure)), &["tear down"]),
            ("gone, perhaps mounted", gone(), actual(true, Some(Sure), Some(Uncertain)), &["tear down"]),
            ("gone, staged", gone(), actual(true, Some(Sure), None), &["unstage"]),
            ("gone, perhaps staged", gone(), actual(false, Some(Uncertain), None), &["unstage"]),
            ("gone, nothing left", gone(), actual(true, None, None), &[]),
            (
                "gone, but it may still run",
                Desired { held: BTreeSet::from(["u".to_owned()]), ..gone() },
                actual(true, Some(Sure), Some(Sure)),
                &[],
            ),
            ("not all Pods known yet", Desired::default(), actual(true, Some(Sure), Some(Sure)), &[]),
        ];
        for (name, desired, actual, expected) in rows {
            assert_eq!(short(&plan(&desired, &actual, &Held::default(), at(0))), *expected, "{name}");
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn local_volumes_are_set_up_and_looked_at_again_when_stale() {
        let none = Actual::default();
        assert_eq!(
            short(&plan(&desired(vec![empty_dir(false)]), &none, &Held::default(), at(0))),
            ["set up"]
        );
        let mut there = Actual::default();
        let mount = Mount { certainty: Certainty::Sure, device: None, host_path: "/m".into() };
        there.mounts.insert(empty_dir(false).key("u").unwrap(), mount);
        assert!(plan(&desired(vec![empty_dir(false)]), &there, &Held::default(), at(0)).is_empty());
        assert_eq!(
            short(&plan(&desired(vec![empty_dir(true)]), &there, &Held::default(), at(0))),
            ["set up"]
        );
    }

    #[test]
    fn what_runs_or_waits_is_not_started_again() {
        let desired = desired(vec![claim(Some(resolved())), empty_dir(false)]);
        let actual = actual(true, None, None);
        let lock = Lock::Device(resolved().device());
        let mut held = Held::default();
        held.running.insert(lock.clone());
        assert_eq!(short(&plan(&desired, &actual, &held, at(0))), ["set up"]);
        let mut held = Held::default();
        held.waiting.insert(lock, at(5));
        assert_eq!(short(&plan(&desired, &actual, &held, at(4))), ["set up"]);
        assert_eq!(short(&plan(&desired, &actual, &held, at(5))), ["stage", "set up"]);
    }

    #[test]
    fn a_device_that_another_pod_uses_stays_staged() {
        let mut desired = desired(vec![claim(Some(resolved()))]);
        let other = desired.pods.remove("u").unwrap();
        desired.pods.insert("other".into(), other);
        let actual = actual(true, Some(Certainty::Sure), Some(Certainty::Sure));
        assert_eq!(short(&plan(&desired, &actual, &Held::default(), at(0))), ["tear down", "publish"]);
    }

    #[test]
    fn volumes_are_in_use_as_soon_as_they_are_wanted_and_until_they_are_unstaged() {
        use crate::volumes::model::in_use;
        let name = "kubernetes.io/csi/d^h".to_owned();
        let rows = [
            ("wanted", desired(vec![claim(Some(resolved()))]), Actual::default(), true),
            ("staged", Desired::default(), actual(false, Some(Certainty::Uncertain), None), true),
            ("attached only", Desired::default(), actual(true, None, None), false),
        ];
        for (row, desired, actual, expected) in rows {
            assert_eq!(in_use(&desired, &actual).contains(&name), expected, "{row}");
        }
    }

    #[test]
    fn an_inline_volume_is_published_without_more_and_again_where_its_driver_asks() {
        let volume = |republish, stale| {
            let resolved =
                Resolved { pv: "tmp".into(), inline: true, republish, attach: false, ..resolved() };
            Wanted { volume: "tmp".into(), source: Source::Inline, resolved: Some(resolved), stale }
        };
        let unknown = Wanted { resolved: None, ..volume(false, false) };
        let key = unknown.key("u").unwrap();
        let mount = Mount { certainty: Certainty::Sure, device: None, host_path: "/m".into() };
        let up = Actual { mounts: BTreeMap::from([(key, mount)]), ..Default::default() };
        for (name, wanted, actual, expected) in [
            ("not looked up yet", &unknown, &Actual::default(), vec!["resolve"]),
            ("known", &volume(false, false), &Actual::default(), vec!["publish"]),
            ("there", &volume(true, false), &up, vec![]),
            ("there, to be published again", &volume(true, true), &up, vec!["publish"]),
            ("there, stale for nobody", &volume(false, true), &up, vec![]),
        ] {
            let now = Timestamp::from_second(0).unwrap();
            let operations = plan(&desired(vec![wanted.clone()]), actual, &Held::default(), now);
            assert_eq!(short(&operations), expected, "{name}");
        }
    }

    #[test]
    fn what_one_pod_alone_may_use_is_refused_to_another_until_it_is_gone() {
        use Certainty::{Sure, Uncertain};
        let of = |modes: &[&str]| {
            let access_modes = modes.iter().map(|mode| (*mode).to_owned()).collect();
            claim(Some(Resolved { access_modes, ..resolved() }))
        };
        let two = |wanted: Wanted| Desired {
            pods: BTreeMap::from([("u".to_owned(), vec![wanted.clone()]), ("w".to_owned(), vec![wanted])]),
            complete: true,
            ..Default::default()
        };
        let one = of(&["ReadWriteOncePod"]);
        let both = of(&["ReadWriteOncePod", "ReadWriteOnce"]);
        let rows = [
            ("the first has it", &one, actual(true, Some(Sure), Some(Sure)), vec!["refuse"]),
            ("it has it perhaps", &one, actual(true, Some(Sure), Some(Uncertain)), vec!["publish", "refuse"]),
            (
                "after a restart",
                &one,
                actual(false, Some(Uncertain), Some(Uncertain)),
                vec!["attach", "refuse"],
            ),
            ("both come at once", &one, actual(true, Some(Sure), None), vec!["publish"]),
            ("another mode may be meant", &both, actual(true, Some(Sure), Some(Sure)), vec!["publish"]),
            (
                "any Pods of the node",
                &of(&["ReadWriteOnce"]),
                actual(true, Some(Sure), None),
                vec!["publish"; 2],
            ),
        ];
        let now = Timestamp::from_second(0).unwrap();
        for (row, wanted, actual, expected) in rows {
            let operations = plan(&two(wanted.clone()), &actual, &Held::default(), now);
            assert_eq!(short(&operations), expected, "{row}");
        }
        let gone = Desired {
            pods: BTreeMap::from([("w".to_owned(), vec![one])]),
            complete: true,
            ..Default::default()
        };
        let operations = plan(&gone, &actual(true, Some(Sure), Some(Sure)), &Held::default(), now);
        assert_eq!(short(&operations), ["tear down", "refuse"], "the first ends");
        let operations = plan(&gone, &actual(true, Some(Sure), None), &Held::default(), now);
        assert_eq!(short(&operations), ["publish"], "it has ended");
    }
}
