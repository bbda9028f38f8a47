use serde_json::json;

use super::*;

const DRIVER: &str = "disk.csi.trine.dev";

fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn attachment(metadata: serde_json::Value, attached: bool) -> Arc<VolumeAttachment> {
    object(json!({"metadata": metadata, "status": {"attached": attached},
        "spec": {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": "v"}}}))
}

fn volume(metadata: serde_json::Value) -> Arc<PersistentVolume> {
    object(json!({"metadata": metadata, "spec": {"csi": {"driver": DRIVER, "volumeHandle": "h"}}}))
}

fn world(attachments: Vec<Arc<VolumeAttachment>>) -> World {
    let node = json!({"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": DRIVER, "nodeID": "id-1"}]}});
    World {
        attachments,
        volumes: [("v".to_owned(), volume(json!({"name": "v"})))].into(),
        csi_nodes: [("n1".to_owned(), object(node))].into(),
    }
}

fn me() -> Me {
    Me { driver: DRIVER.to_owned(), node: Some("n1".to_owned()), publishes: true }
}

const DELETED: &str = "2026-01-01T00:00:00Z";

#[test]
fn an_attachment_is_attached_once_and_undone_when_deleted() {
    let held = json!([finalizer(DRIVER)]);
    let fresh = attachment(json!({"name": "a"}), false);
    let done = attachment(json!({"name": "a", "finalizers": held}), true);
    let leaving = attachment(json!({"name": "a", "finalizers": held, "deletionTimestamp": DELETED}), true);
    let begun = attachment(json!({"name": "a", "finalizers": held, "deletionTimestamp": DELETED}), false);
    let never = attachment(json!({"name": "a", "deletionTimestamp": DELETED}), false);
    let id = "id-1".to_owned();
    let v = volume(json!({"name": "v"}));
    for (name, one, expected) in [
        ("fresh", &fresh, Some(Action::Attach(Arc::clone(&fresh), v, id.clone()))),
        ("attached", &done, None),
        ("leaving", &leaving, Some(Action::Detach(Arc::clone(&leaving), "h".to_owned(), id.clone()))),
        ("begun and leaving", &begun, Some(Action::Detach(Arc::clone(&begun), "h".to_owned(), id))),
        ("never begun", &never, None),
    ] {
        let actions = plan(&world(vec![Arc::clone(one)]), &me());
        assert_eq!(actions, Vec::from_iter(expected), "{name}");
    }
    let elsewhere = Me { node: Some("n2".to_owned()), ..me() };
    assert!(plan(&world(vec![Arc::clone(&fresh)]), &elsewhere).is_empty());
    let other = Me { driver: "x".to_owned(), ..me() };
    assert!(plan(&world(vec![Arc::clone(&fresh)]), &other).is_empty());
    let trivial = Me { publishes: false, ..me() };
    assert_eq!(plan(&world(vec![Arc::clone(&fresh)]), &trivial), [Action::Confirm(fresh)]);
}

#[test]
fn a_vanished_node_is_known_by_the_attachments_own_note() {
    let noted = json!({"name": "a", "finalizers": [finalizer(DRIVER)], "deletionTimestamp": DELETED,
        "annotations": {NODE_ID: "old-id"}});
    let leaving = attachment(noted, true);
    let mut world = world(vec![Arc::clone(&leaving)]);
    world.csi_nodes.clear();
    let expected = Action::Detach(leaving, "h".to_owned(), "old-id".to_owned());
    assert_eq!(plan(&world, &me()), [expected]);
}

#[test]
fn what_cannot_be_attached_says_why() {
    let fresh = attachment(json!({"name": "a"}), false);
    let refused = |world: &World| match plan(world, &me()).as_slice() {
        [Action::Refuse(_, text)] => text.clone(),
        other => panic!("{other:?}"),
    };
    let mut no_volume = world(vec![Arc::clone(&fresh)]);
    no_volume.volumes.clear();
    assert!(refused(&no_volume).contains("\"v\" not found"));
    let mut no_driver = world(vec![Arc::clone(&fresh)]);
    no_driver.csi_nodes.clear();
    assert!(refused(&no_driver).contains("not registered"));
    let mut leaving = world(vec![fresh]);
    leaving.volumes.insert("v".to_owned(), volume(json!({"name": "v", "deletionTimestamp": DELETED})));
    assert!(refused(&leaving).contains("marked for deletion"));
}

#[test]
fn a_leaving_volume_is_let_go_when_it_is_attached_nowhere() {
    let leaving =
        volume(json!({"name": "v", "deletionTimestamp": DELETED, "finalizers": [finalizer(DRIVER)]}));
    let mut world = world(vec![attachment(json!({"name": "a"}), true)]);
    world.volumes.insert("v".to_owned(), Arc::clone(&leaving));
    assert!(plan(&world, &me()).is_empty());
    world.attachments.clear();
    assert_eq!(plan(&world, &me()), [Action::Release(leaving)]);
}
