//! What a Job says of itself in conditions.

use trine_typed::k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;

/// The Job will have failed, once its Pods have ended.
pub const FAILURE_TARGET: &str = "FailureTarget";
/// It will have succeeded.
pub const SUCCESS_CRITERIA: &str = "SuccessCriteriaMet";
/// It has succeeded.
pub const COMPLETE: &str = "Complete";
/// It has failed.
pub const FAILED: &str = "Failed";
/// It rests.
const SUSPENDED: &str = "Suspended";

/// A condition.
#[must_use]
pub fn condition(kind: &str, status: &str, reason: &str, message: String, now: Timestamp) -> JobCondition {
    JobCondition {
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
        message: Some(message),
        reason: Some(reason.to_owned()),
        status: status.to_owned(),
        type_: kind.to_owned(),
    }
}

/// The condition of a type that is true.
#[must_use]
pub fn find<'a>(conditions: Option<&'a Vec<JobCondition>>, kind: &str) -> Option<&'a JobCondition> {
    conditions?.iter().find(|c| c.type_ == kind && c.status == "True")
}

/// The condition that ended the Job.
#[must_use]
pub fn end(job: &Job) -> Option<&JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref();
    find(conditions, COMPLETE).or_else(|| find(conditions, FAILED))
}

/// Whether a Job is at its end.
#[must_use]
pub fn is_finished(job: &Job) -> bool {
    end(job).is_some()
}

/// Sets a condition; says whether that was news. That something is not so is news only if it was.
pub fn set(status: &mut JobStatus, fresh: JobCondition) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|c| c.type_ == fresh.type_) {
        Some(old) => {
            let news =
                (&old.status, &old.reason, &old.message) != (&fresh.status, &fresh.reason, &fresh.message);
            if news {
                *old = fresh;
            }
            news
        }
        None if fresh.status == "False" => false,
        None => {
            conditions.push(fresh);
            true
        }
    }
}

/// Says whether a Job rests; returns the reason of the event if that is news.
pub fn set_suspended(status: &mut JobStatus, suspended: bool, now: Timestamp) -> Option<&'static str> {
    let (value, reason, message, event) = if suspended {
        ("True", "JobSuspended", "Job suspended", "Suspended")
    } else {
        ("False", "JobResumed", "Job resumed", "Resumed")
    };
    let news = set(status, condition(SUSPENDED, value, reason, message.to_owned(), now));
    if news {
        // Its time begins anew when it goes on.
        status.start_time = (!suspended).then_some(Time(now));
    }
    news.then_some(event)
}
