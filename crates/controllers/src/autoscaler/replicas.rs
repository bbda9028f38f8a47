//! How many Pods a metric asks for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::jiff::Timestamp;

use crate::workload::readiness::is_ready;

/// How long after its start a Pod's CPU usage says nothing about its work. Upstream: 5 min.
const WARM_UP: Duration = Duration::from_secs(300);
/// How long a Pod may take until it is first ready. Upstream: 30 s.
const FIRST_READINESS: Duration = Duration::from_secs(30);

/// What was measured of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Thousandths of the unit.
    pub milli: i64,
    /// When.
    pub at: Timestamp,
    /// Over how long.
    pub window: Duration,
}

/// What the Pods of a set are to have on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// This share of what they request, percent.
    Utilization(i32),
    /// So many thousandths of the unit.
    Average(i64),
}

/// Within which shares of the target nothing is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Above it. Upstream: 0.1.
    pub up: f64,
    /// Below it.
    pub down: f64,
}

impl Tolerance {
    fn covers(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// What a metric asks for, and what it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal {
    /// Pods.
    pub replicas: i32,
    /// The share of what they request, if the target is one.
    pub utilization: Option<i32>,
    /// The average (or the whole, of what is not of Pods), thousandths of the unit.
    pub milli: i64,
}

/// What is asked about the Pods of a target.
pub struct Question<'a> {
    /// The Pods that it selects.
    pub pods: &'a [Arc<Pod>],
    /// What they request, thousandths of the unit; empty if that does not matter.
    pub requests: &'a BTreeMap<String, i64>,
    /// Whether it is CPU that was measured.
    pub is_cpu: bool,
    /// How many are wanted now.
    pub current: i32,
    /// Within which shares nothing is done.
    pub tolerance: Tolerance,
    /// The time.
    pub now: Timestamp,
}

/// The Pods whose samples count, and the names of those whose do not.
struct Groups {
    ready: usize,
    unready: Vec<String>,
    missing: Vec<String>,
}

/// How many Pods a metric that was measured of each of them asks for.
///
/// # Errors
/// Why it cannot be said, in upstream's words.
pub fn of_pods(
    question: &Question,
    mut samples: BTreeMap<String, Sample>,
    target: Target,
) -> Result<Proposal, String> {
    if question.pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let groups = group(question, &mut samples);
    let mut values: BTreeMap<String, i64> = samples.into_iter().map(|(name, s)| (name, s.milli)).collect();
    if values.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let (ratio, utilization, milli) = ratio(&values, question.requests, target)?;
    let proposal = |replicas: i32| Ok(Proposal { replicas, utilization, milli });
    let up_beside_unready = !groups.unready.is_empty() && ratio > 1.0;
    if !up_beside_unready && groups.missing.is_empty() {
        return proposal(if question.tolerance.covers(ratio) {
            question.current
        } else {
            ceil(ratio * to_float(groups.ready))
        });
    }
    // What is not known speaks against any change.
    for name in &groups.missing {
        let fill = match target {
            _ if ratio > 1.0 => 0,
            Target::Average(milli) => milli,
            Target::Utilization(percent) => {
                question.requests.get(name).copied().unwrap_or_default() * i64::from(percent.max(100)) / 100
            }
        };
        if (ratio - 1.0).abs() > f64::EPSILON {
            values.insert(name.clone(), fill);
        }
    }
    if up_beside_unready {
        values.extend(groups.unready.iter().map(|name| (name.clone(), 0)));
    }
    let (again, ..) = self::ratio(&values, question.requests, target)?;
    let turns = (ratio < 1.0 && again > 1.0) || (ratio > 1.0 && again < 1.0);
    let replicas = ceil(again * to_float(values.len()));
    let against =
        (again < 1.0 && replicas > question.current) || (again > 1.0 && replicas < question.current);
    proposal(if question.tolerance.covers(again) || turns || against { question.current } else { replicas })
}

/// Sorts out Pods, and drops the samples of those that do not count.
fn group(question: &Question, samples: &mut BTreeMap<String, Sample>) -> Groups {
    let mut groups = Groups { ready: 0, unready: Vec::new(), missing: Vec::new() };
    for pod in question.pods {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        if pod.metadata.deletion_timestamp.is_some() || phase == Some("Failed") {
            samples.remove(&name);
        } else if phase == Some("Pending") {
            samples.remove(&name);
            groups.unready.push(name);
        } else {
            match samples.get(&name) {
                None => groups.missing.push(name),
                Some(sample) if question.is_cpu && is_unready(pod, sample, question.now) => {
                    samples.remove(&name);
                    groups.unready.push(name);
                }
                Some(_) => groups.ready += 1,
            }
        }
    }
    groups
}

