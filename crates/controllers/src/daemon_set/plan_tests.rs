//! DaemonSets told as tables: a node as `name:pods`, where a Pod is `o`ld or `n`ew, in capitals if it is available, followed by
//! `F`ailed, `S`ucceeded or `-` if it is on its way out. A node that is not wanted begins with `!`, one where a Pod may stay with
//! `~`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::apps::v1::DaemonSet;
use trine_typed::k8s_openapi::api::core::v1::{Node, Pod};
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::plan::{Plan, Turn, plan, status};
use super::pod::HASH;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn set(surge: &Value, unavailable: &Value) -> DaemonSet {
    serde_json::from_value(json!({"metadata": {"name": "d", "namespace": "ns", "uid": "u", "generation": 2}, "spec": {
        "selector": {"matchLabels": {"app": "d"}}, "template": {"spec": {"nodeSelector": {"in": "yes"}, "containers": []}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}}))
    .unwrap()
}

fn world(text: &str) -> (Vec<Arc<Node>>, Vec<Arc<Pod>>) {
    let (mut nodes, mut pods) = (Vec::new(), Vec::new());
    for word in text.split_whitespace() {
        let (name, on_it) = word.split_once(':').unwrap();
        let (name, labels, taints) = match name.split_at(1) {
            ("!", name) => (name, json!({}), json!([])),
            ("~", name) => (name, json!({"in": "yes"}), json!([{"key": "t", "effect": "NoSchedule"}])),
            _ => (name, json!({"in": "yes"}), json!([])),
        };
        let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
        nodes.push(Arc::new(serde_json::from_value(node).unwrap()));
        let mut letters = on_it.chars().peekable();
        let mut number = 0;
        while let Some(letter) = letters.next() {
            let state = letters.next_if(|c| ['F', 'S', '-'].contains(c));
            let phase = match state {
                Some('F') => "Failed",
                Some('S') => "Succeeded",
                _ => "Running",
            };
            let hash = if letter.eq_ignore_ascii_case(&'n') { "new" } else { "old" };
            let ready = if letter.is_uppercase() { "True" } else { "False" };
            let going = (state == Some('-')).then_some("2026-01-01T11:00:00Z");
            let pod = json!({"metadata": {"name": format!("{name}{number}"), "namespace": "ns", "labels": {HASH: hash},
                    "creationTimestamp": format!("2026-01-01T10:00:{number:02}Z"), "deletionTimestamp": going},
                "spec": {"nodeName": name, "containers": []}, "status": {"phase": phase,
                    "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T11:00:00Z"}]}});
            pods.push(Arc::new(serde_json::from_value(pod).unwrap()));
            number += 1;
        }
    }
    (nodes, pods)
}

fn planned(set: &DaemonSet, text: &str, waits: &BTreeMap<String, Duration>) -> Plan {
    let (nodes, pods) = world(text);
    plan(&Turn::new(set, "new", &nodes, &pods, now()), waits)
}

fn acts(plan: &Plan) -> String {
    let mut acts: Vec<String> = plan.create.iter().map(|node| format!("+{node}")).collect();
    acts.extend(plan.delete.iter().map(|pod| format!("-{}", pod.metadata.name.as_deref().unwrap())));
    acts.join(" ")
}

#[test]
fn each_node_has_its_pod_and_no_other() {
    let rows = [
        ("missing", "a: b:N", "+a"),
        ("on its way out", "a:N-", ""),
        ("two", "a:NN", "-a1"),
        ("not wanted", "!a:N b:N", "-a0"),
        ("not wanted, going", "!a:N-", ""),
        ("may stay", "~a:N", ""),
        ("would not come", "~a:", ""),
        ("succeeded", "a:nS", "-a0"),
        ("failed", "a:nF", "-a0"),
    ];
    for (name, text, expected) in rows {
        assert_eq!(acts(&planned(&set(&json!(0), &json!(1)), text, &BTreeMap::new())), expected, "{name}");
    }
}

#[test]
fn a_pod_that_fails_again_and_again_stays_longer() {
    let set = set(&json!(0), &json!(1));
    let first = planned(&set, "a:nF", &BTreeMap::new());
    assert_eq!((acts(&first).as_str(), &first.failed), ("-a0", &vec!["a".to_owned()]));
    assert_eq!(first.notes[0].text, "Found failed daemon pod ns/a0 on node a, will try to kill it");
    let waits = BTreeMap::from([("a".to_owned(), Duration::from_secs(4))]);
    let again = planned(&set, "a:nF", &waits);
    assert_eq!((acts(&again).as_str(), again.again), ("", Some(Duration::from_secs(4))));
}

#[test]
fn old_pods_are_replaced_as_many_as_may_be_missing() {
    let rows = [
        ("one at a time", json!(1), "a:O b:O c:O", "-a0"),
        ("one is missing already", json!(1), "a:n b:O c:O", ""),
        ("one is going", json!(1), "a:O- b:O c:O", ""),
        ("what is of no use goes at once", json!(1), "a:o b:o c:O", "-a0 -b0"),
        ("half of them, and up", json!("50%"), "a:O b:O c:O", "-a0 -b0"),
        ("all new", json!(1), "a:N b:N", ""),
        ("placing comes first", json!(1), "a:O b:", "+b"),
        ("none would never end", json!(0), "a:O b:O", "-a0"),
    ];
    for (name, unavailable, text, expected) in rows {
        assert_eq!(acts(&planned(&set(&json!(0), &unavailable), text, &BTreeMap::new())), expected, "{name}");
    }
}

#[test]
fn new_pods_stand_in_before_old_ones_go() {
    let rows = [
        ("one more", "a:O b:O", "+a"),
        ("under way", "a:On b:O", ""),
        ("available", "a:ON b:O", "-a0"),
        ("the old one is of no use", "a:on b:O", "-a0"),
        ("of no use at all", "a:o b:o c:O", "+a +b +c"),
        ("on its way out", "a:N- b:N", "+a"),
        ("more than two", "a:OOn b:N", "-a1"),
        ("not wanted any more goes at once", "!a:O b:N", "-a0"),
        ("failed", "a:nF b:N", "-a0"),
    ];
    for (name, text, expected) in rows {
        assert_eq!(acts(&planned(&set(&json!(1), &json!(0)), text, &BTreeMap::new())), expected, "{name}");
    }
}

#[test]
fn only_deletion_brings_the_new_template_if_that_is_asked_for() {
    let mut set = set(&json!(0), &json!(1));
    set.spec.update_strategy = serde_json::from_value(json!({"type": "OnDelete"})).unwrap();
    assert_eq!(acts(&planned(&set, "a:O b:o", &BTreeMap::new())), "");
}

#[test]
fn the_status_counts_nodes() {
    let (nodes, pods) = world("a:N b:o c: ~d:N !e:O f:Nn");
    let set = set(&json!(0), &json!(1));
    let found = json!(status(&Turn::new(&set, "new", &nodes, &pods, now())));
    let expected = json!({"desiredNumberScheduled": 4, "currentNumberScheduled": 3, "numberReady": 2, "numberAvailable": 2,
        "numberUnavailable": 2, "numberMisscheduled": 2, "updatedNumberScheduled": 2, "observedGeneration": 2});
    assert_eq!(found, expected);
}

#[test]
fn what_never_got_to_a_node_that_is_gone_goes() {
    let set = set(&json!(0), &json!(1));
    let pod = super::pod::pod(&set, "gone", "new");
    let pods = [Arc::new(pod)];
    let found = plan(&Turn::new(&set, "new", &[], &pods, now()), &BTreeMap::new());
    assert_eq!(found.delete.len(), 1);
}
