use std::sync::Arc;

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::core::v1::Pod;

use super::*;

/// Nodes `a1` and `a2` in zone `a`, `b1` in zone `b`.
fn cluster() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        let node = json!({"metadata": {"name": name, "labels": {"zone": zone, "host": name}}});
        snapshot.put_node(Arc::new(serde_json::from_value(node).unwrap()));
    }
    snapshot.set_namespace("other", Some([("team".to_owned(), "x".to_owned())].into()));
    snapshot
}

fn info(pod: &Arc<Pod>) -> PodInfo {
    Arc::clone(pod).into()
}

fn pod(app: &str, node: &str, namespace: &str, affinity: Value) -> Arc<Pod> {
    let pod = json!({"metadata": {"name": app, "namespace": namespace, "labels": {"app": app, "rev": "1"}},
        "spec": {"nodeName": node, "affinity": affinity, "containers": []}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn term(app: &str, key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key})
}

fn near(term: &Value) -> Value {
    json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

fn apart(term: &Value) -> Value {
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

/// The nodes that fit, and the reasons of the others.
fn fits(pod: &Arc<Pod>, snapshot: &Snapshot) -> (Vec<String>, Vec<Rejection>) {
    let pod = &info(pod);
    let state = State::of(pod, snapshot, &Args::default());
    let (mut fit, mut rejected) = (Vec::new(), Vec::new());
    for node in snapshot.nodes.values() {
        match state.filter(pod, node, snapshot) {
            Ok(()) => fit.push(node.name().to_owned()),
            Err(rejection) => rejected.push(rejection),
        }
    }
    (fit, rejected)
}

#[test]
fn a_pod_goes_where_its_terms_find_others_and_away_from_where_they_do() {
    let rows = [
        (near(&term("web", "zone")), vec!["a1", "a2"]),
        (near(&term("web", "host")), vec!["a1"]),
        (near(&term("nobody", "zone")), vec![]),
        (near(&term("new", "zone")), vec!["a1", "a2", "b1"]), // The first of its kind.
        (near(&term("new", "nowhere")), vec![]),              // A first one needs the label, too.
        (apart(&term("web", "zone")), vec!["b1"]),
        (apart(&term("web", "host")), vec!["a2", "b1"]),
        (apart(&term("far", "host")), vec!["a1", "a2", "b1"]), // In another namespace.
    ];
    let mut s = cluster();
    s.place([pod("web", "a1", "d", json!(null)), pod("far", "a1", "other", json!(null))]);
    for (affinity, expected) in rows {
        assert_eq!(fits(&pod("new", "", "d", affinity.clone()), &s).0, expected, "{affinity}");
    }
    let mut elsewhere = term("far", "host");
    elsewhere["namespaceSelector"] = json!({"matchLabels": {"team": "x"}});
    assert_eq!(fits(&pod("new", "", "d", apart(&elsewhere)), &s).0, ["a2", "b1"]);
    let mut own = term("web", "host");
    own["mismatchLabelKeys"] = json!(["rev"]);
    assert_eq!(fits(&pod("new", "", "d", apart(&own)), &s).0.len(), 3, "only those of other revisions");
}

#[test]
fn who_is_there_keeps_others_away_who_do_not_mind() {
    let mut s = cluster();
    s.place([pod("web", "b1", "d", apart(&term("new", "zone")))]);
    let (fit, rejected) = fits(&pod("new", "", "d", json!(null)), &s);
    assert_eq!(fit, ["a1", "a2"]);
    assert_eq!(rejected, [Rejection::passing("node(s) didn't satisfy existing pods anti-affinity rules")]);
}

#[test]
fn a_node_is_judged_as_it_would_be_without_some_of_its_pods() {
    let mut s = cluster();
    s.place([pod("web", "a1", "d", json!(null))]);
    let emptied = s.nodes["a1"].emptied();
    let apart = pod("new", "", "d", apart(&term("web", "zone")));
    let state = State::of(&info(&apart), &s, &Args::default());
    assert!(state.filter(&info(&apart), &s.nodes["a1"], &s).is_err());
    assert!(state.filter(&info(&apart), &emptied, &s).is_ok());
    let near = pod("new", "", "d", near(&term("web", "zone")));
    let state = State::of(&info(&near), &s, &Args::default());
    assert!(state.filter(&info(&near), &s.nodes["a1"], &s).is_ok());
    assert!(state.filter(&info(&near), &emptied, &s).is_err());
}

#[test]
fn what_is_preferred_by_either_side_counts() {
    let mut s = cluster();
    let weighted = |kind: &str, app: &str, weight: i32| {
        json!({kind: {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": weight, "podAffinityTerm": term(app, "zone")}]}})
    };
    s.place([
        pod("web", "a1", "d", near(&term("new", "zone"))),
        pod("db", "b1", "d", weighted("podAntiAffinity", "new", 7)),
    ]);
    let state =
        State::of(&info(&pod("new", "", "d", weighted("podAffinity", "web", 10))), &s, &Args::default());
    let scores: Vec<i64> = s.nodes.values().map(|node| state.score(node)).collect();
    assert_eq!(scores, [11, 11, -7]);
}

#[test]
fn what_is_required_by_those_that_are_there_counts_as_the_profile_says() {
    let mut s = cluster();
    let liking = |app: &str| {
        json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 10, "podAffinityTerm": term(app, "zone")}]}})
    };
    s.place([pod("web", "a1", "d", near(&term("new", "zone"))), pod("db", "b1", "d", liking("new"))]);
    let scores = |args: &Args, affinity: Value| {
        let state = State::of(&info(&pod("new", "", "d", affinity)), &s, args);
        s.nodes.values().map(|node| state.score(node)).collect::<Vec<i64>>()
    };
    let with = |weight: i64, heeds_existing: bool| Args {
        hard_affinity_weight: weight,
        heeds_existing,
        ..Args::default()
    };
    assert_eq!(scores(&with(1, true), json!(null)), [1, 1, 10]);
    assert_eq!(scores(&with(50, true), json!(null)), [50, 50, 10]);
    assert_eq!(scores(&with(0, true), json!(null)), [0, 0, 10]);
    assert_eq!(scores(&with(50, false), json!(null)), [0, 0, 0], "it likes nothing");
    assert_eq!(scores(&with(50, false), liking("web")), [60, 60, 10], "it likes something");
}
