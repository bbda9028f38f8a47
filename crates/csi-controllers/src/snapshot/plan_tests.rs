use serde_json::{Value, json};

use super::*;

const DRIVER: &str = "d";

fn merged<T: serde::de::DeserializeOwned>(mut base: Value, change: &Value) -> Arc<T> {
    fn merge(base: &mut Value, change: &Value) {
        match (base, change) {
            (Value::Object(base), Value::Object(change)) => {
                for (key, value) in change {
                    if value.is_null() {
                        base.remove(key);
                    } else {
                        merge(base.entry(key).or_insert(Value::Null), value);
                    }
                }
            }
            (base, change) => *base = change.clone(),
        }
    }
    merge(&mut base, change);
    Arc::new(serde_json::from_value(base).unwrap())
}

/// A snapshot that has its finalizers and its class.
fn snapshot(change: &Value) -> Arc<VolumeSnapshot> {
    let base = json!({"metadata": {"name": "s", "namespace": "ns", "uid": "u", "finalizers": [BOUND, AS_SOURCE]},
        "spec": {"source": {"persistentVolumeClaimName": "c"}, "volumeSnapshotClassName": "class"}});
    merged(base, change)
}

fn content(change: &Value) -> Arc<VolumeSnapshotContent> {
    let base = json!({"metadata": {"name": "snapcontent-u", "finalizers": [CONTENT]}, "spec": {"driver": DRIVER,
        "deletionPolicy": "Delete", "source": {"volumeHandle": "h"}, "volumeSnapshotClassName": "class",
        "volumeSnapshotRef": {"name": "s", "namespace": "ns", "uid": "u"}}});
    merged(base, change)
}

fn claim(change: &Value) -> Arc<PersistentVolumeClaim> {
    let base =
        json!({"metadata": {"name": "c", "namespace": "ns", "uid": "cu"}, "spec": {"volumeName": "v"}});
    merged(base, change)
}

