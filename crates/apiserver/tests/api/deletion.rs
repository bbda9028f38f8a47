//! Grace, finalizers, preconditions, namespaces.

use crate::server::*;
use serde_json::{Value, json};

async fn bound(api: &Api, name: &str) {
    api.make(PODS, pod(name)).await;
    let binding = json!({"target": {"kind": "Node", "name": "n1"}});
    assert_eq!(api.call("POST", &format!("{PODS}/{name}/binding"), binding).await.0, 201);
}

#[tokio::test]
async fn a_placed_pod_has_its_grace_and_an_unplaced_one_goes_at_once() {
    let api = Api::start().await;
    api.make(PODS, pod("unplaced")).await;
    api.call("DELETE", &format!("{PODS}/unplaced"), Value::Null).await;
    assert_eq!(api.call("GET", &format!("{PODS}/unplaced"), Value::Null).await.0, 404);
    bound(&api, "placed").await;
    let path = format!("{PODS}/placed");
    let (code, going) = api.call("DELETE", &path, json!({"gracePeriodSeconds": 20})).await;
    assert_eq!((code, &going["metadata"]["deletionGracePeriodSeconds"]), (200, &20.into()));
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    let before = api.get(&path).await;
    api.call("DELETE", &path, json!({"gracePeriodSeconds": 60})).await;
    assert_eq!(api.get(&path).await, before, "a longer grace changes nothing");
    // The kubelet's last word.
    let uid = before["metadata"]["uid"].clone();
    let last = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    assert_eq!(api.call("DELETE", &path, last).await.0, 200);
    assert_eq!(api.call("GET", &path, Value::Null).await.0, 404);
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_removed() {
    let api = Api::start().await;
    let mut held = config_map("held", "1");
    held["metadata"]["finalizers"] = json!(["example.org/a"]);
    api.make(CONFIG_MAPS, held).await;
    let path = format!("{CONFIG_MAPS}/held");
    assert_eq!(api.call("DELETE", &path, json!({"propagationPolicy": "Background"})).await.0, 200);
    let going = api.get(&path).await;
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    let more = json!({"metadata": {"finalizers": ["example.org/a", "example.org/b"]}});
    assert_eq!(api.patch(&path, more).await.0, 422);
    let mut watch =
        api.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", revision(&going))).await;
    assert_eq!(api.patch(&path, json!({"metadata": {"finalizers": null}})).await.0, 200);
    assert_eq!(watch.seen().await, ("DELETED".to_owned(), "held".to_owned()));
    assert_eq!(api.call("GET", &path, Value::Null).await.0, 404);
}

#[tokio::test]
async fn preconditions_protect_a_later_object_of_the_same_name() {
    let api = Api::start().await;
    let made = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, refused) = api.call("DELETE", &path, json!({"preconditions": {"uid": "other"}})).await;
    assert_eq!((code, &refused["reason"]), (409, &"Conflict".into()));
    let stale = json!({"preconditions": {"resourceVersion": "1"}});
    assert_eq!(api.call("DELETE", &path, stale).await.0, 409);
    let right = json!({"preconditions": {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}});
    assert_eq!(api.call("DELETE", &path, right).await.0, 200);
}

#[tokio::test]
async fn a_selection_is_deleted_together() {
    let api = Api::start().await;
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        api.make(CONFIG_MAPS, labelled(name, app)).await;
    }
    let (code, _) = api.call("DELETE", &format!("{CONFIG_MAPS}?labelSelector=app%3Dx"), Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(api.get(CONFIG_MAPS).await["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_namespace_stays_until_it_is_released_and_takes_nothing_new() {
    let api = Api::start().await;
    api.make("/api/v1/namespaces", json!({"metadata": {"name": "team"}})).await;
    let path = "/api/v1/namespaces/team";
    let (code, going) = api.call("DELETE", path, Value::Null).await;
    assert_eq!((code, &going["status"]["phase"]), (200, &"Terminating".into()));
    let (code, refused) = api.call("POST", &format!("{path}/configmaps"), config_map("a", "1")).await;
    assert_eq!((code, &refused["details"]["causes"][0]["reason"]), (403, &"NamespaceTerminating".into()));
    let mut released = api.get(path).await;
    released["spec"]["finalizers"] = json!([]);
    assert_eq!(api.call("PUT", &format!("{path}/finalize"), released).await.0, 200);
    assert_eq!(api.call("GET", path, Value::Null).await.0, 404);
}

#[tokio::test]
async fn an_eviction_deletes_with_grace() {
    let api = Api::start().await;
    bound(&api, "p").await;
    let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 5}});
    assert_eq!(api.call("POST", &format!("{PODS}/p/eviction"), eviction).await.0, 201);
    assert_eq!(api.get(&format!("{PODS}/p")).await["metadata"]["deletionGracePeriodSeconds"], 5);
}
