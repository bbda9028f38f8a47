use serde_json::{Value, json};

use super::*;

const DRIVER: &str = "d";

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

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

fn merged<T: serde::de::DeserializeOwned>(mut base: Value, change: &Value) -> Arc<T> {
    merge(&mut base, change);
    read(base)
}

/// A group that has its finalizer and its class.
fn group(change: &Value) -> Arc<VolumeGroupSnapshot> {
    let base = json!({"metadata": {"name": "g", "namespace": "ns", "uid": "u", "finalizers": [BOUND]},
        "spec": {"source": {"selector": {"matchLabels": {"app": "db"}}}, "volumeGroupSnapshotClassName": "class"}});
    merged(base, change)
}

fn content(change: &Value) -> Arc<VolumeGroupSnapshotContent> {
    let base = json!({"metadata": {"name": "groupsnapcontent-u", "finalizers": [CONTENT]}, "spec": {
        "driver": DRIVER, "deletionPolicy": "Delete", "source": {"volumeHandles": ["h1", "h2"]},
        "volumeGroupSnapshotClassName": "class",
        "volumeGroupSnapshotRef": {"name": "g", "namespace": "ns", "uid": "u"}}});
    merged(base, change)
}

fn infos() -> Value {
    json!([{"volumeHandle": "h1", "snapshotHandle": "s1", "readyToUse": true},
        {"volumeHandle": "h2", "snapshotHandle": "s2", "readyToUse": true}])
}

fn taken(change: &Value) -> Arc<VolumeGroupSnapshotContent> {
    let mut status = json!({"status": {"volumeGroupSnapshotHandle": "gh", "readyToUse": true,
        "volumeSnapshotInfoList": infos()}});
    merge(&mut status, change);
    content(&status)
}

/// Both members of the group, with their contents.
fn members(world: &mut World) {
    for info in serde_json::from_value::<Vec<Info>>(infos()).unwrap() {
        let (name, content) = member_names(&group(&json!({})), &info);
        world.snapshots.push(read(json!({"metadata": {"name": name, "namespace": "ns",
            "finalizers": ["snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection"],
            "ownerReferences": [{"apiVersion": "a", "kind": "VolumeGroupSnapshot", "name": "g", "uid": "u"}]},
            "status": {"boundVolumeSnapshotContentName": content}})));
        let handle = info.snapshot_handle;
        let object = json!({"metadata": {"name": content}, "status": {"snapshotHandle": handle}});
        world.members.insert(content, read(object));
    }
}