/// Whether the CPU usage of a Pod says nothing yet: it is not ready, or was not for the whole of the measurement while it warmed
/// up, or has never been ready.
fn is_unready(pod: &Pod, sample: &Sample, now: Timestamp) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready");
    let (Some(ready), Some(start)) = (ready, status.start_time.map(|t| t.0)) else { return true };
    let since = ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    let is_false = ready.status == "False";
    let after = |time: Timestamp, wait: Duration| time.checked_add(wait).unwrap_or(Timestamp::MAX);
    if after(start, WARM_UP) > now {
        is_false || sample.at < after(since, sample.window)
    } else {
        is_false && after(start, FIRST_READINESS) > since
    }
}

/// How many times the target the values are on average; what share of what was requested they are; and their average.
fn ratio(
    values: &BTreeMap<String, i64>,
    requests: &BTreeMap<String, i64>,
    target: Target,
) -> Result<(f64, Option<i32>, i64), String> {
    let number = i64::try_from(values.len()).unwrap_or(i64::MAX).max(1);
    match target {
        Target::Average(target) => {
            let average = values.values().sum::<i64>() / number;
            Ok((quotient(average, target), None, average))
        }
        Target::Utilization(target) => {
            let known: Vec<(i64, i64)> =
                values.iter().filter_map(|(name, value)| Some((*value, *requests.get(name)?))).collect();
            let (used, requested): (i64, i64) =
                known.iter().fold((0, 0), |(u, r), (value, request)| (u + value, r + request));
            if requested == 0 {
                return Err("no metrics returned matched known pods".to_owned());
            }
            let utilization = i32::try_from(used * 100 / requested).unwrap_or(i32::MAX);
            let average = used / i64::try_from(known.len()).unwrap_or(i64::MAX).max(1);
            Ok((f64::from(utilization) / f64::from(target), Some(utilization), average))
        }
    }
}

/// How many Pods a value that is not of Pods asks for, which is to be `target` in all.
///
/// # Errors
/// If there are no Pods to compare with.
pub fn of_value(question: &Question, value: i64, target: i64) -> Result<Proposal, String> {
    let ratio = quotient(value, target);
    let replicas = if question.current == 0 {
        ceil(ratio)
    } else if question.tolerance.covers(ratio) {
        question.current
    } else if question.pods.is_empty() {
        return Err(
            "unable to calculate ready pods: no pods returned by selector while calculating replica count"
                .to_owned(),
        );
    } else {
        let runs = |pod: &&Arc<Pod>| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        ceil(ratio * to_float(question.pods.iter().filter(runs).filter(|pod| is_ready(pod)).count()))
    };
    Ok(Proposal { replicas, utilization: None, milli: value })
}

/// How many Pods a value that is not of Pods asks for, of which each is to have `target`; `actual` are there.
#[must_use]
pub fn of_share(question: &Question, value: i64, target: i64, actual: i32) -> Proposal {
    let ratio = quotient(value, target) / f64::from(actual);
    let replicas = if question.tolerance.covers(ratio) { actual } else { ceil(quotient(value, target)) };
    let milli = if actual > 0 { (value + i64::from(actual) - 1) / i64::from(actual) } else { value };
    Proposal { replicas, utilization: None, milli }
}

// Counts of Pods and thousandths of units are far below what a float tells apart.
#[allow(clippy::cast_precision_loss)]
fn to_float(count: usize) -> f64 {
    count as f64
}

#[allow(clippy::cast_precision_loss)]
fn quotient(a: i64, b: i64) -> f64 {
    a as f64 / b as f64
}