fn world(snapshots: Vec<Arc<VolumeSnapshot>>, contents: Vec<Arc<VolumeSnapshotContent>>) -> World {
    let class = |name: &str, driver: &str, default: bool| {
        let annotations = if default { json!({DEFAULT_CLASS: "true"}) } else { json!({}) };
        let class = json!({"metadata": {"name": name, "annotations": annotations}, "driver": driver,
            "deletionPolicy": "Delete"});
        (name.to_owned(), merged::<VolumeSnapshotClass>(class, &json!({})))
    };
    let volume = json!({"metadata": {"name": "v"}, "spec": {"csi": {"driver": DRIVER, "volumeHandle": "h"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": "In", "values": ["n1"]}]}]}}}});
    let node =
        |name: &str| (name.to_owned(), merged(json!({"metadata": {"labels": {"k": name}}}), &json!({})));
    World {
        snapshots,
        contents: contents.into_iter().map(|c| (c.metadata.name.clone().unwrap(), c)).collect(),
        classes: [class("class", DRIVER, false), class("default", DRIVER, true), class("other", "e", true)]
            .into(),
        claims: vec![claim(&json!({}))],
        volumes: [("v".to_owned(), merged(volume, &json!({})))].into(),
        nodes: [node("n1"), node("n2")].into(),
    }
}

fn me(node: Option<&str>) -> Me {
    Me { driver: DRIVER.to_owned(), node: node.map(str::to_owned) }
}

fn names(actions: &[Action]) -> Vec<String> {
    let name = |action: &Action| match action {
        Action::Protect(_, class) => format!("protect {}", class.as_deref().unwrap_or_default()),
        Action::Begin(begin) => format!("begin {}", begin.class.metadata.name.as_deref().unwrap()),
        Action::Bind(..) => "bind".to_owned(),
        Action::Tell(_, status) => format!("tell {}", status.ready_to_use.unwrap()),
        Action::Refuse(..) => "refuse".to_owned(),
        Action::Discard(..) => "discard".to_owned(),
        Action::Release(..) => "release".to_owned(),
        Action::Free(..) => "free".to_owned(),
        Action::Take(..) => "take".to_owned(),
        Action::Look(..) => "look".to_owned(),
        Action::Delete(..) => "delete".to_owned(),
        Action::Forget(..) => "forget".to_owned(),
    };
    actions.iter().map(name).collect()
}

#[test]
fn a_snapshot_is_begun_once_in_the_right_class_and_on_the_right_node() {
    let fresh = json!({"metadata": {"finalizers": null}});
    let unnamed = json!({"metadata": {"finalizers": null}, "spec": {"volumeSnapshotClassName": null}});
    let class = |name: &str| json!({"spec": {"volumeSnapshotClassName": name}});
    for (name, change, node, expected) in [
        ("new", fresh, None, vec!["protect "]),
        ("new, without a class", unnamed, None, vec!["protect default"]),
        ("protected", json!({}), None, vec!["begin class"]),
        ("on the volume's node", json!({}), Some("n1"), vec!["begin class"]),
        ("on another node", json!({}), Some("n2"), vec![]),
        ("unknown class", class("none"), None, vec!["refuse"]),
        ("class of another driver", class("other"), None, vec!["refuse"]),
        ("no such claim", json!({"spec": {"source": {"persistentVolumeClaimName": "x"}}}), None, vec![]),
    ] {
        let world = world(vec![snapshot(&change)], vec![]);
        assert_eq!(names(&plan(&world, &me(node))), expected, "{name}");
    }
}

#[test]
fn a_content_is_taken_told_of_and_bound() {
    let ready = json!({"status": {"snapshotHandle": "x", "readyToUse": true, "restoreSize": 1_048_576}});
    let told = json!({"status": {"boundVolumeSnapshotContentName": "snapcontent-u", "readyToUse": true, "restoreSize": "1Mi"}});
    let given = json!({"spec": {"source": {"volumeHandle": null, "snapshotHandle": "x"}}});
    let unbound = json!({"spec": {"volumeSnapshotRef": {"uid": null}}});
    let foreign = json!({"spec": {"volumeSnapshotRef": {"uid": "other"}}});
    let there = json!({"metadata": {"labels": {NODE: "n1"}}});
    let none = json!({});
    for (name, s, c, node, expected) in [
        ("new", &none, &none, None, vec!["tell false", "take"]),
        ("taken", &none, &ready, None, vec!["tell true"]),
        ("told", &told, &ready, None, vec![]),
        ("given by a user", &told, &given, None, vec!["tell false", "look"]),
        ("not bound yet", &none, &unbound, None, vec!["bind", "take"]),
        ("bound to another", &none, &foreign, None, vec!["refuse", "take"]),
        ("on this node", &none, &there, Some("n1"), vec!["tell false", "take"]),
        ("on another node", &none, &there, Some("n2"), vec![]),
        ("of another driver", &none, &json!({"spec": {"driver": "e"}}), None, vec![]),
    ] {
        let world = world(vec![snapshot(s)], vec![content(c)]);
        assert_eq!(names(&plan(&world, &me(node))), expected, "{name}");
    }
}

#[test]
fn what_goes_takes_the_drivers_snapshot_along_only_where_that_is_asked() {
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let begun = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": {BEING_DELETED: "yes"}}});
    let retained = json!({"spec": {"deletionPolicy": "Retain"}, "status": {"readyToUse": true}});
    let mut retained_going = retained.clone();
    retained_going["metadata"] = going["metadata"].clone();
    let ready = json!({"status": {"readyToUse": true}});
    for (name, s, c, expected) in [
        ("the snapshot goes", Some(&going), Some(&ready), vec!["discard"]),
        ("its content goes, too", Some(&going), Some(&begun), vec!["delete"]),
        ("its content is gone", Some(&going), None, vec!["release"]),
        ("the content stays", Some(&going), Some(&retained), vec!["release"]),
        ("nobody has the content", None, Some(&going), vec!["delete"]),
        ("nobody has it, and it is retained", None, Some(&retained_going), vec!["forget"]),
    ] {
        let world = world(s.map(snapshot).into_iter().collect(), c.map(content).into_iter().collect());
        assert_eq!(names(&plan(&world, &me(None))), expected, "{name}");
    }
    // Not below a snapshot that stays, however ready.
    let world = world(vec![snapshot(&json!({}))], vec![content(&begun)]);
    assert!(!names(&plan(&world, &me(None))).contains(&"delete".to_owned()));
}

#[test]
fn a_snapshot_of_which_a_volume_is_being_made_stays() {
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let ready = json!({"status": {"readyToUse": true}});
    let mut world = world(vec![snapshot(&going)], vec![content(&ready)]);
    let source = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
    let waiting = claim(
        &json!({"metadata": {"name": "new", "uid": "nu"}, "spec": {"volumeName": null, "dataSource": source}}),
    );
    world.claims.push(Arc::clone(&waiting));
    assert_eq!(names(&plan(&world, &me(None))), Vec::<String>::new());
    world.claims[1] =
        claim(&json!({"metadata": {"name": "new", "uid": "nu"}, "spec": {"dataSource": source}}));
    assert_eq!(names(&plan(&world, &me(None))), ["discard"]);
}

#[test]
fn a_claim_is_held_while_it_is_copied() {
    let held = json!({"metadata": {"finalizers": [CLAIM]}});
    let ready = json!({"status": {"readyToUse": true, "boundVolumeSnapshotContentName": "snapcontent-u"}});
    let ready_content = json!({"status": {"readyToUse": true}});
    for (name, snapshots, contents, expected) in [
        ("being taken", vec![snapshot(&json!({}))], vec![], vec!["begin class"]),
        ("taken", vec![snapshot(&ready)], vec![content(&ready_content)], vec!["free"]),
        ("no snapshot", vec![], vec![], vec!["free"]),
    ] {
        let mut world = world(snapshots, contents);
        world.claims = vec![claim(&held)];
        assert_eq!(names(&plan(&world, &me(None))), expected, "{name}");
    }
}
