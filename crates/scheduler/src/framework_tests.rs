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
    assert_eq!(
        placed,
        Decision::Place { node: "b".to_owned(), bindings: Bindings::default(), devices: Given::default() }
    );
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
        (
            "volume is elsewhere",
            Some(bound),
            Some(elsewhere),
            "didn't match PersistentVolume's node affinity",
        ),
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
fn an_ephemeral_volume_waits_for_a_claim_of_its_own() {
    let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
    let asking = pod(json!({"containers": asking("1"), "volumes": [volume]}));
    let mut s = snapshot(&[node("a", "4")]);
    let said = |s: &Snapshot, expected: &str| match decide(&asking, s, 0) {
        Decision::Nowhere(message) => assert!(message.contains(expected), "{message}"),
        other => panic!("{other:?}"),
    };
    said(&s, "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-v\"");
    s.claims.insert(
        ("default".to_owned(), "p-v".to_owned()),
        claim("none", json!({"metadata": {"name": "p-v"}})),
    );
    said(&s, "PVC default/p-v was not created for pod default/p (pod is not owner)");
}

#[test]
fn of_many_nodes_as_many_are_looked_at_as_upstream_does_and_all_take_turns() {
    for (nodes, expected) in
        [(1, 1), (99, 99), (100, 100), (250, 120), (1000, 420), (5000, 500), (6000, 300), (10_000, 500)]
    {
        assert_eq!(enough(nodes, 0), expected, "{nodes}");
    }
    for (nodes, percentage, expected) in [(10, 40, 10), (1000, 40, 400), (6000, 40, 2400), (1000, 100, 1000)]
    {
        assert_eq!(enough(nodes, percentage), expected, "{percentage} in a hundred of {nodes}");
    }
    let names: Vec<Value> = (0..250).map(|n| node(&format!("n{n:03}"), "4")).collect();
    let mut s = snapshot(&names);
    let asking: PodInfo = Arc::new(pod(json!({"containers": asking("1")}))).into();
    let first = attempt(&asking, &s, &Profile::default(), 0);
    assert_eq!(first.looked_at, 120);
    s.start = 120;
    assert_ne!(attempt(&asking, &s, &Profile::default(), 0).decision, first.decision);
    let huge: PodInfo = Arc::new(pod(json!({"containers": self::asking("5")}))).into();
    let nowhere = attempt(&huge, &s, &Profile::default(), 0);
    assert_eq!((nowhere.looked_at, nowhere.rejected_by), (250, [Plugin::NodeResourcesFit].into()));
}

#[test]
fn a_pod_takes_the_node_that_it_was_promised_if_it_fits_there() {
    let mut s = snapshot(&[node("a", "4"), node("b", "4")]);
    s.place([Arc::new(pod(json!({"nodeName": "a", "containers": asking("3")})))]);
    let mut promised = pod(json!({"containers": asking("1")}));
    promised.status = serde_json::from_value(json!({"nominatedNodeName": "a"})).unwrap();
    let place = |node: &str| Decision::Place {
        node: node.to_owned(),
        bindings: Bindings::default(),
        devices: Given::default(),
    };
    assert_eq!(decide(&promised, &s, 0), place("a"));
    promised.spec = pod(json!({"containers": asking("2")})).spec;
    assert_eq!(decide(&promised, &s, 0), place("b"));
}

/// Where a Pod goes by a profile, which a file describes.
fn by_profile(profile: &str, pod: trine_typed::k8s_openapi::api::core::v1::Pod, s: &Snapshot) -> Decision {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n";
    let config = crate::profile::read(&format!("{head}{profile}")).unwrap();
    attempt(&Arc::new(pod).into(), s, &config.profiles[0], 0).decision
}

fn placed(node: &str) -> Decision {
    Decision::Place { node: node.to_owned(), bindings: Bindings::default(), devices: Given::default() }
}

#[test]
fn a_profile_says_which_nodes_are_liked_and_who_may_object() {
    let mut tainted = node("b", "4");
    json_merge(&mut tainted, json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}));
    let mut s = snapshot(&[node("a", "4"), tainted]);
    s.place([Arc::new(pod(json!({"nodeName": "b", "containers": asking("2")})))]);
    let asked = || pod(json!({"containers": asking("1")}));
    let rows = [
        ("the default", "  - {}", "a"),
        (
            "no taint counts, and the fullest is the best",
            "  - plugins: {multiPoint: {disabled: [{name: TaintToleration}, {name: NodeResourcesBalancedAllocation}]}}\n    \
             pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]",
            "b",
        ),
        (
            "somebody asks for another node on behalf of all",
            "  - plugins: {filter: {disabled: [{name: TaintToleration}]}}\n    pluginConfig:\n      - name: NodeAffinity\n        \
             args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: \
             [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [b]}]}]}}}",
            "b",
        ),
    ];
    for (name, profile, node) in rows {
        assert_eq!(by_profile(profile, asked(), &s), placed(node), "{name}");
    }
    let nowhere = by_profile(
        "  - pluginConfig:\n      - name: NodeAffinity\n        args: {addedAffinity: \
         {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: \
         [{key: disk, operator: Exists}]}]}}}",
        asked(),
        &s,
    );
    let Decision::Nowhere(message) = nowhere else { panic!("{nowhere:?}") };
    let enforced =
        "1 node(s) didn't match scheduler-enforced node affinity, 1 node(s) had untolerated taint(s)";
    assert!(message.starts_with(&format!("0/2 nodes are available: {enforced}.")), "{message}");
}

#[test]
fn who_preempts_nobody_says_so_only() {
    let mut s = snapshot(&[node("a", "1")]);
    s.place([Arc::new(pod(json!({"nodeName": "a", "containers": asking("1")})))]);
    let important = || pod(json!({"priority": 10, "containers": asking("1")}));
    let profile = "  - plugins: {postFilter: {disabled: [{name: \"*\"}]}}";
    let message = "0/1 nodes are available: 1 Insufficient cpu.".to_owned();
    assert_eq!(by_profile(profile, important(), &s), Decision::Nowhere(message));
    assert!(matches!(by_profile("  - {}", important(), &s), Decision::Preempt(..)));
}

#[test]
fn pods_that_ask_for_no_spreading_are_spread_as_the_profile_says() {
    let zoned = |name: &str, zone: &str| {
        let mut node = node(name, "4");
        json_merge(&mut node, json!({"metadata": {"labels": {"zone": zone}}}));
        node
    };
    let mut s = snapshot(&[zoned("a", "x"), zoned("b", "x"), zoned("c", "y")]);
    s.owners.set_service("default", "web", Some([("app".to_owned(), "web".to_owned())].into()));
    let web = |node: Option<&str>| {
        let mut web = pod(json!({"nodeName": node, "containers": []}));
        web.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        web
    };
    s.place([Arc::new(web(Some("c")))]);
    let profile = |when: &str| {
        format!(
            "  - pluginConfig:\n      - name: PodTopologySpread\n        args: {{defaultingType: List, defaultConstraints: \
             [{{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: {when}}}]}}"
        )
    };
    let crowded = |profile: &str| {
        let Decision::Place { node, .. } = by_profile(profile, web(None), &s) else { panic!("{profile}") };
        node == "c"
    };
    assert!(!crowded(&profile("DoNotSchedule")) && !crowded(&profile("ScheduleAnyway")));
    s.place([Arc::new(web(Some("c"))), Arc::new(web(Some("a")))]);
    let asked = crate::plugins::pod_topology_spread::asked(&Arc::new(web(None)).into(), &s.owners, Some(&[]));
    assert_eq!(asked.len(), 0, "an empty list spreads nothing");
}
