//! Rollouts told as tables: ReplicaSets as `size/available@revision`, from the oldest on, `*` for the one with the template.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::plan::{Plan, plan};
use super::status::{find, size};

const WANTED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
const REVISION: &str = "deployment.kubernetes.io/revision";

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A Deployment of `replicas` with a surge and a number that may be unavailable.
fn deployment(replicas: i32, surge: &Value, unavailable: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": {"replicas": replicas, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "d"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
            "template": template("new")}})
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// ReplicaSets of a text like `3/2@1 *1/0@2`, made for a Deployment of `wanted`.
fn sets(text: &str, wanted: i32) -> Vec<ReplicaSet> {
    let one = |(i, text): (usize, &str)| {
        let (text, image) =
            text.strip_prefix('*').map_or((text, format!("old{i}")), |t| (t, "new".to_owned()));
        let (text, revision) = text.split_once('@').unwrap();
        let (size, available) = text.split_once('/').unwrap();
        let (size, available): (i32, i32) = (size.parse().unwrap(), available.parse().unwrap());
        serde_json::from_value(json!({"metadata": {"name": format!("d-{i}"), "uid": format!("u{i}"), "generation": 1,
                "resourceVersion": "7", "creationTimestamp": format!("2026-01-01T00:00:{i:02}Z"),
                "annotations": {REVISION: revision, WANTED: wanted.to_string(), MAX: (wanted + 1).to_string()}},
            "spec": {"replicas": size, "selector": {}, "template": template(&image)},
            "status": {"replicas": size, "readyReplicas": available, "availableReplicas": available,
                "observedGeneration": 1, "terminatingReplicas": 0}}))
        .unwrap()
    };
    text.split_whitespace().enumerate().map(one).collect()
}

fn planned(deployment: &Value, sets: Vec<ReplicaSet>) -> Plan {
    plan(&serde_json::from_value(deployment.clone()).unwrap(), sets, &BTreeMap::new(), now())
}

/// What a plan does to sizes, in one line.
fn acts(plan: &Plan) -> String {
    let mut acts: Vec<String> = plan.create.iter().map(|set| format!("new {}", size(set))).collect();
    let resized = plan.change.iter().filter_map(|c| Some((c, c.replicas?)));
    acts.extend(resized.map(|(c, (from, to))| format!("{} {from}>{to}", c.name)));
    acts.extend(plan.delete.iter().map(|name| format!("-{name}")));
    acts.join(", ")
}

fn said(plan: &Plan, kind: &str) -> String {
    let status = plan.tell.as_ref().and_then(|d| d.status.clone()).unwrap_or_default();
    find(&status, kind).map_or(String::new(), |c| {
        format!("{} {}", c.status.clone().unwrap_or_default(), c.reason.clone().unwrap_or_default())
    })
}

#[test]
fn a_rolling_update_goes_step_by_step_within_its_limits() {
    // Replicas, surge, unavailable, the sets, and what is done.
    let rows: [(i32, Value, Value, &str, &str); 17] = [
        (3, json!(1), json!(1), "", "new 3"),
        (3, json!(1), json!(0), "3/3@1", "new 1"),
        (3, json!(1), json!(0), "3/3@1 *1/0@2", ""),
        (3, json!(1), json!(0), "3/3@1 *1/1@2", "d-0 3>2"),
        (3, json!(1), json!(0), "2/2@1 *1/1@2", "d-1 1>2"),
        (3, json!(1), json!(0), "1/1@1 *3/3@2", "d-0 1>0"),
        (3, json!(1), json!(0), "0/0@1 *3/3@2", ""),
        (10, json!(3), json!(2), "10/10@1", "new 3, d-0 10>8"),
        (10, json!(3), json!(2), "8/8@1 *5/0@2", ""),
        // What is of no use goes first, also the newer of the old ones; more than that only if enough are available.
        (10, json!(3), json!(2), "8/8@1 5/0@2 *0/0@3", "d-1 5>0"),
        (10, json!(0), json!("20%"), "6/4@1 4/4@2 *0/0@3", "d-0 6>4"),
        (4, json!(0), json!(1), "4/4@1", "new 0, d-0 4>3"),
        (4, json!(0), json!(1), "3/3@1 *0/0@2", "d-1 0>1"),
        // What was taken from an old one already, but is still said of it, is not there for others.
        (6, json!(2), json!(1), "5/6@1 *3/2@2", "d-0 5>3"),
        // The wanted number fell, or the newest is too large.
        (2, json!(1), json!(0), "0/0@1 *5/5@2", "d-1 5>2"),
        // Back to an old template: the oldest of several that are the same is taken.
        (3, json!(1), json!(0), "*0/0@1 3/3@2", "d-0 0>1"),
        (3, json!(1), json!(0), "*0/0@1 *3/3@2", "d-0 0>1"),
    ];
    for (replicas, surge, unavailable, text, expected) in rows {
        let plan = planned(&deployment(replicas, &surge, &unavailable), sets(text, replicas));
        assert_eq!(acts(&plan), expected, "{replicas} +{surge} -{unavailable}: {text}");
    }
}

