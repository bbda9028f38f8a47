//! Jobs told as tables: Pods as words, `R` running, `S` succeeded, `F` failed, `D` on its way out, with an index after it if they
//! have one and `!` if they were counted.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::batch::v1::Job;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::backoff::Backoff;
use super::conditions::{COMPLETE, FAILED, find};
use super::plan::{Assessment, Step, assess, conclude, count, reached};
use super::template::{INDEX, TRACKED, index};

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn job(spec: &Value, status: &Value) -> Job {
    let mut job = json!({"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "status": status,
        "spec": {"parallelism": 2, "completions": 4, "backoffLimit": 6, "completionMode": "NonIndexed",
            "template": {"spec": {"restartPolicy": "Never", "containers": []}}}});
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    serde_json::from_value(job).unwrap()
}

/// Pods that finished an hour ago.
fn pods(text: &str) -> Vec<Arc<Pod>> {
    let one = |(i, word): (usize, &str)| {
        let (word, counted) = word.strip_suffix('!').map_or((word, false), |word| (word, true));
        let (state, index) = word.split_at(1);
        let phase = match state {
            "S" => "Succeeded",
            "F" => "Failed",
            _ => "Running",
        };
        let mut pod = json!({"metadata": {"name": format!("p{i}"), "uid": format!("u{i}"), "namespace": "ns",
            "creationTimestamp": "2026-01-01T10:00:00Z"}, "spec": {"containers": [], "nodeName": "n"},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": if phase == "Running" {"True"} else {"False"}, "lastTransitionTime": "2026-01-01T11:00:00Z"}]}});
        if !counted {
            pod["metadata"]["finalizers"] = json!([TRACKED]);
        }
        if state == "D" {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T11:00:00Z".into();
        }
        if !index.is_empty() {
            pod["metadata"]["annotations"] = json!({INDEX: index});
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    text.split_whitespace().enumerate().map(one).collect()
}

fn assessed(job: &Job, text: &str) -> Assessment {
    assess(job, &pods(text), Backoff::default(), now())
}

fn said(step: &Step) -> String {
    let names = |pods: &[Arc<Pod>]| {
        let names: Vec<&str> = pods.iter().filter_map(|p| p.metadata.name.as_deref()).collect();
        names.join(" ")
    };
    match step {
        Step::Stay => String::new(),
        Step::Stop(pods) => format!("stop {}", names(pods)).trim_end().to_owned(),
        Step::Remove(pods) => format!("remove {}", names(pods)),
        Step::Create(indexes) if indexes.iter().all(Option::is_none) => format!("create {}", indexes.len()),
        Step::Create(indexes) => format!("create {:?}", indexes.iter().flatten().collect::<Vec<_>>()),
        Step::Wait(wait) => format!("wait {}", wait.as_secs()),
    }
}

fn end(found: &Assessment) -> String {
    found
        .end
        .as_ref()
        .map_or(String::new(), |c| format!("{} {}", c.type_, c.reason.clone().unwrap_or_default()))
}

#[test]
fn as_many_pods_run_as_are_wanted_and_still_missing() {
    let none = json!({});
    let rows = [
        ("the first", json!({}), json!({}), "", "create 2"),
        ("enough run", json!({}), json!({}), "R R", ""),
        ("one is missing", json!({}), json!({"succeeded": 1}), "R", "create 1"),
        ("few are left", json!({}), json!({"succeeded": 3}), "", "create 1"),
        ("some succeeded just now", json!({}), json!({"succeeded": 1}), "S S R", ""),
        ("those counted do not count again", json!({}), json!({"succeeded": 2}), "S! S! R", "create 1"),
        ("all have succeeded", json!({}), json!({"succeeded": 3}), "S", ""),
        ("too many", json!({"parallelism": 1}), json!({}), "R R", "remove p0"),
        ("none at a time", json!({"parallelism": 0}), json!({}), "R", "remove p0"),
        ("one success is enough", json!({"completions": null}), json!({}), "S R", ""),
        ("nothing has succeeded", json!({"completions": null}), json!({}), "R", "create 1"),
        ("on its way out", json!({}), json!({}), "D R", "create 1"),
        ("on its way out, waited for", json!({"podReplacementPolicy": "Failed"}), json!({}), "D R", ""),
        ("it rests", json!({"suspend": true}), json!({}), "R S", "remove p0"),
        ("it rests already", json!({"suspend": true}), none, "S", ""),
    ];
    for (name, spec, status, text, expected) in rows {
        assert_eq!(said(&assessed(&job(&spec, &status), text).step), expected, "{name}");
    }
}

#[test]
fn each_index_has_one_pod_until_it_is_done() {
    let indexed = |more: Value| {
        let mut spec = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 3});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    let rows = [
        ("the first", json!({}), json!({}), "", "create [0, 1, 2]"),
        ("gaps are filled", json!({}), json!({"completedIndexes": "1"}), "R0", "create [2, 3]"),
        ("success just now", json!({}), json!({}), "S0 R1 S2", "create [3, 4]"),
        ("two of one index", json!({}), json!({}), "R0 R0 R1", "remove p0"),
        ("no such index", json!({}), json!({}), "R0 R9 R", "remove p1 p2"),
        ("fewer completions", json!({"completions": 2}), json!({"completedIndexes": "0-3"}), "", ""),
        ("waits for the end", json!({"podReplacementPolicy": "Failed"}), json!({}), "D0 R1", "create [2]"),
        ("failed for good", json!({"backoffLimitPerIndex": 0}), json!({}), "F0 R1", "create [2, 3]"),
        ("tried again", json!({"backoffLimitPerIndex": 1}), json!({}), "F0 R1 R2", "create [0]"),
    ];
    for (name, spec, status, text, expected) in rows {
        let found = assessed(&job(&indexed(spec), &status), text);
        assert_eq!(said(&found.step).replace("remove p2 p1", "remove p1 p2"), expected, "{name}");
    }
}

#[test]
fn failures_make_the_next_pod_wait() {
    let recent = |age: u64| {
        let mut pod = Arc::unwrap_or_clone(pods("F").remove(0));
        let at = Timestamp::from_second(now().as_second() - i64::try_from(age).unwrap()).unwrap();
        pod.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].last_transition_time = Some(Time(at));
        vec![Arc::new(pod)]
    };
    let job = job(&json!({"completions": 1, "parallelism": 1}), &json!({}));
    let found = assess(&job, &recent(3), Backoff::default(), now());
    assert_eq!(said(&found.step), "wait 7");
    let found = assess(&job, &recent(3), Backoff { failures: 2, last: None }, now());
    assert_eq!((said(&found.step).as_str(), found.backoff.failures), ("wait 37", 3));
    let found = assess(&job, &recent(10), Backoff::default(), now());
    assert_eq!(said(&found.step), "create 1");
}

#[test]
fn a_job_ends_for_the_first_reason_there_is() {
    let fail =
        json!({"rules": [{"action": "FailJob", "onPodConditions": [{"type": "Ready", "status": "False"}]}]});
    let ignore =
        json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "Ready", "status": "False"}]}]});
    let indexed = |more: Value| {
        let mut spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    let started = json!({"startTime": "2026-01-01T11:00:00Z"});
    let decided =
        json!({"conditions": [{"type": "FailureTarget", "status": "True", "reason": "PodFailurePolicy"}]});
    let rows = [
        ("it goes on", json!({}), json!({}), "R F", ""),
        (
            "too many failures",
            json!({"backoffLimit": 1}),
            json!({}),
            "F F",
            "FailureTarget BackoffLimitExceeded",
        ),
        (
            "some of them before",
            json!({"backoffLimit": 1}),
            json!({"failed": 1}),
            "F R",
            "FailureTarget BackoffLimitExceeded",
        ),
        ("those counted do not count again", json!({"backoffLimit": 1}), json!({"failed": 1}), "F!", ""),
        (
            "some of them noted",
            json!({"backoffLimit": 1}),
            json!({"failed": 1, "uncountedTerminatedPods": {"failed": ["u0"]}}),
            "F",
            "FailureTarget BackoffLimitExceeded",
        ),
        ("ignored", json!({"backoffLimit": 0, "podFailurePolicy": ignore}), json!({}), "F", ""),
        ("by policy", json!({"podFailurePolicy": fail}), json!({}), "F R", "FailureTarget PodFailurePolicy"),
        (
            "on the way out, not failed",
            json!({"podFailurePolicy": fail, "podReplacementPolicy": "Failed"}),
            json!({}),
            "D",
            "",
        ),
        (
            "late",
            json!({"activeDeadlineSeconds": 3600}),
            started.clone(),
            "R",
            "FailureTarget DeadlineExceeded",
        ),
        ("not yet late", json!({"activeDeadlineSeconds": 3601}), started.clone(), "R", ""),
        ("resting is never late", json!({"activeDeadlineSeconds": 1, "suspend": true}), started, "", ""),
        ("decided before", json!({}), decided, "R", "FailureTarget PodFailurePolicy"),
        (
            "an index failed, others go on",
            indexed(json!({"backoffLimitPerIndex": 0})),
            json!({}),
            "F0 R1",
            "",
        ),
        (
            "all others are done",
            indexed(json!({"backoffLimitPerIndex": 0})),
            json!({"completedIndexes": "1-3"}),
            "F0",
            "FailureTarget FailedIndexes",
        ),
        (
            "too many indexes failed",
            indexed(json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1})),
            json!({}),
            "F0 F1 R2",
            "FailureTarget MaxFailedIndexesExceeded",
        ),
        (
            "enough succeeded",
            indexed(json!({"successPolicy": {"rules": [{"succeededCount": 1}]}})),
            json!({}),
            "S2 R0",
            "SuccessCriteriaMet SuccessPolicy",
        ),
    ];
    for (name, spec, status, text, expected) in rows {
        assert_eq!(end(&assessed(&job(&spec, &status), text)), expected, "{name}");
    }
    let restarted = |limit: i32, count: i32| {
        let mut pod = Arc::unwrap_or_clone(pods("R").remove(0));
        let status = json!([{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": count}]);
        pod.status.as_mut().unwrap().container_statuses = serde_json::from_value(status).unwrap();
        let template = json!({"spec": {"restartPolicy": "OnFailure", "containers": []}});
        let job = job(&json!({"backoffLimit": limit, "template": template}), &json!({}));
        end(&assess(&job, &[Arc::new(pod)], Backoff::default(), now()))
    };
    assert_eq!([restarted(2, 1), restarted(0, 0)], ["", ""]);
    assert_eq!([restarted(2, 2), restarted(0, 1)], ["FailureTarget BackoffLimitExceeded"; 2]);
}

/// What a turn notes and counts when all its acts succeed: `numbers / noted / released / conditions`.
fn turn(job: &Job, text: &str) -> String {
    let all = pods(text);
    let found = assess(job, &all, Backoff::default(), now());
    let active = all.iter().filter(|p| crate::workload::readiness::is_active(p)).count();
    let active = if matches!(found.step, Step::Stop(_)) { 0 } else { active };
    let end = found.end.clone().or_else(|| reached(job, found.succeeded, active, now()));
    let counted = count(job, job.status.clone().unwrap_or_default(), &all, &found, end, now());
    let noted = counted.status.uncounted_terminated_pods.clone().unwrap_or_default();
    let released: Vec<&str> = counted.release.iter().filter_map(|p| p.metadata.name.as_deref()).collect();
    let ended = |pod: &&Arc<Pod>| !counted.release.iter().any(|r| r.metadata.uid == pod.metadata.uid);
    let held: Vec<Arc<Pod>> = all.iter().filter(ended).cloned().collect();
    let (status, _) = conclude(&counted, counted.status.clone(), &held, 0);
    let conditions: Vec<&str> = status.conditions.iter().flatten().map(|c| c.type_.as_str()).collect();
    let (good, bad) = (noted.succeeded.unwrap_or_default(), noted.failed.unwrap_or_default());
    let text = |text: Option<String>| text.map(|text| format!(" [{text}]")).unwrap_or_default();
    format!(
        "{}+{}{}{} / {} / {} / {}",
        status.succeeded.unwrap_or_default(),
        status.failed.unwrap_or_default(),
        text(status.completed_indexes),
        text(status.failed_indexes),
        [good, bad].concat().join(" "),
        released.join(" "),
        conditions.join(" ")
    )
}

#[test]
fn every_end_is_noted_before_it_is_counted() {
    let indexed = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3});
    let per_index =
        json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 1});
    let ignore =
        json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "Ready", "status": "False"}]}]});
    let noted = json!({"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["u0"], "failed": ["gone"]}});
    let rows = [
        ("both kinds", json!({}), json!({}), "S F R", "1+1 / u0 u1 / p0 p1 / "),
        ("noted before, finalizer gone or not", json!({}), noted, "S R", "2+1 / u0 / p0 / "),
        ("counted before", json!({}), json!({"succeeded": 1}), "S! R", "1+0 /  /  / "),
        ("ignored", json!({"podFailurePolicy": ignore}), json!({}), "F R", "0+0 /  / p0 / "),
        (
            "the last one",
            json!({}),
            json!({"succeeded": 3}),
            "S",
            "4+0 / u0 / p0 / SuccessCriteriaMet Complete",
        ),
        (
            "a failed Job fails what runs",
            json!({"backoffLimit": 0}),
            json!({}),
            "F R",
            "0+2 / u0 u1 / p0 p1 / FailureTarget Failed",
        ),
        (
            "indexes",
            indexed.clone(),
            json!({"succeeded": 1, "completedIndexes": "2"}),
            "S0 R1 S2",
            "2+0 [0,2] /  / p0 p2 / ",
        ),
        (
            "all indexes",
            indexed.clone(),
            json!({"completedIndexes": "0,1"}),
            "S2",
            "3+0 [0-2] /  / p0 / SuccessCriteriaMet Complete",
        ),
        ("an index that is none", indexed, json!({}), "S7 F8", "0+0 /  / p0 p1 / "),
        ("kept until it is replaced", per_index.clone(), json!({}), "F0 R1", "0+0 [] /  /  / "),
        ("replaced", per_index.clone(), json!({}), "F0 R0", "0+1 [] / u0 / p0 / "),
    ];
    for (name, spec, status, text, expected) in rows {
        assert_eq!(turn(&job(&spec, &status), text), expected, "{name}");
    }
}

#[test]
fn a_job_does_not_end_before_its_pods() {
    let job = job(&json!({"backoffLimit": 0}), &json!({}));
    let all = pods("F D");
    let found = assess(&job, &all, Backoff::default(), now());
    let counted = count(&job, Default::default(), &all, &found, found.end.clone(), now());
    assert!(find(counted.status.conditions.as_ref(), "FailureTarget").is_some());
    let ended = |held: &[Arc<Pod>], terminating: usize| {
        let (status, end) = conclude(&counted, counted.status.clone(), held, terminating);
        assert_eq!(end.is_some(), find(status.conditions.as_ref(), FAILED).is_some());
        end.is_some()
    };
    assert!(!ended(&all[..1], 0), "one is not counted");
    assert!(!ended(&[], 1), "one is on its way out");
    assert!(ended(&[], 0));
}

#[test]
fn a_job_that_completes_says_when() {
    let job = job(&json!({"completions": 1}), &json!({}));
    let all = pods("S");
    let found = assess(&job, &all, Backoff::default(), now());
    let end = reached(&job, found.succeeded, 0, now());
    let counted = count(&job, Default::default(), &all, &found, end, now());
    let (status, end) = conclude(&counted, counted.status.clone(), &[], 0);
    assert_eq!(end.unwrap().type_, COMPLETE);
    assert_eq!(status.completion_time.unwrap().0, now());
}

#[test]
fn a_failed_index_that_is_tried_again_waits_by_itself() {
    let spec =
        json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 5});
    let job = job(&spec, &json!({}));
    let mut all = pods("F0 F1 R2");
    let mut first = Arc::unwrap_or_clone(all.remove(0));
    let at = Timestamp::from_second(now().as_second() - 4).unwrap();
    first.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].last_transition_time = Some(Time(at));
    all.insert(0, Arc::new(first));
    let found = assess(&job, &all, Backoff::default(), now());
    assert_eq!(said(&found.step), "create [1]", "the other one waits");
    assert_eq!(found.kept.values().map(|p| index(p)).collect::<Vec<_>>(), [Some(0), Some(1)]);
    all.remove(1);
    all.push(pods("R1").remove(0));
    let found = assess(&job, &all, Backoff::default(), now());
    assert_eq!(found.step, Step::Wait(Duration::from_secs(6)));
}
