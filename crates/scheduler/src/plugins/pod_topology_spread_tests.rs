use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

/// Nodes in zones `a`, `a`, `b` and one without a zone; a Pod `web` on each name of `pods`.
fn cluster(pods: &[&str]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, labels) in [
        ("a1", json!({"zone": "a"})),
        ("a2", json!({"zone": "a"})),
        ("b1", json!({"zone": "b", "disk": "fast"})),
        ("none", json!({})),
    ] {
        let node = json!({"metadata": {"name": name, "labels": labels}});
        snapshot.put_node(Arc::new(serde_json::from_value(node).unwrap()));
    }
    snapshot.place(pods.iter().map(|node| pod(node, json!([]), json!(null)).pod));
    snapshot
}

fn pod(node: &str, constraints: Value, selector: Value) -> PodInfo {
    let pod = json!({"metadata": {"name": "web", "namespace": "d", "labels": {"app": "web"}},
        "spec": {"nodeName": node, "nodeSelector": selector, "topologySpreadConstraints": constraints,
            "containers": []}});
    Arc::new(serde_json::from_value::<Pod>(pod).unwrap()).into()
}

fn constraint(more: Value) -> Value {
    let mut constraint = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    json_patch::merge(&mut constraint, &more);
    json!([constraint])
}

fn fits(pod: &PodInfo, snapshot: &Snapshot) -> Vec<String> {
    let state = State::of(pod, snapshot, None);
    let nodes = snapshot.nodes.values().filter(|node| state.filter(pod, node, snapshot).is_ok());
    nodes.map(|node| node.name().to_owned()).collect()
}

#[test]
fn no_place_gets_more_than_the_skew_above_the_emptiest() {
    let rows = [
        (vec![], json!({}), json!(null), vec!["a1", "a2", "b1"]),
        (vec!["a1"], json!({}), json!(null), vec!["b1"]),
        (vec!["a1"], json!({"maxSkew": 2}), json!(null), vec!["a1", "a2", "b1"]),
        (vec!["a1", "b1"], json!({}), json!(null), vec!["a1", "a2", "b1"]),
        // Fewer places than are wanted: the emptiest counts as empty.
        (vec!["a1", "b1"], json!({"minDomains": 3}), json!(null), vec![]),
        // Nodes that the Pod cannot be on are no places, unless that is to be ignored.
        (vec!["b1"], json!({}), json!({"disk": "fast"}), vec!["a1", "a2", "b1"]),
        (vec!["b1"], json!({"nodeAffinityPolicy": "Ignore"}), json!({"disk": "fast"}), vec!["a1", "a2"]),
        // Others of another kind are not counted.
        (
            vec!["a1"],
            json!({"labelSelector": {"matchLabels": {"app": "db"}}}),
            json!(null),
            vec!["a1", "a2", "b1"],
        ),
    ];
    for (pods, more, selector, expected) in rows {
        let found = fits(&pod("", constraint(more.clone()), selector.clone()), &cluster(&pods));
        assert_eq!(found, expected, "{pods:?} {more} {selector}");
    }
}

#[test]
fn why_not_tells_a_missing_label_from_what_is_uneven() {
    let s = cluster(&["a1"]);
    let pod = pod("", constraint(json!({})), json!(null));
    let state = State::of(&pod, &s, None);
    assert_eq!(state.filter(&pod, &s.nodes["none"], &s), Err(Rejection::lasting(MISSING)));
    assert_eq!(state.filter(&pod, &s.nodes["a2"], &s), Err(Rejection::passing(UNEVEN)));
    let emptied = s.nodes["a1"].emptied();
    assert_eq!(state.filter(&pod, &emptied, &s), Ok(()), "once its Pod has made room");
}

#[test]
fn what_may_be_uneven_is_only_disliked() {
    let s = cluster(&["a1", "a2"]);
    let pod = pod("", constraint(json!({"whenUnsatisfiable": "ScheduleAnyway"})), json!(null));
    assert_eq!(fits(&pod, &s).len(), 4);
    let state = State::of(&pod, &s, None);
    let crowd = |name: &str| state.crowd(&s.nodes[name]);
    assert!(crowd("a1") > crowd("b1"));
    assert_eq!(crowd("none"), None);
}

#[test]
fn pods_of_a_service_are_spread_over_nodes_and_zones_though_they_do_not_ask() {
    let mut s = Snapshot::default();
    for (name, zone) in [("a1", Some("a")), ("a2", Some("a")), ("b1", Some("b")), ("none", None)] {
        let mut labels = json!({"kubernetes.io/hostname": name});
        if let Some(zone) = zone {
            labels["topology.kubernetes.io/zone"] = zone.into();
        }
        let node = json!({"metadata": {"name": name, "labels": labels}});
        s.put_node(Arc::new(serde_json::from_value(node).unwrap()));
    }
    s.place(["a1", "none"].map(|node| pod(node, json!([]), json!(null)).pod));
    let asking = pod("", json!([]), json!(null));
    let crowds = |s: &Snapshot, pod: &PodInfo| {
        let state = State::of(pod, s, None);
        ["a1", "a2", "b1", "none"].map(|name| state.crowd(&s.nodes[name]))
    };
    assert_eq!(crowds(&s, &asking), [None; 4], "of no Service");
    s.owners.set_service("d", "web", Some([("app".to_owned(), "web".to_owned())].into()));
    let [a1, a2, b1, none] = crowds(&s, &asking).map(Option::unwrap);
    assert!(a1 > a2 && a2 > b1, "{a1} {a2} {b1}");
    assert!(none < a1, "what has no zone is only counted by node: {none}");
    assert_eq!(fits(&asking, &s).len(), 4, "no node is refused");
    // Whoever asks for something has that alone.
    let own = pod("", constraint(json!({"topologyKey": "kubernetes.io/hostname"})), json!(null));
    assert_eq!(crowds(&s, &own), [None; 4]);
    assert_eq!(fits(&own, &s), ["a2", "b1"]);
}
