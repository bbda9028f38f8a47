//! Jobs and CronJobs as a whole.

use super::*;
use crate::kinds::testing::Nothing;
use crate::kinds::{Allocators, Cx, Hooks};
use serde_json::{Value, json};

fn pods() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}})
}

fn made(spec: Value) -> Value {
    let pools = Allocators::new("10.0.0.0/24").unwrap();
    let mut job = json!({"metadata": {"name": "j", "namespace": "d", "uid": "u-1"}, "spec": spec});
    Jobs.defaults(&mut job);
    Jobs.prepare_create(&mut job, &mut Cx::new(&Nothing, &pools, 0)).unwrap();
    job
}

fn wrong(job: &Value, old: Option<&Value>) -> Vec<String> {
    Jobs.validate(job, old).iter().map(ToString::to_string).collect()
}

#[test]
fn a_job_gets_its_numbers_and_a_selector_of_its_own() {
    let job = made(json!({"template": pods()}));
    let spec = &job["spec"];
    for (field, value) in [
        ("completions", json!(1)),
        ("parallelism", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
        ("selector", json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}})),
    ] {
        assert_eq!(spec[field], value, "{field}");
    }
    assert_eq!(
        spec["template"]["metadata"]["labels"],
        json!({"batch.kubernetes.io/controller-uid": "u-1", "batch.kubernetes.io/job-name": "j", "controller-uid": "u-1", "job-name": "j"})
    );
    assert_eq!(wrong(&job, None), Vec::<String>::new());
    assert_eq!(made(json!({"parallelism": 3, "template": pods()}))["spec"]["completions"], Value::Null);
}

#[test]
fn what_a_job_may_not_be_is_said_in_upstreams_words() {
    let mut job = made(json!({"template": pods()}));
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    assert_eq!(
        wrong(&job, None),
        ["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""]
    );
    let job = made(json!({"completionMode": "Indexed", "parallelism": 1, "template": pods()}));
    assert_eq!(wrong(&job, None), ["spec.completions: Required value: when completion mode is Indexed"]);
    let policy =
        json!({"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [0]}}]});
    let job = made(json!({"podFailurePolicy": policy, "template": pods()}));
    assert_eq!(job["spec"]["podReplacementPolicy"], "Failed");
    assert_eq!(
        wrong(&job, None),
        [
            "spec.podFailurePolicy.rules[0].action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
            "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator"
        ]
    );
    let success = json!({"rules": [{"succeededIndexes": "0,3-2"}]});
    let job = made(
        json!({"completionMode": "Indexed", "completions": 5, "successPolicy": success, "template": pods()}),
    );
    assert!(wrong(&job, None)[0].contains("non-increasing order, previous: 3, current: 2"));
}

#[test]
fn a_job_that_runs_keeps_its_template_and_one_that_waits_may_be_placed() {
    let old = made(json!({"template": pods()}));
    let mut new = old.clone();
    new["spec"]["template"]["spec"]["nodeSelector"] = json!({"a": "b"});
    assert!(wrong(&new, Some(&old))[0].starts_with("spec.template: Invalid value"));
    let mut waiting = old.clone();
    waiting["spec"]["suspend"] = json!(true);
    assert_eq!(wrong(&new, Some(&waiting)), Vec::<String>::new());
    new["spec"]["completions"] = json!(7);
    assert!(wrong(&new, Some(&waiting))[0].ends_with("field is immutable"));
}

#[test]
fn rows_show_how_far_a_job_is() {
    let mut job = made(json!({"completions": 3, "template": pods()}));
    job["status"] = json!({"succeeded": 1, "startTime": "1970-01-01T00:00:10Z", "conditions": [{"type": "Suspended", "status": "True"}]});
    let row = Jobs.row(&job, 70);
    assert_eq!(row[1..4], [json!("Suspended"), json!("1/3"), json!("60s")]);
    assert_eq!(row[5..], [json!("c"), json!("i:1"), json!("batch.kubernetes.io/controller-uid=u-1")]);
}

#[test]
fn a_cron_job_is_checked_with_its_template() {
    let mut cron = json!({"metadata": {"name": "c"}, "spec": {"schedule": "TZ=UTC * * * * *", "timeZone": "Mars/Olympus",
        "jobTemplate": {"spec": {"template": pods()}}}});
    CronJobs.defaults(&mut cron);
    let found: Vec<String> = CronJobs.validate(&cron, None).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "spec.schedule: Invalid value: \"TZ=UTC * * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            "spec.timeZone: Invalid value: \"Mars/Olympus\": unknown time zone Mars/Olympus"
        ]
    );
    cron["spec"]["schedule"] = json!("0 * * * *");
    cron["spec"]["timeZone"] = json!("Europe/Berlin");
    assert!(CronJobs.validate(&cron, None).is_empty());
    assert!(CronJobs.name(&"x".repeat(53)).is_err());
}
