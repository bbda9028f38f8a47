//! What a CronJob does next: which Jobs it removes, which one it makes, and what it says.

use std::sync::Arc;
use std::time::Duration;

use trine_objects::schedule::Schedule;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use trine_typed::k8s_openapi::api::core::v1::ObjectReference;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::k8s_openapi::jiff::tz::TimeZone;

use super::due::Clock;
use crate::job::end;
use crate::workload::claim::reference;

/// When a Job was due.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Missed times above which that is said.
const MANY: i64 = 100;
/// What is waited for beyond the time, because clocks differ. Upstream: 100 ms.
const SKEW: Duration = Duration::from_millis(100);

/// Something to tell.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// How bad it is.
    pub level: Level,
    /// The reason of the event.
    pub reason: &'static str,
    /// What it says.
    pub text: String,
}

/// What a CronJob does in a turn, in this order.
#[derive(Debug, PartialEq)]
pub struct Plan {
    /// What is told at once.
    pub notes: Vec<Note>,
    /// Jobs that go.
    pub delete: Vec<Arc<Job>>,
    /// A Job to make, and when it was due.
    pub create: Option<(Job, Timestamp)>,
    /// The status without that Job.
    pub status: CronJobStatus,
    /// When to look again.
    pub again: Option<Duration>,
}

impl Plan {
    fn note(&mut self, level: Level, reason: &'static str, text: impl Into<String>) {
        self.notes.push(Note { level, reason, text: text.into() });
    }
}

/// Decides for a CronJob. `jobs` are those that it controls; `zone` is its time zone, or why that is unknown.
#[must_use]
pub fn plan(cron: &CronJob, jobs: &[Arc<Job>], zone: Result<TimeZone, String>, now: Timestamp) -> Plan {
    let status = cron.status.clone().unwrap_or_default();
    let mut plan = Plan { notes: Vec::new(), delete: Vec::new(), create: None, status, again: None };
    plan.delete = beyond_history(cron, jobs);
    settle(&mut plan, jobs);
    let spec = &cron.spec;
    if cron.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let zone = match zone {
        Ok(zone) => zone,
        Err(why) => {
            let name = spec.time_zone.as_deref().unwrap_or_default();
            plan.note(Level::Warning, "UnknownTimeZone", format!("invalid timeZone: {name:?}: {why}"));
            return plan;
        }
    };
    if spec.suspend == Some(true) {
        return plan;
    }
    let schedule = match Schedule::parse(&spec.schedule) {
        Ok(schedule) => schedule,
        Err(why) => {
            let text = format!("unparseable schedule: {:?} : {why}", spec.schedule);
            plan.note(Level::Warning, "UnparseableSchedule", text);
            return plan;
        }
    };
    let clock = Clock { schedule, zone };
    start(&mut plan, cron, jobs, &clock, now);
    plan
}

/// Makes the Job whose time has come, if there is one and nothing is against it.
fn start(plan: &mut Plan, cron: &CronJob, jobs: &[Arc<Job>], clock: &Clock, now: Timestamp) {
    let spec = &cron.spec;
    let made = cron.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
    let since = plan.status.last_schedule_time.as_ref().map_or(made, |t| t.0);
    // Whatever becomes of this time, the next one is looked at.
    let after = clock.due(since, now).map_or(since, |due| due.last);
    plan.again = clock.wait(after, now).map(|wait| wait + SKEW);
    let deadline = spec
        .starting_deadline_seconds
        .and_then(|s| Timestamp::from_second(now.as_second().saturating_sub(s)).ok());
    let Some(due) = clock.due(deadline.map_or(since, |d| d.max(since)), now) else {
        if deadline.is_some_and(|deadline| after > since && after < deadline) {
            let text = format!("Missed scheduled time to start a job: {}", rfc1123(after));
            plan.note(Level::Warning, "MissSchedule", text);
        }
        return;
    };
    if due.count > MANY {
        let text =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.note(Level::Warning, "TooManyMissedTimes", text);
    }
    let job = job(cron, due.last, &clock.zone);
    let active = plan.status.active.clone().unwrap_or_default();
    if active.iter().any(|a| a.name == job.metadata.name)
        || plan.status.last_schedule_time.as_ref().is_some_and(|t| t.0 == due.last)
    {
        return;
    }
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let text = "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.note(Level::Normal, "JobAlreadyActive", text);
            return;
        }
        Some("Replace") => {
            let is_active = |job: &&Arc<Job>| active.iter().any(|a| a.uid == job.metadata.uid);
            plan.delete.extend(jobs.iter().filter(is_active).cloned());
            plan.status.active = None;
        }
        _ => {}
    }
    plan.create = Some((job, due.last));
}

/// `Mon, 02 Jan 2006 15:04:05 +0000`
fn rfc1123(time: Timestamp) -> String {
    time.to_zoned(TimeZone::UTC).strftime("%a, %d %b %Y %H:%M:%S %z").to_string()
}

