//! What a Job does next: which Pods it makes and removes, and whether it is at its end.
//!
//! A turn has three decisions with acts between them: [`assess`] says which Pods to make or remove; [`count`] says whose end is
//! noted in the status before their finalizers go; [`conclude`] counts those whose finalizers are gone, and ends the Job. So no
//! end of a Pod is counted twice or not at all, whatever is interrupted in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trine_typed::k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::backoff::{Backoff, finished_at};
use super::conditions::{self, FAILURE_TARGET, SUCCESS_CRITERIA, condition, find};
use super::indexes::Indexes;
use super::policy::{Meaning, enough, meaning};
use super::template::{all_failures, failures, index, is_indexed, is_tracked};
use crate::workload::ranking;
use crate::workload::readiness::{is_active, is_terminating};

/// Pods made or removed in one turn. Upstream: 500.
const BURST: usize = 500;

/// What to do about Pods.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing.
    Stay,
    /// The Job is at its end: these are stopped, and counted as they end.
    Stop(Vec<Arc<Pod>>),
    /// These are too many: they are removed and do not count.
    Remove(Vec<Arc<Pod>>),
    /// So many are made, with these indexes if they have any.
    Create(Vec<Option<i32>>),
    /// Some are missing, but their time has not come.
    Wait(Duration),
}

/// What is known of a Job at the begin of a turn, and what follows from it.
#[derive(Debug)]
pub struct Assessment {
    /// How the Job is going to end, if it is.
    pub end: Option<JobCondition>,
    /// What to do about Pods.
    pub step: Step,
    /// When the Job has to be at its end.
    pub deadline: Option<Duration>,
    /// Failures in a row, those just seen included.
    pub backoff: Backoff,
    /// Pods that succeeded, those just seen included.
    pub succeeded: i32,
    /// The indexes that had succeeded before.
    pub succeeded_before: Indexes,
    /// Those and the ones just seen.
    pub succeeded_indexes: Indexes,
    /// The indexes that have failed for good, if that is counted for each.
    pub failed_indexes: Option<Indexes>,
    /// For each index that is to be tried again, the Pod that failed last: it is kept until there is another.
    pub kept: BTreeMap<i32, Arc<Pod>>,
}

/// The specification of a Job.
pub(super) fn spec(job: &Job) -> JobSpec {
    job.spec.clone().unwrap_or_default()
}

/// Whether a Job rests.
#[must_use]
pub fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|s| s.suspend).unwrap_or_default()
}