#[test]
fn a_resized_or_paused_deployment_scales_without_going_on() {
    let rows: [(&str, i32, bool, &str, &str); 8] = [
        ("one set", 5, false, "0/0@1 *3/3@2", "d-1 3>5"),
        ("by their shares", 8, false, "2/2@1 *2/2@2", "d-0 2>4, d-1 2>5"),
        ("down by their shares", 2, false, "2/2@1 *2/0@2", "d-0 2>1, d-1 2>2"),
        ("to nothing", 0, false, "2/2@1 *2/0@2", "d-0 2>0, d-1 2>0"),
        ("paused: no new set", 4, true, "4/4@1", ""),
        ("paused and resized", 6, true, "4/4@1", "d-0 4>6"),
        ("paused, nothing runs: the newest", 2, true, "0/0@1 0/0@2", "d-1 0>2"),
        ("the newest has all that is wanted", 4, true, "1/1@1 *4/4@2", "d-0 1>0"),
    ];
    for (name, replicas, paused, text, expected) in rows {
        let mut deployment = deployment(replicas, &json!(1), &json!(0));
        deployment["spec"]["paused"] = paused.into();
        let plan = planned(&deployment, sets(text, 4));
        assert_eq!(acts(&plan), expected.replace(", d-1 2>2", ""), "{name}");
    }
}

#[test]
fn recreation_waits_for_the_end_of_the_old_pods() {
    let mut deployment = deployment(3, &json!(0), &json!(0));
    deployment["spec"]["strategy"] = json!({"type": "Recreate"});
    let deployment: Deployment = serde_json::from_value(deployment).unwrap();
    let mut ended = sets("0/0@1", 3);
    ended[0].status.as_mut().unwrap().replicas = 0;
    let mut running = sets("0/0@1", 3);
    running[0].status.as_mut().unwrap().replicas = 1;
    let rows = [
        ("they are stopped", sets("3/3@1", 3), 3, "d-0 3>0"),
        ("they are counted", running, 0, ""),
        ("they are on their way out", ended.clone(), 1, ""),
        ("they have ended", ended, 0, "new 3"),
        ("the first", Vec::new(), 0, "new 3"),
        ("the new one is filled", sets("0/0@1 *1/0@2", 3), 0, "d-1 1>3"),
    ];
    for (name, sets, old, expected) in rows {
        let running = BTreeMap::from([("u0".to_owned(), old), ("u1".to_owned(), 1)]);
        let running = if sets.len() > 1 { running } else { BTreeMap::from([("u0".to_owned(), old)]) };
        assert_eq!(acts(&plan(&deployment, sets, &running, now())), expected, "{name}");
    }
}

#[test]
fn the_new_set_is_the_deployments_in_every_way() {
    let mut deployment = deployment(3, &json!(1), &json!(0));
    deployment["metadata"]["annotations"] = json!({"why": "because"});
    let plan = planned(&deployment, sets("3/3@3546343826724305832", 3));
    let set = json!(plan.create.unwrap());
    let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap().to_owned();
    assert_eq!(set["metadata"]["name"], format!("d-{hash}"));
    assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], "u");
    assert_eq!(set["spec"]["selector"]["matchLabels"], json!({"app": "d", "pod-template-hash": hash}));
    assert_eq!(set["spec"]["template"]["metadata"]["labels"], json!({"app": "d", "pod-template-hash": hash}));
    let revision = "3546343826724305833";
    let annotations = json!({"why": "because", REVISION: revision, WANTED: "3", MAX: "4"});
    assert_eq!(set["metadata"]["annotations"], annotations);
    let told = plan.tell.unwrap();
    assert_eq!(told.metadata.annotations.unwrap()[REVISION], revision, "the Deployment says the same");

    deployment["status"]["collisionCount"] = 1.into();
    let other = planned(&deployment, Vec::new()).create.unwrap();
    assert_ne!(json!(other)["metadata"]["name"], set["metadata"]["name"], "after a collision");
}

#[test]
fn an_old_set_that_is_rolled_back_to_is_the_newest_revision() {
    let plan = planned(&deployment(3, &json!(1), &json!(0)), sets("*0/0@1 3/3@2", 3));
    let annotations = &plan.change[0].annotations;
    assert_eq!(plan.change[0].name, "d-0");
    assert_eq!(annotations[REVISION], "3");
    assert_eq!(annotations["deployment.kubernetes.io/revision-history"], "1");
}

#[test]
fn old_sets_beyond_the_history_go_when_the_rollout_is_done() {
    let mut deployment = deployment(2, &json!(1), &json!(0));
    deployment["spec"]["revisionHistoryLimit"] = 1.into();
    deployment["status"] =
        json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
    let all = "0/0@4 0/0@1 0/0@3 *2/2@5";
    assert_eq!(acts(&planned(&deployment, sets(all, 2))), "-d-1, -d-2");
    let mut busy = sets(all, 2);
    busy[1].status.as_mut().unwrap().replicas = 1;
    busy[2].metadata.generation = Some(2);
    assert_eq!(acts(&planned(&deployment, busy)), "", "not while they have Pods or are not looked at");
    deployment["status"]["updatedReplicas"] = 1.into();
    assert_eq!(acts(&planned(&deployment, sets(all, 2))), "", "not during a rollout");
}

