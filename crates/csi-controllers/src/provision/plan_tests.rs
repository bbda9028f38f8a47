use serde_json::json;
use trine_contracts::csi;

use super::*;
use crate::driver::Offers;
use crate::provision::request;
use crate::provision::source::CLONING;

const DRIVER: &str = "disk.csi.trine.dev";
const KEY: &str = "topology.disk.csi.trine.dev/node";

fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn claim(change: serde_json::Value) -> Arc<PersistentVolumeClaim> {
    let mut base = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "annotations": {
            PROVISIONER[0]: DRIVER, SELECTED_NODE: "n1"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "s",
            "resources": {"requests": {"storage": "1Gi"}}},
    });
    merge(&mut base, &change);
    object(base)
}

fn volume(change: serde_json::Value) -> Arc<PersistentVolume> {
    let mut base = json!({
        "metadata": {"name": "pvc-u", "annotations": {PROVISIONED_BY: DRIVER}, "finalizers": [VOLUME_FINALIZER]},
        "spec": {"csi": {"driver": DRIVER, "volumeHandle": "h"}, "persistentVolumeReclaimPolicy": "Delete",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": KEY, "operator": "In", "values": ["n1"]}]}]}}},
        "status": {"phase": "Released"},
    });
    merge(&mut base, &change);
    object(base)
}

fn merge(base: &mut serde_json::Value, change: &serde_json::Value) {
    match (base, change) {
        (serde_json::Value::Object(base), serde_json::Value::Object(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    base.remove(key);
                    continue;
                }
                merge(base.entry(key).or_insert(serde_json::Value::Null), value);
            }
        }
        (base, change) => *base = change.clone(),
    }
}

fn world() -> World {
    let node =
        |name: &str| (name.to_owned(), object(json!({"metadata": {"name": name, "labels": {KEY: name}}})));
    let csi_node = |name: &str| {
        let drivers = json!([{"name": DRIVER, "nodeID": name, "topologyKeys": [KEY]}]);
        (name.to_owned(), object(json!({"metadata": {"name": name}, "spec": {"drivers": drivers}})))
    };
    let class = json!({"metadata": {"name": "s"}, "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer", "parameters": {"csi.storage.k8s.io/fstype": "xfs", "x": "y"}});
    let immediate = json!({"metadata": {"name": "i"}, "provisioner": DRIVER});
    World {
        classes: [("s".to_owned(), object(class)), ("i".to_owned(), object(immediate))].into(),
        nodes: [node("n1"), node("n2")].into(),
        csi_nodes: [csi_node("n1"), csi_node("n2")].into(),
        ..World::default()
    }
}

fn me(node: Option<&str>) -> Me {
    Me { driver: DRIVER.to_owned(), node: node.map(str::to_owned) }
}

fn names(actions: &[Action]) -> Vec<&'static str> {
    let name = |action: &Action| match action {
        Action::Provision(..) => "provision",
        Action::Abandon(..) => "abandon",
        Action::Release(..) => "release",
        Action::Refuse(..) => "refuse",
        Action::Reclaim(..) => "reclaim",
        Action::Forget(..) => "forget",
        Action::Unprotect(..) => "unprotect",
    };
    actions.iter().map(name).collect()
}

