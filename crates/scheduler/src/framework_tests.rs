use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn snapshot(nodes: &[Value]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for node in nodes {
        snapshot.put_node(Arc::new(serde_json::from_value(node.clone()).unwrap()));
    }
    snapshot
}

fn node(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
           "status": {"allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "110"}}})
}

fn pod(spec: Value) -> trine_typed::k8s_openapi::api::core::v1::Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "default"}, "spec": spec})).unwrap()
}

fn asking(cpu: &str) -> Value {
    json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
}

fn claim(class: &str, extra: Value) -> Arc<trine_typed::k8s_openapi::api::core::v1::PersistentVolumeClaim> {
    let mut value = json!({"metadata": {"name": "data", "namespace": "default"},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                 "resources": {"requests": {"storage": "1Gi"}}}});
    json_merge(&mut value, extra);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn json_merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (k, v) in from {
                json_merge(into.entry(k).or_insert(Value::Null), v);
            }
        }
        (into, from) => *into = from,
    }
}

fn with_claim() -> trine_typed::k8s_openapi::api::core::v1::Pod {
    pod(json!({"containers": asking("1"),
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}))
}

#[test]
fn a_pod_goes_to_the_node_with_more_room() {
    let mut s = snapshot(&[node("a", "4"), node("b", "4")]);
    s.place([Arc::new(pod(json!({"nodeName": "a", "containers": asking("2")})))]);
    let placed = decide(&pod(json!({"containers": asking("1")})), &s, 0);
    assert_eq!(placed, Decision::Place { node: "b".to_owned(), bindings: Bindings::default() });
}

#[test]
fn the_reasons_of_all_nodes_are_counted_in_upstreams_sentence() {
    let s = snapshot(&[
        node("a", "1"),
        node("b", "1"),
        json!({"metadata": {"name": "c"}, "spec": {"unschedulable": true}}),
    ]);
    let message = match decide(&pod(json!({"containers": asking("2")})), &s, 0) {
        Decision::Nowhere(message) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        message,
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: 0/3 nodes are \
         available: 3 Preemption is not helpful for scheduling."
    );
}

#[test]
fn a_waiting_claim_is_provisioned_for_the_chosen_node() {
    let mut s = snapshot(&[node("a", "4")]);
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "x",
                       "volumeBindingMode": "WaitForFirstConsumer"});
    s.classes.insert("fast".to_owned(), Arc::new(serde_json::from_value(class).unwrap()));
    s.claims.insert(("default".to_owned(), "data".to_owned()), claim("fast", json!({})));
    match decide(&with_claim(), &s, 0) {
        Decision::Place { bindings, .. } => assert_eq!(bindings.to_provision.len(), 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_wrong_with_a_claim_is_said() {
    let bound = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                       "spec": {"volumeName": "pv1"}});
    let elsewhere = json!({"metadata": {"name": "pv1"}, "spec": {"nodeAffinity": {"required":
        {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}]}}}});
    let rows: [(&str, Option<Value>, Option<Value>, &str); 4] = [
        ("missing claim", None, None, "persistentvolumeclaim \"data\" not found"),
        ("class does not exist", Some(json!({})), None, "pod has unbound immediate PersistentVolumeClaims"),
        ("volume is gone", Some(bound.clone()), None, "bound to non-existent pv(s)"),
        ("volume is elsewhere", Some(bound), Some(elsewhere), "volume node affinity conflict"),
    ];
    for (name, claim_extra, volume, expected) in rows {
        let mut s = snapshot(&[node("a", "4")]);
        if let Some(extra) = claim_extra {
            s.claims.insert(("default".to_owned(), "data".to_owned()), claim("none", extra));
        }
        if let Some(volume) = volume {
            s.volumes.insert("pv1".to_owned(), Arc::new(serde_json::from_value(volume).unwrap()));
        }
        match decide(&with_claim(), &s, 0) {
            Decision::Nowhere(message) => assert!(message.contains(expected), "{name}: {message}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn of_many_nodes_as_many_are_looked_at_as_upstream_does_and_all_take_turns() {
    for (nodes, expected) in
        [(1, 1), (99, 99), (100, 100), (250, 120), (1000, 420), (5000, 500), (10_000, 500)]
    {
        assert_eq!(enough(nodes), expected, "{nodes}");
    }
    let names: Vec<Value> = (0..250).map(|n| node(&format!("n{n:03}"), "4")).collect();
    let mut s = snapshot(&names);
    let asking: PodInfo = Arc::new(pod(json!({"containers": asking("1")}))).into();
    let first = attempt(&asking, &s, 0);
    assert_eq!(first.looked_at, 120);
    s.start = 120;
    assert_ne!(attempt(&asking, &s, 0).decision, first.decision);
    let huge: PodInfo = Arc::new(pod(json!({"containers": self::asking("5")}))).into();
    let nowhere = attempt(&huge, &s, 0);
    assert_eq!((nowhere.looked_at, nowhere.rejected_by), (250, [Plugin::NodeResourcesFit].into()));
}

#[test]
fn a_pod_takes_the_node_that_it_was_promised_if_it_fits_there() {
    let mut s = snapshot(&[node("a", "4"), node("b", "4")]);
    s.place([Arc::new(pod(json!({"nodeName": "a", "containers": asking("3")})))]);
    let mut promised = pod(json!({"containers": asking("1")}));
    promised.status = serde_json::from_value(json!({"nominatedNodeName": "a"})).unwrap();
    let place = |node: &str| Decision::Place { node: node.to_owned(), bindings: Bindings::default() };
    assert_eq!(decide(&promised, &s, 0), place("a"));
    promised.spec = pod(json!({"containers": asking("2")})).spec;
    assert_eq!(decide(&promised, &s, 0), place("b"));
}