#[test]
fn the_status_says_how_far_it_is() {
    let plan = planned(&deployment(3, &json!(1), &json!(0)), sets("2/2@1 *2/1@2", 3));
    let status = json!(plan.tell.as_ref().unwrap().status);
    let counts = json!({"observedGeneration": 1, "replicas": 4, "updatedReplicas": 2, "readyReplicas": 3,
        "availableReplicas": 3, "unavailableReplicas": 1, "terminatingReplicas": 0});
    for (key, count) in counts.as_object().unwrap() {
        assert_eq!(&status[key], count, "{key}");
    }
    assert_eq!(said(&plan, "Available"), "True MinimumReplicasAvailable");
    assert_eq!(said(&plan, "Progressing"), "True ReplicaSetUpdated");
    let plan = planned(&deployment(4, &json!(1), &json!(0)), sets("*4/3@1", 4));
    assert_eq!(said(&plan, "Available"), "False MinimumReplicasUnavailable");
}

#[test]
fn a_rollout_that_stands_still_is_late_and_one_that_is_done_is_not() {
    let progress = |reason: &str, age: i64, counts: Value| {
        let mut deployment = deployment(2, &json!(1), &json!(0));
        let since = Timestamp::from_second(now().as_second() - age).unwrap();
        deployment["status"] = counts;
        deployment["status"]["observedGeneration"] = 1.into();
        deployment["status"]["conditions"] = json!([
            {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "lastUpdateTime": since},
            {"type": "Progressing", "status": "True", "reason": reason, "lastUpdateTime": since, "lastTransitionTime": since}]);
        deployment
    };
    let same = || json!({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1});
    let rows = [
        ("stands still", "ReplicaSetUpdated", 100, same(), "True ReplicaSetUpdated", Some(501)),
        ("for too long", "ReplicaSetUpdated", 600, same(), "False ProgressDeadlineExceeded", None),
        (
            "goes on after all",
            "ReplicaSetUpdated",
            700,
            json!({"replicas": 2, "updatedReplicas": 1}),
            "True ReplicaSetUpdated",
            Some(601),
        ),
        (
            "was late, goes on",
            "ProgressDeadlineExceeded",
            700,
            json!({"replicas": 2}),
            "True ReplicaSetUpdated",
            Some(601),
        ),
        ("was done", "NewReplicaSetAvailable", 9999, same(), "True NewReplicaSetAvailable", Some(1)),
    ];
    for (name, reason, age, counts, expected, again) in rows {
        let deployment = progress(reason, age, counts);
        let mut plan = planned(&deployment, sets("*2/1@1", 2));
        // What is no news is not told.
        let told = plan.tell.get_or_insert_with(|| serde_json::from_value(deployment).unwrap()).clone();
        assert_eq!(said(&plan, "Progressing"), expected, "{name}");
        assert_eq!(plan.again, again.map(Duration::from_secs), "{name}");
        let transition = find(told.status.as_ref().unwrap(), "Progressing").unwrap();
        let moved = transition.last_transition_time.as_ref().unwrap().0 == now();
        assert_eq!(moved, expected.starts_with("False"), "{name}");
    }
    let done = planned(&progress("ReplicaSetUpdated", 10, same()), sets("*2/2@1", 2));
    assert_eq!(said(&done, "Progressing"), "True NewReplicaSetAvailable");
    assert_eq!(done.again, None);
}

#[test]
fn a_pause_stops_the_clock() {
    let mut paused = deployment(2, &json!(1), &json!(0));
    paused["spec"]["paused"] = true.into();
    let plan = planned(&paused, sets("*2/2@1", 2));
    assert_eq!(said(&plan, "Progressing"), "Unknown DeploymentPaused");
    let mut resumed = json!(plan.tell.unwrap());
    resumed["spec"]["paused"] = false.into();
    resumed["status"]["availableReplicas"] = 2.into();
    let plan = planned(&resumed, sets("*2/1@1", 2));
    assert_eq!(said(&plan, "Progressing"), "Unknown DeploymentResumed");
}

#[test]
fn what_is_being_deleted_only_says_how_it_is() {
    let mut deployment = deployment(5, &json!(1), &json!(0));
    deployment["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let plan = planned(&deployment, sets("3/3@1", 3));
    assert_eq!(acts(&plan), "");
    assert_eq!(plan.tell.unwrap().status.unwrap().replicas, Some(3));
}

#[test]
fn what_is_done_and_said_is_not_done_and_said_again() {
    let mut deployment = deployment(3, &json!(1), &json!(0));
    for _ in 0..3 {
        let plan = planned(&deployment, sets("0/0@1 *3/3@2", 3));
        if let Some(told) = plan.tell {
            deployment = json!(told);
        }
    }
    let plan = planned(&deployment, sets("0/0@1 *3/3@2", 3));
    assert_eq!(plan, Plan::default());
}