#[test]
fn a_claim_gets_its_volume_once_and_from_the_right_node() {
    let kept = json!({"metadata": {"finalizers": [CLAIM_FINALIZER]}});
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let mut leaving_kept = leaving.clone();
    merge(&mut leaving_kept, &kept);
    let unselected = json!({"metadata": {"annotations": {SELECTED_NODE: null}}});
    let mut immediate = unselected.clone();
    merge(&mut immediate, &json!({"spec": {"storageClassName": "i"}}));
    let (n1, n2, all) = (Some("n1"), Some("n2"), None);
    for (name, change, node, expected) in [
        ("selected here", json!({}), n1, vec!["provision"]),
        ("selected elsewhere", json!({}), n2, vec![]),
        ("one driver for all", json!({}), all, vec!["provision"]),
        ("not yet selected", unselected, all, vec![]),
        ("immediate, one for all", immediate.clone(), all, vec!["provision"]),
        ("immediate, first node", immediate.clone(), n1, vec!["provision"]),
        ("immediate, second node", immediate, n2, vec![]),
        ("another's", json!({"metadata": {"annotations": {PROVISIONER[0]: "x"}}}), n1, vec![]),
        (
            "asked under the old name",
            json!({"metadata": {"annotations": {PROVISIONER[0]: null, PROVISIONER[1]: DRIVER}}}),
            n1,
            vec!["provision"],
        ),
        ("bound", json!({"spec": {"volumeName": "pvc-u"}}), n1, vec![]),
        ("no such class", json!({"spec": {"storageClassName": "gone"}}), n1, vec![]),
        ("with a selector", json!({"spec": {"selector": {}}}), n1, vec!["refuse"]),
        (
            "a clone",
            json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "d"}}}),
            n1,
            vec!["provision"],
        ),
        (
            "a populator's",
            json!({"spec": {"dataSourceRef": {"kind": "Thing", "apiGroup": "x", "name": "d"}}}),
            n1,
            vec![],
        ),
        ("deleted before anything was begun", leaving, n1, vec![]),
        ("deleted in between", leaving_kept, n1, vec!["abandon"]),
    ] {
        let world = World { claims: vec![claim(change)], ..world() };
        assert_eq!(names(&plan(&world, &me(node))), expected, "{name}");
    }
}

#[test]
fn a_claim_whose_volume_is_there_is_free_to_go() {
    let kept = json!({"metadata": {"finalizers": [CLAIM_FINALIZER]}});
    let made = volume(json!({"status": {"phase": "Pending"}}));
    for (change, expected) in [(kept, vec!["release"]), (json!({}), vec![])] {
        let mut world = World { claims: vec![claim(change)], ..world() };
        world.volumes.insert("pvc-u".to_owned(), Arc::clone(&made));
        assert_eq!(names(&plan(&world, &me(Some("n1")))), expected);
    }
}

#[test]
fn a_volume_is_deleted_when_released_and_nowhere_attached() {
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let with = |change: serde_json::Value| {
        let mut merged = leaving.clone();
        merge(&mut merged, &change);
        merged
    };
    for (name, change, node, expected) in [
        ("released", json!({}), Some("n1"), vec!["reclaim"]),
        ("released, one driver for all", json!({}), None, vec!["reclaim"]),
        ("on another node", json!({}), Some("n2"), vec![]),
        ("bound", json!({"status": {"phase": "Bound"}}), Some("n1"), vec![]),
        ("bound and leaving", with(json!({"status": {"phase": "Bound"}})), Some("n1"), vec![]),
        ("released and leaving", leaving.clone(), Some("n1"), vec!["reclaim"]),
        ("done", with(json!({"metadata": {"finalizers": []}})), Some("n1"), vec![]),
        ("retained", json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}), Some("n1"), vec![]),
        (
            "retained and leaving",
            with(json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})),
            Some("n1"),
            vec!["forget"],
        ),
        ("by hand", json!({"metadata": {"annotations": {PROVISIONED_BY: null}}}), Some("n1"), vec![]),
        ("another's", json!({"spec": {"csi": {"driver": "x"}}}), Some("n1"), vec![]),
    ] {
        let mut world = world();
        world.volumes.insert("pvc-u".to_owned(), volume(change));
        assert_eq!(names(&plan(&world, &me(node))), expected, "{name}");
        let attachment = json!({"metadata": {"name": "a"}, "spec": {"attacher": DRIVER, "nodeName": "n1",
            "source": {"persistentVolumeName": "pvc-u"}}});
        world.attachments.push(object(attachment));
        let reclaimed = names(&plan(&world, &me(node))).contains(&"reclaim");
        assert!(!reclaimed, "{name}: attached");
    }
}

#[test]
fn a_failure_says_whether_a_volume_may_be_there() {
    use tonic::Status;
    for (status, chosen, expected) in [
        (Status::resource_exhausted(""), true, Failure::Reschedule),
        (Status::resource_exhausted(""), false, Failure::Finished),
        (Status::out_of_range(""), true, Failure::Finished),
        (Status::invalid_argument(""), true, Failure::Finished),
        (Status::aborted(""), true, Failure::InBackground),
        (Status::deadline_exceeded(""), true, Failure::InBackground),
        (Status::unavailable(""), false, Failure::InBackground),
        (Status::cancelled(""), false, Failure::InBackground),
    ] {
        assert_eq!(failure(&CallError::of("CreateVolume", &status), chosen), expected, "{status}");
    }
}

