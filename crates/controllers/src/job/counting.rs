//! Counting the ends of a Job's Pods, each once.
//!
//! A Pod whose end is to be counted has a finalizer. First its UID is noted in the status, then the finalizer goes, then the UID
//! moves into the number. An index that succeeded is noted by itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::conditions::{COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA, condition, find, set};
use super::indexes::Indexes;
use super::plan::{Assessment, has_failed, has_succeeded, spec, valid_index};
use super::policy::{Meaning, meaning};
use super::template::{is_indexed, is_tracked};

/// The most ends that are noted at a time. Upstream: 500.
const NOTED_MAX: usize = 500;

/// What is noted before finalizers go.
#[derive(Debug)]
pub struct Count {
    /// The status with it.
    pub status: JobStatus,
    /// The Pods whose finalizers go then.
    pub release: Vec<Arc<Pod>>,
    /// The condition that will end the Job.
    pub end: Option<JobCondition>,
    /// Whether there is more to note next time.
    pub more: bool,
}

/// Notes the ends of Pods. `status` is what else is to be said; `end` is how the Job is going to end.
#[must_use]
pub fn count(
    job: &Job,
    mut status: JobStatus,
    pods: &[Arc<Pod>],
    found: &Assessment,
    end: Option<JobCondition>,
    now: Timestamp,
) -> Count {
    let spec = spec(job);
    let held: BTreeSet<&str> = held(pods).collect();
    let mut noted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let good = noted.succeeded.get_or_insert_default();
    let bad = noted.failed.get_or_insert_default();
    settle(&mut status.succeeded, good, &held);
    settle(&mut status.failed, bad, &held);
    let failing = end.as_ref().is_some_and(|end| end.type_ != SUCCESS_CRITERIA);
    let (mut release, mut indexes, mut more) = (Vec::new(), Vec::new(), false);
    let mut pods: Vec<&Arc<Pod>> = pods.iter().filter(|pod| is_tracked(pod)).collect();
    pods.sort_by_key(|pod| valid_index(pod, &spec));
    for pod in pods {
        let failed = has_failed(pod, &spec);
        let kept = || valid_index(pod, &spec).and_then(|i| found.kept.get(&i)).map(|k| &k.metadata.uid);
        let free = job.metadata.deletion_timestamp.is_some()
            || end.is_some()
            || has_succeeded(pod)
            || (failed && kept() != Some(&pod.metadata.uid));
        if !free {
            continue;
        }
        if good.len() + bad.len() + indexes.len() >= NOTED_MAX {
            more = true;
            break;
        }
        release.push(Arc::clone(pod));
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let valid = !is_indexed(job) || valid_index(pod, &spec).is_some();
        if has_succeeded(pod) && !bad.contains(&uid) {
            match valid_index(pod, &spec) {
                _ if !is_indexed(job) => note(good, uid),
                Some(index) if !found.succeeded_before.has(index) => indexes.push(index),
                _ => {}
            }
        } else if (failed || failing)
            && valid
            && meaning(spec.pod_failure_policy.as_ref(), pod) != Meaning::Ignored
        {
            note(bad, uid);
        }
    }
    noted.succeeded = noted.succeeded.filter(|uids| !uids.is_empty());
    noted.failed = noted.failed.filter(|uids| !uids.is_empty());
    status.uncounted_terminated_pods = Some(noted);
    if is_indexed(job) {
        let succeeded = found.succeeded_before.with(&Indexes::of(indexes));
        status.succeeded = some(succeeded.count());
        status.completed_indexes = Some(succeeded.to_string()).filter(|text| !text.is_empty());
        status.failed_indexes = found.failed_indexes.as_ref().map(ToString::to_string);
    }
    let end = end.map(|decided| ending(&mut status, decided, now));
    Count { status, release, end, more }
}

/// Says that the Job is going to end, and returns how it will have ended.
fn ending(status: &mut JobStatus, decided: JobCondition, now: Timestamp) -> JobCondition {
    let last = if decided.type_ == FAILURE_TARGET { FAILED } else { COMPLETE };
    let reason = decided.reason.clone().unwrap_or_default();
    let message = decided.message.clone().unwrap_or_default();
    if find(status.conditions.as_ref(), &decided.type_).is_none() {
        set(status, decided);
    }
    condition(last, "True", &reason, message, now)
}

fn note(uids: &mut Vec<String>, uid: String) {
    if !uids.contains(&uid) {
        uids.push(uid);
    }
}

/// The UIDs of Pods whose end is yet to be counted.
fn held(pods: &[Arc<Pod>]) -> impl Iterator<Item = &str> {
    pods.iter().filter(|pod| is_tracked(pod)).filter_map(|pod| pod.metadata.uid.as_deref())
}

/// Moves the UIDs whose finalizers are gone into the number.
fn settle(number: &mut Option<i32>, uids: &mut Vec<String>, held: &BTreeSet<&str>) {
    let before = uids.len();
    uids.retain(|uid| held.contains(uid.as_str()));
    let settled = i32::try_from(before - uids.len()).unwrap_or(i32::MAX);
    *number = some(number.unwrap_or_default().saturating_add(settled));
}

/// Zeros are left out.
pub(super) fn some(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

/// After finalizers went: counts, and ends the Job if all is counted and no Pod is left; the condition is what ended it.
#[must_use]
pub fn conclude(
    counted: &Count,
    mut status: JobStatus,
    still_held: &[Arc<Pod>],
    terminating: usize,
) -> (JobStatus, Option<JobCondition>) {
    let held: BTreeSet<&str> = held(still_held).collect();
    let mut noted = status.uncounted_terminated_pods.take().unwrap_or_default();
    settle(&mut status.succeeded, noted.succeeded.get_or_insert_default(), &held);
    settle(&mut status.failed, noted.failed.get_or_insert_default(), &held);
    noted.succeeded = noted.succeeded.filter(|uids| !uids.is_empty());
    noted.failed = noted.failed.filter(|uids| !uids.is_empty());
    let settled = noted.succeeded.is_none() && noted.failed.is_none();
    status.uncounted_terminated_pods = Some(noted);
    let end = counted.end.clone().filter(|_| settled && terminating == 0 && !counted.more);
    if let Some(end) = &end {
        if end.type_ == COMPLETE {
            status.completion_time.clone_from(&end.last_transition_time);
        }
        set(&mut status, end.clone());
    }
    (status, end)
}