fn replaces_only_failed(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// Whether a Pod has failed: one on its way out counts, unless the Job waits for its end.
pub(super) fn has_failed(pod: &Pod, spec: &JobSpec) -> bool {
    match pod.status.as_ref().and_then(|s| s.phase.as_deref()) {
        Some("Failed") => true,
        Some("Succeeded") => false,
        _ => !replaces_only_failed(spec) && pod.metadata.deletion_timestamp.is_some(),
    }
}

pub(super) fn has_succeeded(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Succeeded")
}

/// The index of a Pod, if it is one of the Job's.
pub(super) fn valid_index(pod: &Pod, spec: &JobSpec) -> Option<i32> {
    index(pod).filter(|index| *index < spec.completions.unwrap_or_default())
}

/// Looks at a Job and its Pods. `backoff` counts the failures in a row that were seen before.
#[must_use]
pub fn assess(job: &Job, pods: &[Arc<Pod>], backoff: Backoff, now: Timestamp) -> Assessment {
    let (spec, status) = (spec(job), job.status.clone().unwrap_or_default());
    let noted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let (noted_good, noted_bad) = (noted.succeeded.unwrap_or_default(), noted.failed.unwrap_or_default());
    let fresh = |noted: &[String], is: &dyn Fn(&Pod) -> bool| -> Vec<Arc<Pod>> {
        let of_this = |pod: &&Arc<Pod>| {
            let unknown = pod.metadata.uid.as_ref().is_none_or(|uid| !noted.contains(uid));
            is_tracked(pod) && unknown && (!is_indexed(job) || valid_index(pod, &spec).is_some()) && is(pod)
        };
        pods.iter().filter(of_this).cloned().collect()
    };
    let good = fresh(&noted_good, &has_succeeded);
    let bad = fresh(&noted_bad, &|pod| has_failed(pod, &spec));
    let policy = spec.pod_failure_policy.as_ref();
    let counted = bad.iter().filter(|pod| meaning(policy, pod) != Meaning::Ignored).count();
    let sum = |so_far: Option<i32>, fresh: usize, noted: &[String]| {
        so_far.unwrap_or_default() + i32::try_from(fresh + noted.len()).unwrap_or(i32::MAX / 2)
    };
    let failed = sum(status.failed, counted, &noted_bad);
    let mut found = Assessment {
        end: None,
        step: Step::Stay,
        deadline: deadline(job, &spec, now),
        backoff: backoff.with(&good, &bad),
        succeeded: sum(status.succeeded, good.len(), &noted_good),
        succeeded_before: Indexes::default(),
        succeeded_indexes: Indexes::default(),
        failed_indexes: None,
        kept: BTreeMap::new(),
    };
    found.end = end_so_far(job, &spec, pods, now).or_else(|| {
        let limit = "Job has reached the specified backoff limit";
        let late = "Job was active longer than specified deadline";
        let restarted = restarts_exceed(&spec, pods);
        let failure = |reason: &str, message: &str| {
            Some(condition(FAILURE_TARGET, "True", reason, message.to_owned(), now))
        };
        if failed > spec.backoff_limit.unwrap_or(6) || restarted {
            failure("BackoffLimitExceeded", limit)
        } else if found.deadline == Some(Duration::ZERO) {
            failure("DeadlineExceeded", late)
        } else {
            None
        }
    });
    if is_indexed(job) {
        look_at_indexes(&mut found, job, &spec, pods, now);
    }
    let active: Vec<Arc<Pod>> = pods.iter().filter(|pod| is_active(pod)).cloned().collect();
    found.step = if found.end.is_some() {
        Step::Stop(active)
    } else if job.metadata.deletion_timestamp.is_some() {
        Step::Stay
    } else {
        step(&found, job, &spec, pods, active, now)
    };
    found
}

/// How long the Job may still be active.
fn deadline(job: &Job, spec: &JobSpec, now: Timestamp) -> Option<Duration> {
    let allowed = spec.active_deadline_seconds.filter(|_| !is_suspended(job))?;
    let allowed = Duration::from_secs(u64::try_from(allowed).unwrap_or_default());
    let start = job.status.as_ref().and_then(|s| s.start_time.as_ref()).map_or(now, |t| t.0);
    let active = Duration::try_from(now.duration_since(start)).unwrap_or_default();
    Some(allowed.saturating_sub(active))
}

/// The end that was decided earlier, or that the failure policy demands.
fn end_so_far(job: &Job, spec: &JobSpec, pods: &[Arc<Pod>], now: Timestamp) -> Option<JobCondition> {
    let conditions = job.status.as_ref().and_then(|s| s.conditions.as_ref());
    if let Some(decided) = find(conditions, SUCCESS_CRITERIA).or_else(|| find(conditions, FAILURE_TARGET)) {
        return Some(decided.clone());
    }
    let policy = spec.pod_failure_policy.as_ref()?;
    let failed = pods.iter().filter(|pod| has_failed(pod, spec));
    failed.map(|pod| meaning(Some(policy), pod)).find_map(|meaning| match meaning {
        Meaning::FailsJob(message) => {
            Some(condition(FAILURE_TARGET, "True", "PodFailurePolicy", message, now))
        }
        _ => None,
    })
}

/// Whether containers that are started again in their Pods were so too often.
fn restarts_exceed(spec: &JobSpec, pods: &[Arc<Pod>]) -> bool {
    let policy = spec.template.spec.as_ref().and_then(|s| s.restart_policy.as_deref());
    if policy != Some("OnFailure") {
        return false;
    }
    let alive = pods
        .iter()
        .filter_map(|pod| pod.status.as_ref())
        .filter(|status| matches!(status.phase.as_deref(), Some("Running" | "Pending")));
    let restarts: i32 = alive
        .flat_map(|s| s.init_container_statuses.iter().flatten().chain(s.container_statuses.iter().flatten()))
        .map(|container| container.restart_count)
        .sum();
    let limit = spec.backoff_limit.unwrap_or(6);
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

/// What a Job whose Pods have indexes has to look at besides.
fn look_at_indexes(found: &mut Assessment, job: &Job, spec: &JobSpec, pods: &[Arc<Pod>], now: Timestamp) {
    let completions = spec.completions.unwrap_or_default();
    let status = job.status.clone().unwrap_or_default();
    let of = |is: &dyn Fn(&Pod) -> bool| {
        let uncounted = pods.iter().filter(|pod| is_tracked(pod) && is(pod));
        Indexes::of(uncounted.filter_map(|pod| valid_index(pod, spec)))
    };
    found.succeeded_before =
        Indexes::parse(status.completed_indexes.as_deref().unwrap_or_default(), completions);
    found.succeeded_indexes = found.succeeded_before.with(&of(&has_succeeded));
    found.succeeded = found.succeeded_indexes.count();
    if let Some(limit) = spec.backoff_limit_per_index {
        let before = Indexes::parse(status.failed_indexes.as_deref().unwrap_or_default(), completions);
        let failed = before.with(&of(&|pod| index_has_failed(pod, spec, limit)));
        let done = failed.count() + found.succeeded_indexes.count();
        let failure = |reason: &str, message: &str| {
            Some(condition(FAILURE_TARGET, "True", reason, message.to_owned(), now))
        };
        if found.end.is_none() {
            if spec.max_failed_indexes.is_some_and(|max| failed.count() > max) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                found.end = failure("MaxFailedIndexesExceeded", message);
            } else if failed.count() > 0 && done >= completions {
                found.end = failure("FailedIndexes", "Job has failed indexes");
            }
        }
        found.kept = kept(&found.succeeded_indexes.with(&failed), spec, pods);
        found.failed_indexes = Some(failed);
    }
    if found.end.is_none() {
        let met = enough(spec.success_policy.as_ref(), completions, &found.succeeded_indexes);
        found.end = met.map(|message| condition(SUCCESS_CRITERIA, "True", "SuccessPolicy", message, now));
    }
}

fn index_has_failed(pod: &Pod, spec: &JobSpec, limit: i32) -> bool {
    has_failed(pod, spec)
        && match meaning(spec.pod_failure_policy.as_ref(), pod) {
            Meaning::FailsIndex => true,
            Meaning::Ignored => false,
            _ => i64::from(failures(pod)) >= i64::from(limit),
        }
}

/// The Pods that failed last, of indexes that are neither done nor tried again already.
fn kept(done: &Indexes, spec: &JobSpec, pods: &[Arc<Pod>]) -> BTreeMap<i32, Arc<Pod>> {
    let active = Indexes::of(pods.iter().filter(|pod| is_active(pod)).filter_map(|pod| index(pod)));
    let mut kept: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_tracked(pod) && has_failed(pod, spec)) {
        let Some(index) = valid_index(pod, spec).filter(|i| !done.has(*i) && !active.has(*i)) else {
            continue;
        };
        let later = kept.get(&index).is_none_or(|other| {
            all_failures(other) <= all_failures(pod) && finished_at(other) <= finished_at(pod)
        });
        if later {
            kept.insert(index, Arc::clone(pod));
        }
    }
    kept
}