fn volume(name: &str, driver: &str, node: &str) -> (String, Arc<PersistentVolume>) {
    let handle = name.replace('v', "h");
    let object = json!({"metadata": {"name": name}, "spec": {"csi": {"driver": driver, "volumeHandle": handle},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": "In", "values": [node]}]}]}}}});
    (name.to_owned(), read(object))
}

fn claim(name: &str, volume: &str) -> Arc<PersistentVolumeClaim> {
    read(json!({"metadata": {"name": name, "namespace": "ns", "labels": {"app": "db"}},
        "spec": {"volumeName": volume}}))
}

fn world(groups: Vec<Arc<VolumeGroupSnapshot>>, contents: Vec<Arc<VolumeGroupSnapshotContent>>) -> World {
    let class = |name: &str, driver: &str| {
        let object = json!({"metadata": {"name": name, "annotations": {DEFAULT_CLASS: "true"}},
            "driver": driver, "deletionPolicy": "Delete"});
        (name.to_owned(), read(object))
    };
    let node =
        |name: &str| (name.to_owned(), read(json!({"metadata": {"name": name, "labels": {"k": name}}})));
    World {
        groups,
        contents: contents.into_iter().map(|c| (c.metadata.name.clone().unwrap(), c)).collect(),
        classes: [class("class", DRIVER), class("other", "e")].into(),
        claims: vec![
            claim("b", "v2"),
            claim("a", "v1"),
            read(json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": {"volumeName": "v3"}})),
        ],
        volumes: [volume("v1", DRIVER, "n1"), volume("v2", DRIVER, "n1"), volume("v3", DRIVER, "n2")].into(),
        nodes: [node("n1"), node("n2")].into(),
        ..Default::default()
    }
}

fn me(node: Option<&str>) -> Me {
    Me { driver: DRIVER.to_owned(), node: node.map(str::to_owned) }
}

/// What is done, in short.
fn told(world: &World, me: &Me) -> Vec<String> {
    let short = |action: Action| match action {
        Action::Protect(_, class) => format!("protect {}", class.unwrap_or_default()),
        Action::Begin(begin) => format!("begin {}", begin.handles.join(" ")),
        Action::Bind(..) => "bind".to_owned(),
        Action::Fill(_, _, members) => {
            let volumes = members.iter().filter(|m| m.volume.is_some()).count();
            format!("fill {} of {volumes} volumes", members.len())
        }
        Action::Tell(_, status) => format!("tell ready={}", status.ready_to_use.unwrap_or_default()),
        Action::Refuse(_, text) => format!("refuse {text}"),
        Action::Discard(_, content, members) => {
            format!("discard {}{}", members.len(), if content.is_some() { " and the content" } else { "" })
        }
        Action::Release(_) => "release".to_owned(),
        Action::Take(_, class) => format!("take by {}", class.unwrap().metadata.name.as_deref().unwrap()),
        Action::Look(_) => "look".to_owned(),
        Action::Delete(..) => "delete".to_owned(),
        Action::Forget(_) => "forget".to_owned(),
    };
    plan(world, me).into_iter().map(short).collect()
}

#[test]
fn a_group_is_taken_of_all_claims_that_are_chosen_by_whoever_has_the_first() {
    let fresh = || {
        vec![group(
            &json!({"metadata": {"finalizers": null}, "spec": {"volumeGroupSnapshotClassName": null}}),
        )]
    };
    assert_eq!(told(&world(fresh(), vec![]), &me(None)), ["protect class"]);
    assert_eq!(told(&world(vec![group(&json!({}))], vec![]), &me(None)), ["begin h1 h2"]);
    assert_eq!(told(&world(vec![group(&json!({}))], vec![]), &me(Some("n1"))), ["begin h1 h2"]);
    assert_eq!(told(&world(vec![group(&json!({}))], vec![]), &me(Some("n2"))), Vec::<String>::new());
    let other = Me { driver: "e".to_owned(), node: None };
    assert_eq!(told(&world(vec![group(&json!({}))], vec![]), &other), Vec::<String>::new());
}

#[test]
fn what_cannot_be_taken_together_is_refused_with_the_reason() {
    const WHY: &str = "refuse failed to create group snapshot content with error";
    let selecting =
        |labels: Value| group(&json!({"spec": {"source": {"selector": {"matchLabels": labels}}}}));
    let none = world(vec![selecting(json!({"app": "none"}))], vec![]);
    assert_eq!(told(&none, &me(None)), [format!("{WHY} the selector matches no persistentVolumeClaim")]);
    let mut unbound = world(vec![group(&json!({}))], vec![]);
    unbound.claims.push(read(
        json!({"metadata": {"name": "d", "namespace": "ns", "labels": {"app": "db"}}, "spec": {}}),
    ));
    let text = "the PVC d is not yet bound to a PV, will not attempt to take a group snapshot";
    assert_eq!(told(&unbound, &me(None)), [format!("{WHY} {text}")]);
    let mut apart = world(vec![group(&json!({}))], vec![]);
    apart.claims.push(claim("d", "v3"));
    let text = "the volume of PVC d is not on node n1, where another one is";
    assert_eq!(told(&apart, &me(Some("n1"))), [format!("{WHY} {text}")]);
    assert_eq!(told(&apart, &me(Some("n2"))), Vec::<String>::new());
    let mut foreign = world(vec![group(&json!({}))], vec![]);
    foreign.volumes.extend([volume("v2", "e", "n1")]);
    let text = "the volume of PVC b is not of driver d";
    assert_eq!(told(&foreign, &me(None)), [format!("{WHY} {text}")]);
    let unknown = world(vec![group(&json!({"spec": {"volumeGroupSnapshotClassName": "x"}}))], vec![]);
    assert!(told(&unknown, &me(None))[0].ends_with("\"x\" not found"));
}

#[test]
fn a_taken_group_gets_its_members_and_then_says_so() {
    let one = || vec![group(&json!({}))];
    assert_eq!(
        told(&world(one(), vec![content(&json!({}))]), &me(None)),
        ["tell ready=false", "take by class"]
    );
    let mut world_ = world(one(), vec![taken(&json!({}))]);
    assert_eq!(told(&world_, &me(Some("n1"))), ["fill 2 of 2 volumes"]);
    members(&mut world_);
    assert_eq!(told(&world_, &me(None)), ["tell ready=true"]);
    let status =
        json!({"status": {"boundVolumeGroupSnapshotContentName": "groupsnapcontent-u", "readyToUse": true}});
    world_.groups = vec![group(&status)];
    assert_eq!(told(&world_, &me(None)), Vec::<String>::new());
    // A content of another node is not looked at.
    let labels = json!({"metadata": {"labels": {NODE: "n2"}}});
    assert_eq!(told(&world(one(), vec![taken(&labels)]), &me(Some("n1"))), Vec::<String>::new());
}

#[test]
fn a_group_that_was_there_is_bound_and_looked_at() {
    let source = json!({"selector": null, "volumeGroupSnapshotContentName": "there"});
    let asks = group(&json!({"spec": {"source": source}}));
    let there = |uid: Value| {
        content(&json!({"metadata": {"name": "there"}, "spec": {"volumeGroupSnapshotRef": {"uid": uid},
            "source": {"volumeHandles": null, "groupSnapshotHandles": {
                "volumeGroupSnapshotHandle": "gh", "volumeSnapshotHandles": ["s1"]}}}}))
    };
    assert_eq!(told(&world(vec![asks.clone()], vec![there(Value::Null)]), &me(None)), ["bind"]);
    assert_eq!(
        told(&world(vec![asks.clone()], vec![there(json!("u"))]), &me(None)),
        ["tell ready=false", "look"]
    );
    let misbound = told(&world(vec![asks], vec![there(json!("x"))]), &me(None));
    assert!(misbound[0].contains("is bound to a different group snapshot"), "{misbound:?}");
}

#[test]
fn a_group_goes_with_its_members_first_and_the_drivers_snapshots_last() {
    let leaving = || group(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": {BEING_DELETED: "yes"}}});
    let mut world_ = world(vec![leaving()], vec![taken(&json!({}))]);
    members(&mut world_);
    assert_eq!(told(&world_, &me(None)), ["discard 2 and the content"]);
    // One of them fills a claim.
    let name = world_.snapshots[0].metadata.name.clone().unwrap();
    world_.claims.push(read(json!({"metadata": {"name": "copy", "namespace": "ns"},
        "spec": {"dataSource": {"kind": "VolumeSnapshot", "name": name}}})));
    assert_eq!(told(&world_, &me(None)), Vec::<String>::new());
    world_.claims.pop();
    // The content goes after them.
    world_.contents = [("groupsnapcontent-u".to_owned(), taken(&gone))].into();
    assert_eq!(told(&world_, &me(None)), ["discard 2 and the content"]);
    world_.snapshots.clear();
    assert_eq!(told(&world_, &me(None)), ["delete"]);
    world_.contents.clear();
    assert_eq!(told(&world_, &me(None)), ["release"]);
    // What is retained stays, without its snapshots' objects.
    let retained = taken(&json!({"spec": {"deletionPolicy": "Retain"}}));
    let mut world_ = world(vec![leaving()], vec![retained]);
    members(&mut world_);
    assert_eq!(told(&world_, &me(None)), ["discard 2"]);
    world_.snapshots.clear();
    assert_eq!(told(&world_, &me(None)), ["release"]);
}