/// Compares the Jobs with those that the status says are active.
fn settle(plan: &mut Plan, jobs: &[Arc<Job>]) {
    let mut active = plan.status.active.take().unwrap_or_default();
    for job in jobs {
        let (uid, name) = (&job.metadata.uid, job.metadata.name.clone().unwrap_or_default());
        let known = active.iter().any(|a| a.uid == *uid);
        match end(job) {
            None if !known => {
                let text = format!("Saw a job that the controller did not create or forgot: {name}");
                plan.note(Level::Warning, "UnexpectedJob", text);
            }
            Some(end) if known => {
                active.retain(|a| a.uid != *uid);
                let text = format!("Saw completed job: {name}, condition: {}", end.type_);
                plan.note(Level::Normal, "SawCompletedJob", text);
            }
            _ => {}
        }
        let completed = job.status.as_ref().and_then(|s| s.completion_time.clone());
        let last = plan.status.last_successful_time.as_ref();
        if let Some(completed) = completed.filter(|c| last.is_none_or(|last| c.0 > last.0)) {
            plan.status.last_successful_time = Some(completed);
        }
    }
    let there = |a: &ObjectReference| jobs.iter().any(|job| job.metadata.uid == a.uid);
    let (there, missing): (Vec<_>, Vec<_>) = active.into_iter().partition(there);
    for missing in missing {
        let text = format!("Active job went missing: {}", missing.name.unwrap_or_default());
        plan.note(Level::Normal, "MissingJob", text);
    }
    plan.status.active = Some(there).filter(|active| !active.is_empty());
}

/// The oldest finished Jobs beyond those that are kept.
fn beyond_history(cron: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let mut gone = Vec::new();
    let spec = &cron.spec;
    for (kind, kept) in
        [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)]
    {
        let Some(kept) = kept.and_then(|kept| usize::try_from(kept).ok()) else { continue };
        let ended = |job: &&Arc<Job>| {
            job.metadata.deletion_timestamp.is_none() && end(job).is_some_and(|end| end.type_ == kind)
        };
        let mut ended: Vec<Arc<Job>> = jobs.iter().filter(ended).cloned().collect();
        ended.sort_by_key(|job| {
            let start = job.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0);
            (start.is_none(), start, job.metadata.name.clone())
        });
        let extra = ended.len().saturating_sub(kept);
        gone.extend(ended.into_iter().take(extra));
    }
    gone
}