/// The whole number from above, within what a count can be.
#[allow(clippy::cast_possible_truncation)]
fn ceil(number: f64) -> i32 {
    number.ceil().min(f64::from(i32::MAX)) as i32
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    /// Pods as words: letter and usage in milli: `r100` ready, `n100` not ready, `p` pending, `-` on its way out, `m` without sample,
    /// `w100` just warming up.
    fn world(text: &str) -> (Vec<Arc<Pod>>, BTreeMap<String, Sample>) {
        let (mut pods, mut samples) = (Vec::new(), BTreeMap::new());
        for (i, word) in text.split_whitespace().enumerate() {
            let (letter, milli) = word.split_at(1);
            let name = format!("p{i}");
            let ready = if letter == "n" { "False" } else { "True" };
            let (start, since) = match letter {
                "w" => ("2026-01-01T11:59:00Z", "2026-01-01T11:59:50Z"),
                "n" => ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
                _ => ("2026-01-01T10:00:00Z", "2026-01-01T10:00:05Z"),
            };
            let phase = if letter == "p" { "Pending" } else { "Running" };
            let going = (letter == "-").then_some("2026-01-01T11:00:00Z");
            pods.push(Arc::new(
                serde_json::from_value(json!({"metadata": {"name": name, "deletionTimestamp": going}, "status": {"phase": phase,
                    "startTime": start, "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}]}}))
                .unwrap(),
            ));
            if let Ok(milli) = milli.parse() {
                samples.insert(name, Sample { milli, at: now(), window: Duration::from_secs(30) });
            }
        }
        (pods, samples)
    }

    fn asked(text: &str, current: i32, target: Target) -> Result<Proposal, String> {
        let (pods, samples) = world(text);
        let requests = pods.iter().map(|pod| (pod.metadata.name.clone().unwrap(), 1000)).collect();
        let tolerance = Tolerance { up: 0.1, down: 0.1 };
        let question =
            Question { pods: &pods, requests: &requests, is_cpu: true, current, tolerance, now: now() };
        of_pods(&question, samples, target)
    }

    #[test]
    fn as_many_pods_as_bring_the_average_to_the_target() {
        // Usage of Pods that request 1000 each, how many are wanted, the target in percent, and how many it asks for.
        let rows = [
            ("up", "r300 r500 r700", 3, 30, 5),
            ("down", "r100 r300 r500 r250 r250", 5, 50, 3),
            ("within the tolerance", "r1010 r1030 r1020", 3, 100, 3),
            ("just outside", "r1120 r1120", 2, 100, 3),
            ("one that is not ready says nothing", "n100 r500 r700", 3, 30, 4),
            ("one that warms up says nothing", "w3000 r500 r700", 3, 30, 4),
            ("pending ones count as idle on the way up", "p p r900", 3, 30, 3),
            ("missing ones count as idle on the way up", "m r500 r700", 3, 30, 4),
            ("missing ones count as busy on the way down", "m r100 r100", 3, 50, 3),
            ("what goes does not count", "-900 r300 r300", 2, 60, 1),
            ("never up by missing ones alone", "m m r400", 2, 30, 2),
        ];
        for (name, text, current, percent, expected) in rows {
            let found = asked(text, current, Target::Utilization(percent));
            assert_eq!(found.map(|p| p.replicas), Ok(expected), "{name}");
        }
        let plain = asked("r300 r500 r700", 3, Target::Average(300)).unwrap();
        assert_eq!(plain, Proposal { replicas: 5, utilization: None, milli: 500 });
        let shown = asked("r300 r500", 2, Target::Utilization(40)).unwrap();
        assert_eq!((shown.utilization, shown.milli), (Some(40), 400));
    }

    #[test]
    fn what_is_not_measured_is_said() {
        let said = |text: &str| asked(text, 1, Target::Utilization(50)).unwrap_err();
        assert_eq!(said(""), "no pods returned by selector while calculating replica count");
        assert_eq!(said("m n500"), "did not receive metrics for targeted pods (pods might be unready)");
    }

    #[test]
    fn a_value_that_is_not_of_pods_asks_for_pods_by_its_whole_or_its_share() {
        let (pods, _) = world("r0 r0 n0");
        let (requests, tolerance) = (BTreeMap::new(), Tolerance { up: 0.1, down: 0.1 });
        let question = |current: i32| Question {
            pods: &pods,
            requests: &requests,
            is_cpu: false,
            current,
            tolerance,
            now: now(),
        };
        assert_eq!(of_value(&question(3), 30_000, 10_000).unwrap().replicas, 6, "of those that are ready");
        assert_eq!(of_value(&question(3), 10_500, 10_000).unwrap().replicas, 3);
        assert_eq!(of_value(&question(0), 15_000, 10_000).unwrap().replicas, 2, "from none");
        let share = of_share(&question(3), 30_000, 5_000, 3);
        assert_eq!((share.replicas, share.milli), (6, 10_000));
        assert_eq!(of_share(&question(3), 15_500, 5_000, 3).replicas, 3);
    }
}
