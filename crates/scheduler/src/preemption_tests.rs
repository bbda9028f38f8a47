use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::framework::{Decision, decide};

fn cluster(nodes: &[&str]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for name in nodes {
        let node = json!({"metadata": {"name": name},
            "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}}});
        snapshot.put_node(Arc::new(serde_json::from_value(node).unwrap()));
    }
    snapshot
}

/// `cpu` whole processors; `more` is laid over it.
fn pod(name: &str, node: &str, priority: i32, cpu: u32, more: Value) -> Arc<Pod> {
    let mut pod = json!({"metadata": {"name": name, "uid": name, "namespace": "d", "labels": {"app": name}},
        "spec": {"nodeName": node, "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu.to_string()}}}]},
        "status": {"startTime": "2026-01-01T00:00:00Z"}});
    json_patch::merge(&mut pod, &more);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn plain(name: &str, node: &str, priority: i32, cpu: u32) -> Arc<Pod> {
    pod(name, node, priority, cpu, json!({}))
}

fn budgets(all: &[(&str, i32)]) -> BTreeMap<(String, String), Arc<PodDisruptionBudget>> {
    all.iter().map(|(app, allowed)| (("d".to_owned(), (*app).to_owned()), budget(app, *allowed))).collect()
}

fn budget(app: &str, allowed: i32) -> Arc<PodDisruptionBudget> {
    let budget = json!({"metadata": {"name": app, "namespace": "d"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    Arc::new(serde_json::from_value(budget).unwrap())
}

/// The node and the names of the victims, or the message.
fn outcome(pod: &Pod, snapshot: &Snapshot) -> Result<(String, Vec<String>), String> {
    match decide(pod, snapshot, 0) {
        Decision::Preempt(room, _) => {
            Ok((room.node, room.victims.iter().map(|v| v.metadata.name.clone().unwrap()).collect()))
        }
        Decision::Nowhere(message) | Decision::Wait(message) => Err(message),
        Decision::Failed(why) => panic!("{why}"),
        Decision::Place { node, .. } => panic!("there is room on {node}"),
    }
}

fn victims(on: &str, names: &[&str]) -> Result<(String, Vec<String>), String> {
    Ok((on.to_owned(), names.iter().map(|name| (*name).to_owned()).collect()))
}

#[test]
fn no_more_go_than_must_and_the_least_important_go_first() {
    let mut s = cluster(&["n"]);
    s.place([plain("a", "n", 1, 1), plain("b", "n", 2, 1), plain("c", "n", 3, 1), plain("d", "n", 9, 1)]);
    assert_eq!(outcome(&plain("p", "", 5, 2), &s), victims("n", &["b", "a"]));
    assert_eq!(outcome(&plain("p", "", 5, 3), &s), victims("n", &["c", "b", "a"]));
}

#[test]
fn of_two_alike_the_younger_goes() {
    let mut s = cluster(&["n"]);
    let young = pod("young", "n", 1, 2, json!({"status": {"startTime": "2026-01-02T00:00:00Z"}}));
    s.place([plain("old", "n", 1, 2), young]);
    assert_eq!(outcome(&plain("p", "", 5, 2), &s), victims("n", &["young"]));
}

#[test]
fn the_node_is_chosen_by_budgets_then_by_what_its_victims_matter() {
    let mut s = cluster(&["a", "b", "c"]);
    s.place([
        plain("low", "a", 1, 4),
        plain("mid", "b", 2, 4),
        plain("many1", "c", 1, 2),
        plain("many2", "c", 1, 2),
    ]);
    let wanted = plain("p", "", 5, 4);
    assert_eq!(outcome(&wanted, &s), victims("a", &["low"]), "one of low priority is less than two");
    s.budgets = budgets(&[("low", 0), ("many1", 0)]);
    assert_eq!(outcome(&wanted, &s), victims("b", &["mid"]), "no budget is broken there");
    s.budgets = budgets(&[("low", 1), ("many1", 0)]);
    assert_eq!(outcome(&wanted, &s), victims("a", &["low"]), "its budget allows one");
    s.budgets = budgets(&[("low", 0), ("mid", 0), ("many1", 0)]);
    assert_eq!(outcome(&wanted, &s), victims("a", &["low"]), "where all are broken, the least important");
}

#[test]
fn who_is_held_by_a_budget_stays_if_another_can_go() {
    let mut s = cluster(&["n"]);
    s.place([plain("held", "n", 1, 2), plain("free", "n", 2, 2)]);
    s.budgets = budgets(&[("held", 0)]);
    assert_eq!(outcome(&plain("p", "", 5, 2), &s), victims("n", &["free"]));
}

#[test]
fn why_nobody_makes_room_is_said() {
    let mut s = cluster(&["a", "b"]);
    s.place([plain("x", "a", 5, 4), plain("y", "b", 1, 4)]);
    let rows = [
        (
            plain("p", "", 1, 1),
            "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption \
             victims found for incoming pod.",
        ),
        (
            plain("p", "", 5, 5),
            "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 Preemption is not \
             helpful for scheduling.",
        ),
        (
            pod("p", "", 5, 1, json!({"spec": {"preemptionPolicy": "Never"}})),
            "0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.",
        ),
    ];
    for (pod, message) in rows {
        assert_eq!(outcome(&pod, &s), Err(message.to_owned()));
    }
}

#[test]
fn a_promised_node_is_waited_for_and_kept_from_those_who_matter_less() {
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-03T00:00:00Z"},
        "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": REASON}]}});
    let promised = pod("p", "", 5, 4, json!({"status": {"nominatedNodeName": "n"}}));
    let mut s = cluster(&["n"]);
    s.nominated.insert("n".to_owned(), vec![Arc::clone(&promised).into()]);
    s.place([pod("v", "n", 1, 4, going)]);
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on the \
                   nominated node.";
    assert_eq!(decide(&promised, &s, 0), Decision::Wait(message.to_owned()));
    let mut gone = cluster(&["n"]);
    gone.nominated.clone_from(&s.nominated);
    assert!(matches!(decide(&promised, &gone, 0), Decision::Place { .. }));
    assert!(matches!(decide(&plain("less", "", 4, 1), &gone, 0), Decision::Nowhere(_)));
    assert!(matches!(decide(&plain("more", "", 6, 1), &gone, 0), Decision::Place { .. }));
}

#[test]
fn a_victim_does_not_count_where_a_promised_pod_takes_its_seat() {
    let mut s = Snapshot::default();
    let node = json!({"metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}}});
    s.put_node(Arc::new(serde_json::from_value(node).unwrap()));
    s.place([plain("disliked", "n", 0, 1)]);
    let promised: Arc<Pod> = plain("promised", "", 10, 1);
    s.nominated.insert("n".to_owned(), vec![promised.into()]);
    let term = json!({"labelSelector": {"matchLabels": {"app": "disliked"}}, "topologyKey": "kubernetes.io/hostname"});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let pod = pod("p", "", 10, 1, json!({"spec": {"affinity": apart}}));
    assert_eq!(outcome(&pod, &s), victims("n", &["disliked"]));
}
