//! Watches and their beginnings.

use crate::server::*;
use serde_json::{Value, json};

fn seen(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_tells_every_change_after_its_revision_in_order() {
    let api = Api::start().await;
    let first = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    api.make(CONFIG_MAPS, config_map("b", "1")).await;
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&first))).await;
    assert_eq!(watch.seen().await, seen("ADDED", "b"));
    api.patch(&format!("{CONFIG_MAPS}/a"), json!({"data": {"key": "2"}})).await;
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["data"]["key"]), (&"MODIFIED".into(), &"2".into()));
    assert_eq!(event["object"]["kind"], "ConfigMap");
    api.make("/api/v1/namespaces/kube-system/configmaps", config_map("elsewhere", "1")).await;
    api.call("DELETE", &format!("{CONFIG_MAPS}/a"), Value::Null).await;
    let last = watch.next().await.unwrap();
    assert_eq!((&last["type"], &last["object"]["data"]["key"]), (&"DELETED".into(), &"2".into()));
    assert!(revision(&last["object"]) > revision(&event["object"]));
}

#[tokio::test]
async fn without_a_revision_and_at_zero_the_state_comes_first() {
    let api = Api::start().await;
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    for query in ["watch=1", "watch=1&resourceVersion=0"] {
        let mut watch = api.watch(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(watch.seen().await, seen("ADDED", "a"), "{query}");
        assert!(watch.quiet().await);
    }
    let none = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?{none}")).await;
    assert!(watch.quiet().await);
}

#[tokio::test]
async fn a_streamed_list_ends_with_its_bookmark() {
    let api = Api::start().await;
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let query =
        "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?{query}&timeoutSeconds=2")).await;
    assert_eq!(watch.seen().await, seen("ADDED", "a"));
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let b = api.make(CONFIG_MAPS, config_map("b", "1")).await;
    assert_eq!(watch.seen().await, seen("ADDED", "b"));
    // Before it ends by its time, it says how far it came.
    let last = watch.next().await.unwrap();
    assert_eq!((&last["type"], revision(&last["object"])), (&"BOOKMARK".into(), revision(&b)));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let api = Api::start().await;
    api.make(CONFIG_MAPS, labelled("a", "y")).await;
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=1&labelSelector=app%3Dx")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let app = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    api.patch(&path, app("x")).await;
    assert_eq!(watch.seen().await, seen("ADDED", "a"));
    let (_, left) = api.patch(&path, app("y")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["metadata"]["labels"]["app"]),
        (&"DELETED".into(), &"x".into())
    );
    assert_eq!(revision(&event["object"]), revision(&left));
    api.patch(&path, app("z")).await;
    assert!(watch.quiet().await);
}

#[tokio::test]
async fn field_selectors_follow_a_pod_to_its_node() {
    let api = Api::start().await;
    let mut watch = api.watch("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1").await;
    api.make(PODS, pod("p")).await;
    let binding = json!({"target": {"kind": "Node", "name": "n1"}});
    api.call("POST", &format!("{PODS}/p/binding"), binding).await;
    assert_eq!(watch.seen().await, seen("ADDED", "p"));
}

#[tokio::test]
async fn a_forgotten_revision_is_gone_and_a_state_to_come_is_too_large() {
    let api = Api::start().await;
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let patches = (0..4200).map(|i| {
        let api = &api;
        let path = format!("{CONFIG_MAPS}/m{}", i % 64);
        async move {
            let body = config_map(&format!("m{}", i % 64), &i.to_string());
            let (code, _) = api.call("PUT", &path, body.clone()).await;
            if code == 404 {
                api.call("POST", CONFIG_MAPS, body).await;
            }
        }
    });
    let mut patches: Vec<_> = patches.collect();
    while !patches.is_empty() {
        let rest = patches.split_off(patches.len().min(64));
        futures::future::join_all(patches).await;
        patches = rest;
    }
    let mut old = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=9")).await;
    let gone = old.next().await.unwrap();
    assert_eq!((&gone["type"], &gone["object"]["code"]), (&"ERROR".into(), &410.into()));
    assert_eq!(gone["object"]["reason"], "Expired");
    assert!(text(&gone["object"]["message"]).starts_with("too old resource version: 9 ("), "{gone}");
    assert!(old.next().await.is_none());
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut ahead = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=999999&{initial}")).await;
    let ahead = ahead.next().await.unwrap();
    assert_eq!((&ahead["type"], &ahead["object"]["code"]), (&"ERROR".into(), &504.into()));
    let old = format!("{CONFIG_MAPS}?resourceVersion=9&resourceVersionMatch=Exact");
    let (code, gone) = api.call("GET", &old, Value::Null).await;
    assert_eq!((code, &gone["reason"]), (410, &"Expired".into()));
    assert_eq!(gone["message"], "The resourceVersion for the provided list is too old.");
}