/// What a Job that goes on does about its Pods.
fn step(
    found: &Assessment,
    job: &Job,
    spec: &JobSpec,
    pods: &[Arc<Pod>],
    active: Vec<Arc<Pod>>,
    now: Timestamp,
) -> Step {
    if is_suspended(job) {
        return if active.is_empty() { Step::Stay } else { Step::Remove(active) };
    }
    let size = |pods: &[Arc<Pod>]| i32::try_from(pods.len()).unwrap_or(i32::MAX / 2);
    let parallelism = spec.parallelism.unwrap_or(1);
    let wanted = match spec.completions {
        Some(completions) => (completions - found.succeeded).clamp(0, parallelism),
        // One success is enough; what runs may end.
        None if found.succeeded > 0 => size(&active),
        None => parallelism,
    };
    let least = usize::try_from(size(&active) - wanted).unwrap_or_default();
    let mut extra = superfluous(job, spec, active.clone(), least, now);
    if !extra.is_empty() {
        extra.truncate(BURST);
        return Step::Remove(extra);
    }
    let ending: Vec<Arc<Pod>> = if replaces_only_failed(spec) {
        pods.iter().filter(|pod| is_terminating(pod)).cloned().collect()
    } else {
        Vec::new()
    };
    let Ok(missing) = usize::try_from(wanted - size(&ending) - size(&active)) else { return Step::Stay };
    let missing = missing.min(BURST);
    if missing == 0 {
        return Step::Stay;
    }
    let per_index = spec.backoff_limit_per_index.is_some();
    let left = found.backoff.left(now);
    if !per_index && !left.is_zero() {
        return Step::Wait(left);
    }
    if !is_indexed(job) {
        return Step::Create(vec![None; missing]);
    }
    let busy = Indexes::of(active.iter().chain(&ending).filter_map(|pod| index(pod)));
    let busy = busy.with(&found.succeeded_indexes).with(&found.failed_indexes.clone().unwrap_or_default());
    let free = busy.free(spec.completions.unwrap_or_default(), missing);
    let wait = |index: &i32| {
        found.kept.get(index).map_or(Duration::ZERO, |failed| {
            let failures = all_failures(failed).saturating_add(1);
            Backoff { failures, last: Some(finished_at(failed)) }.left(now)
        })
    };
    let due: Vec<Option<i32>> = free.iter().filter(|i| wait(i).is_zero()).map(|i| Some(*i)).collect();
    match free.iter().map(wait).min() {
        None => Step::Stay,
        Some(wait) if due.is_empty() => Step::Wait(wait),
        Some(_) => Step::Create(due),
    }
}