#[test]
fn the_place_comes_from_the_drivers_keys_and_the_nodes_labels() {
    let world = world();
    let segments = |t: &csi::Topology| t.segments.get(KEY).cloned().unwrap();
    let chosen = topology::requirement(&world, DRIVER, Some("n2"), &[], "c").unwrap().unwrap();
    assert_eq!(chosen.requisite.iter().map(segments).collect::<Vec<_>>(), ["n2"]);
    assert_eq!(chosen.preferred, chosen.requisite);
    let any = topology::requirement(&world, DRIVER, None, &[], "c").unwrap().unwrap();
    assert_eq!(any.requisite.iter().map(segments).collect::<Vec<_>>(), ["n1", "n2"]);
    let mut preferred: Vec<_> = any.preferred.iter().map(segments).collect();
    preferred.sort();
    assert_eq!(preferred, ["n1", "n2"]);
    let error = topology::requirement(&world, DRIVER, Some("n3"), &[], "c").unwrap_err();
    assert!(error.contains("not registered on node \"n3\""), "{error}");
}

#[test]
fn a_claim_becomes_a_request_and_its_answer_a_volume() {
    let world = world();
    let class = &world.classes["s"];
    let claim = claim(json!({"metadata": {"resourceVersion": "7"}}));
    let offers = Offers { single_node_multi_writer: true, ..Offers::default() };
    let request = request::create(&claim, class, &offers, None, true).unwrap();
    assert_eq!(request.name, "pvc-u");
    assert_eq!(request.capacity_range.unwrap().required_bytes, 1 << 30);
    assert_eq!(request.parameters["x"], "y");
    assert_eq!(request.parameters["csi.storage.k8s.io/pvc/name"], "c");
    assert!(!request.parameters.contains_key("csi.storage.k8s.io/fstype"));
    let capability = request::capability("ReadWriteOnce", false, "xfs", &[], &offers);
    assert_eq!(request.volume_capabilities, [capability]);
    let answer = csi::Volume {
        volume_id: "h".to_owned(),
        capacity_bytes: 3 << 29,
        accessible_topology: vec![csi::Topology { segments: [(KEY.to_owned(), "n1".to_owned())].into() }],
        ..Default::default()
    };
    let volume = request::persistent_volume(&claim, class, &request, &answer, DRIVER);
    let json = serde_json::to_value(&volume).unwrap();
    assert_eq!(json["spec"]["capacity"]["storage"], "1536Mi");
    assert_eq!(json["spec"]["csi"]["fsType"], "xfs");
    assert_eq!(json["spec"]["csi"]["volumeHandle"], "h");
    assert_eq!(json["spec"]["claimRef"]["uid"], "u");
    assert_eq!(json["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(json["metadata"]["annotations"][PROVISIONED_BY], DRIVER);
    let affinity = volume.spec.unwrap().node_affinity;
    assert!(topology::allows(affinity.as_ref(), &world.nodes["n1"]));
    assert!(!topology::allows(affinity.as_ref(), &world.nodes["n2"]));
}

#[test]
fn a_claim_is_kept_while_others_are_cloned_from_it() {
    let source = |phase: &str| {
        claim(json!({"metadata": {"name": "old", "uid": "o", "finalizers": [CLONING], "annotations": null},
            "spec": {"volumeName": "v-old"}, "status": {"phase": phase}}))
    };
    let of_old = json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "old"}}});
    let mut done = of_old.clone();
    merge(&mut done, &json!({"spec": {"volumeName": "pvc-u"}}));
    let of_volume = |driver: &str| {
        volume(
            json!({"metadata": {"name": "v-old"}, "spec": {"csi": {"driver": driver}}, "status": {"phase": "Bound"}}),
        )
    };
    for (name, other, driver, expected) in [
        ("one is being made", of_old, DRIVER, vec!["provision"]),
        ("it is made", done, DRIVER, vec!["unprotect"]),
        ("nobody wants one", json!({"spec": {"volumeName": "x"}}), DRIVER, vec!["unprotect"]),
        ("of another driver", json!({"spec": {"volumeName": "x"}}), "other", vec![]),
    ] {
        let mut world = world();
        world.claims = vec![source("Bound"), claim(other)];
        world.volumes.insert("v-old".to_owned(), of_volume(driver));
        assert_eq!(names(&plan(&world, &me(Some("n1")))), expected, "{name}");
    }
}