#[tokio::test]
async fn a_watch_from_a_revision_to_come_tells_what_comes_after_it() {
    let api = Api::start().await;
    let first = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let ahead = revision(&first) + 1;
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={ahead}")).await;
    api.make(CONFIG_MAPS, config_map("b", "1")).await;
    api.make(CONFIG_MAPS, config_map("c", "1")).await;
    assert_eq!(watch.seen().await, seen("ADDED", "c"));
}

#[tokio::test]
async fn a_watch_of_one_name_tells_of_no_other() {
    let api = Api::start().await;
    let mut by_path = api.watch(&format!("{CONFIG_MAPS}/b?watch=1")).await;
    let mut by_field = api.watch(&format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db")).await;
    for name in ["a", "b", "c"] {
        api.make(CONFIG_MAPS, config_map(name, "1")).await;
    }
    for watch in [&mut by_path, &mut by_field] {
        assert_eq!(watch.seen().await, seen("ADDED", "b"));
        assert!(watch.quiet().await);
    }
    let other = format!("{CONFIG_MAPS}/b?watch=1&fieldSelector=metadata.name%3Da");
    let (code, refused) = api.call("GET", &other, Value::Null).await;
    assert_eq!(
        (code, text(&refused["message"])),
        (400, "fieldSelector metadata.name doesn't match requested name".into())
    );
}

#[tokio::test]
async fn watchers_of_one_form_read_the_same_words() {
    let api = Api::start().await;
    let accept = [("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")];
    let mut watches = Vec::new();
    for _ in 0..3 {
        let response = api
            .send(
                "GET",
                &format!("{CONFIG_MAPS}?watch=1&resourceVersion=1&labelSelector=app%3Dx"),
                &accept,
                "",
            )
            .await;
        watches.push(Lines::new(response));
    }
    let made = api.make(CONFIG_MAPS, labelled("a", "x")).await;
    let (_, left) =
        api.patch(&format!("{CONFIG_MAPS}/a"), json!({"metadata": {"labels": {"app": "y"}}})).await;
    for watch in &mut watches {
        let added = watch.next().await.unwrap();
        assert_eq!(
            (&added["type"], &added["object"]["kind"]),
            (&"ADDED".into(), &"PartialObjectMetadata".into())
        );
        assert_eq!(revision(&added["object"]), revision(&made));
        let deleted = watch.next().await.unwrap();
        assert_eq!(
            (&deleted["type"], &deleted["object"]["metadata"]["labels"]["app"]),
            (&"DELETED".into(), &"x".into())
        );
        assert_eq!(revision(&deleted["object"]), revision(&left));
    }
}

#[tokio::test]
async fn a_watch_with_its_state_ends_that_with_a_bookmark_also_the_older_way() {
    let api = Api::start().await;
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    for query in ["watch=1&allowWatchBookmarks=true", "watch=1&allowWatchBookmarks=true&resourceVersion=0"] {
        let mut watch = api.watch(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(watch.seen().await, seen("ADDED", "a"), "{query}");
        let end = watch.next().await.unwrap();
        assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{query}");
    }
}

#[tokio::test]
async fn watches_end_when_the_server_stops() {
    let api = Api::start().await;
    let mut watch = api.watch("/api/v1/pods?watch=1").await;
    api.server.stop().await;
    assert!(watch.next().await.is_none());
}