/// Pods to remove: `least` of them, and all whose index is none of the Job's or has another Pod.
fn superfluous(
    job: &Job,
    spec: &JobSpec,
    active: Vec<Arc<Pod>>,
    least: usize,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    let (mut extra, mut left) = (Vec::new(), active);
    // What is to go first is first.
    ranking::sort(&mut left, &BTreeMap::new(), now);
    if is_indexed(job) {
        let mut seen = std::collections::BTreeSet::new();
        let (mut unique, mut doubled) = (Vec::new(), Vec::new());
        for pod in left.into_iter().rev() {
            let first = valid_index(&pod, spec).is_some_and(|index| seen.insert(index));
            if first { unique.push(pod) } else { doubled.push(pod) }
        }
        unique.reverse();
        (extra, left) = (doubled, unique);
    }
    let more = least.saturating_sub(extra.len());
    extra.extend(left.into_iter().take(more));
    extra
}

/// Whether a Job that goes on has reached what it was made for.
#[must_use]
pub fn reached(job: &Job, succeeded: i32, active: usize, now: Timestamp) -> Option<JobCondition> {
    let enough = match spec(job).completions {
        Some(completions) => succeeded >= completions,
        None => succeeded > 0,
    };
    (enough && active == 0).then(|| {
        let message = "Reached expected number of succeeded pods".to_owned();
        condition(SUCCESS_CRITERIA, "True", "CompletionsReached", message, now)
    })
}

pub use super::counting::{Count, conclude, count};
pub use conditions::is_finished;