/// The Job of a time. Its name comes from the time, so that there is never another of the same time.
fn job(cron: &CronJob, due: Timestamp, zone: &TimeZone) -> Job {
    let template = cron.spec.job_template.metadata.clone().unwrap_or_default();
    let mut annotations = template.annotations.unwrap_or_default();
    let local = due.to_zoned(zone.clone());
    let offset = if local.offset().is_zero() { "Z" } else { "%:z" };
    annotations
        .insert(SCHEDULED.to_owned(), local.strftime(&format!("%Y-%m-%dT%H:%M:%S{offset}")).to_string());
    let name = cron.metadata.name.as_deref().unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(format!("{name}-{}", due.as_second().div_euclid(60))),
        namespace: cron.metadata.namespace.clone(),
        labels: template.labels,
        annotations: Some(annotations),
        owner_references: Some(vec![reference(cron)]),
        ..Default::default()
    };
    Job { metadata, spec: cron.spec.job_template.spec.clone(), status: None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}Z").parse().unwrap()
    }

    fn cron(spec: &Value, status: &Value) -> CronJob {
        let mut cron = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:30Z"},
            "spec": {"schedule": "*/10 * * * *", "concurrencyPolicy": "Allow",
                "jobTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"template": {}}}},
            "status": status});
        for (key, value) in spec.as_object().unwrap() {
            cron["spec"][key] = value.clone();
        }
        serde_json::from_value(cron).unwrap()
    }

    /// A Job that began at a minute and has ended by a condition, or not.
    fn job(name: &str, minute: u32, end: Option<&str>) -> Arc<Job> {
        let conditions: Vec<Value> = end.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let complete = (end == Some("Complete")).then(|| at(&format!("00:{minute:02}:30")));
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "status": {
                "startTime": at(&format!("00:{minute:02}:00")), "completionTime": complete, "conditions": conditions}}))
            .unwrap(),
        )
    }

    fn active(names: &[&str]) -> Value {
        json!(names.iter().map(|name| json!({"name": name, "uid": name})).collect::<Vec<_>>())
    }

    fn said(plan: &Plan) -> String {
        let mut said: Vec<String> = plan.notes.iter().map(|n| n.reason.to_owned()).collect();
        said.extend(plan.delete.iter().map(|job| format!("-{}", job.metadata.name.as_deref().unwrap())));
        said.extend(plan.create.iter().map(|(_, due)| format!("+{}", due.strftime("%H:%M"))));
        said.join(" ")
    }

    #[test]
    fn a_job_is_made_when_its_time_has_come_and_nothing_is_against_it() {
        let last = |time: &str| json!({"lastScheduleTime": at(time)});
        let rows = [
            ("not yet", json!({}), json!({}), "00:09:59", "", Some(1)),
            ("now", json!({}), json!({}), "00:10:00", "+00:10", Some(600)),
            ("a little late", json!({}), last("00:10:00"), "00:23:00", "+00:20", Some(420)),
            ("of several missed ones the last", json!({}), json!({}), "00:59:00", "+00:50", Some(60)),
            (
                "very many",
                json!({"schedule": "* * * * *"}),
                json!({}),
                "23:00:00",
                "TooManyMissedTimes +23:00",
                Some(60),
            ),
            ("done already", json!({}), last("00:10:00"), "00:15:00", "", Some(300)),
            ("paused", json!({"suspend": true}), json!({}), "00:10:00", "", None),
            (
                "within the deadline",
                json!({"startingDeadlineSeconds": 60}),
                json!({}),
                "00:10:30",
                "+00:10",
                Some(570),
            ),
            (
                "after the deadline",
                json!({"startingDeadlineSeconds": 60}),
                json!({}),
                "00:15:00",
                "MissSchedule",
                Some(300),
            ),
            ("no schedule", json!({"schedule": "often"}), json!({}), "00:10:00", "UnparseableSchedule", None),
        ];
        for (name, spec, status, now, expected, again) in rows {
            let plan = plan(&cron(&spec, &status), &[], Ok(TimeZone::UTC), at(now));
            assert_eq!(said(&plan), expected, "{name}");
            let again = again.map(|seconds| Duration::from_secs(seconds) + SKEW);
            assert_eq!(plan.again, again, "{name}");
        }
        let unknown = plan(&cron(&json!({}), &json!({})), &[], Err("no".to_owned()), at("00:10:00"));
        assert_eq!(said(&unknown), "UnknownTimeZone");
    }

    #[test]
    fn what_still_runs_is_left_alone_or_waited_for_or_replaced() {
        let status = json!({"active": active(&["old"]), "lastScheduleTime": at("00:10:00")});
        let rows = [("Allow", "+00:20"), ("Forbid", "JobAlreadyActive"), ("Replace", "-old +00:20")];
        for (policy, expected) in rows {
            let cron = cron(&json!({"concurrencyPolicy": policy}), &status);
            let plan = plan(&cron, &[job("old", 10, None)], Ok(TimeZone::UTC), at("00:20:00"));
            assert_eq!(said(&plan), expected, "{policy}");
        }
        // When it has ended, what was forbidden is made up for.
        let cron = cron(&json!({"concurrencyPolicy": "Forbid"}), &status);
        let plan = plan(&cron, &[job("old", 10, Some("Complete"))], Ok(TimeZone::UTC), at("00:22:00"));
        assert_eq!(said(&plan), "SawCompletedJob +00:20");
    }

    #[test]
    fn the_status_follows_the_jobs() {
        let status = json!({"active": active(&["done", "runs", "gone"]), "lastScheduleTime": at("00:50:00"),
            "lastSuccessfulTime": at("00:05:00")});
        let jobs = [
            job("done", 40, Some("Complete")),
            job("runs", 50, None),
            job("other", 51, None),
            job("bad", 52, Some("Failed")),
        ];
        let plan = plan(&cron(&json!({}), &status), &jobs, Ok(TimeZone::UTC), at("00:55:00"));
        assert_eq!(said(&plan), "SawCompletedJob UnexpectedJob MissingJob");
        let active: Vec<String> = plan.status.active.unwrap().into_iter().filter_map(|a| a.name).collect();
        assert_eq!(active, ["runs"]);
        assert_eq!(plan.status.last_successful_time.unwrap().0, at("00:40:30"));
    }

    #[test]
    fn the_oldest_beyond_the_history_go() {
        let spec = json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0, "suspend": true});
        let jobs = [
            job("c2", 20, Some("Complete")),
            job("c1", 10, Some("Complete")),
            job("c3", 30, Some("Complete")),
            job("f", 5, Some("Failed")),
            job("r", 1, None),
        ];
        let status = json!({"active": active(&["r"])});
        let plan = plan(&cron(&spec, &status), &jobs, Ok(TimeZone::UTC), at("00:55:00"));
        assert_eq!(said(&plan), "-c1 -c2 -f");
    }

    #[test]
    fn the_job_says_which_time_it_is_of() {
        let cron = cron(&json!({"schedule": "0 9 * * *"}), &json!({}));
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let plan = plan(&cron, &[], Ok(zone), at("08:00:00"));
        let job = json!(plan.create.unwrap().0);
        assert_eq!(job["metadata"]["name"], format!("c-{}", at("08:00:00").as_second() / 60));
        assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(job["metadata"]["annotations"], json!({"c": "d", SCHEDULED: "2026-01-01T09:00:00+01:00"}));
        assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "CronJob");
    }
}
