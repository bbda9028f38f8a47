use serde_json::{Value, json};

use super::*;

fn from<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

/// A Pod on n1 with the claim `data`, bound to `pv1` of a driver that attaches.
fn world() -> World {
    let mut world = World::default();
    world.pods.push(from(json!({"metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": "n1",
        "containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}})));
    for node in ["n1", "n2"] {
        world.nodes.insert(node.to_owned(), from(json!({"metadata": {"name": node}})));
    }
    let claim =
        json!({"metadata": {"name": "data", "namespace": "d", "uid": "u"}, "spec": {"volumeName": "pv1"}});
    world.claims.insert(("d".to_owned(), "data".to_owned()), from(claim));
    let volume = json!({"metadata": {"name": "pv1"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "claimRef": {"uid": "u"}, "csi": {"driver": "x", "volumeHandle": "h"}}});
    world.volumes.insert("pv1".to_owned(), from(volume));
    world
}

fn attachment(node: &str, attached: bool) -> Arc<VolumeAttachment> {
    let volume = Attachable {
        name: "pv1".to_owned(),
        driver: "x".to_owned(),
        handle: "h".to_owned(),
        single_node: true,
    };
    from(json!({"metadata": {"name": attachment_name(&volume, node)},
        "spec": {"attacher": "x", "nodeName": node, "source": {"persistentVolumeName": "pv1"}},
        "status": {"attached": attached}}))
}

#[test]
fn a_placed_pod_gets_its_volume_attached_once() {
    let mut world = world();
    assert!(matches!(&plan(&world)[..], [Action::Attach { node, .. }] if node == "n1"));
    world.attachments.push(attachment("n1", false));
    assert_eq!(plan(&world), []);
}

#[test]
fn what_is_attached_is_reported_and_what_is_not_wanted_is_reported_gone_before_it_is_detached() {
    let mut world = world();
    world.attachments.push(attachment("n1", true));
    let name = "kubernetes.io/csi/x^h".to_owned();
    let report = Action::ReportAttached { node: "n1".to_owned(), volumes: vec![name.clone()] };
    assert_eq!(plan(&world), [report]);
    world.pods.clear();
    let node = json!({"metadata": {"name": "n1"}, "status": {"volumesAttached": [{"name": name, "devicePath": ""}]}});
    world.nodes.insert("n1".to_owned(), from(node));
    assert!(matches!(&plan(&world)[..],
        [Action::ReportAttached { volumes, .. }, Action::Detach { .. }] if volumes.is_empty()));
}

#[test]
fn a_volume_in_use_stays_attached_until_the_kubelet_lets_go() {
    let mut world = world();
    world.pods.clear();
    world.attachments.push(attachment("n1", false));
    let node = json!({"metadata": {"name": "n1"}, "status": {"volumesInUse": ["kubernetes.io/csi/x^h"]}});
    world.nodes.insert("n1".to_owned(), from(node));
    assert_eq!(plan(&world), []);
}

#[test]
fn a_volume_of_one_node_is_not_attached_to_a_second() {
    let mut world = world();
    world.attachments.push(attachment("n2", true));
    let actions = plan(&world);
    assert!(actions.iter().any(|a| matches!(a, Action::MultiAttach { .. })), "{actions:?}");
    assert!(!actions.iter().any(|a| matches!(a, Action::Attach { .. })), "{actions:?}");
}

#[test]
fn a_driver_that_does_not_attach_gets_no_attachment() {
    let mut world = world();
    world
        .drivers
        .insert("x".to_owned(), from(json!({"metadata": {"name": "x"}, "spec": {"attachRequired": false}})));
    assert_eq!(plan(&world), []);
}
