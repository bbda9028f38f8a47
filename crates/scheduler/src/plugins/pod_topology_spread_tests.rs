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
    let state = State::of(pod, snapshot);
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
    let state = State::of(&pod, &s);
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
    let state = State::of(&pod, &s);
    let crowd = |name: &str| state.crowd(&s.nodes[name]);
    assert!(crowd("a1") > crowd("b1"));
    assert_eq!(crowd("none"), None);
}
