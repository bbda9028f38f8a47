//! Server-side apply over the API, and who owns what after other writes.

use crate::server::*;
use serde_json::{Value, json};

const APPLY: &str = "application/apply-patch+yaml";

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

async fn apply(api: &Api, path: &str, manager: &str, object: Value) -> (u16, Value) {
    api.typed("PATCH", &format!("{path}?fieldManager={manager}"), APPLY, object).await
}

/// Manager, operation, subresource and fields of each entry.
fn entries(object: &Value) -> Vec<(String, String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let one = |e: &Value| {
        assert_eq!((&e["fieldsType"], e["time"].is_string()), (&"FieldsV1".into(), true), "{e}");
        (text(&e["manager"]), text(&e["operation"]), text(&e["subresource"]), e["fieldsV1"].clone())
    };
    entries.iter().map(one).collect()
}

fn entry(manager: &str, operation: &str, fields: Value) -> (String, String, String, Value) {
    (manager.to_owned(), operation.to_owned(), String::new(), fields)
}

#[tokio::test]
async fn an_apply_makes_an_object_merges_into_it_and_writes_nothing_when_nothing_changes() {
    let api = Api::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, made) = apply(&api, &path, "one", map(json!({"x": "1", "y": "1"}))).await;
    assert_eq!((code, &made["data"]), (201, &json!({"x": "1", "y": "1"})), "{made}");
    assert_eq!(entries(&made), [entry("one", "Apply", json!({"f:data": {"f:x": {}, "f:y": {}}}))]);
    let (code, same) = apply(&api, &path, "one", map(json!({"x": "1", "y": "1"}))).await;
    assert_eq!((code, same), (200, made));
    let (code, merged) = apply(&api, &path, "two", map(json!({"z": "2"}))).await;
    assert_eq!((code, &merged["data"]), (200, &json!({"x": "1", "y": "1", "z": "2"})));
    let (code, less) = apply(&api, &path, "one", map(json!({"x": "1"}))).await;
    assert_eq!((code, &less["data"]), (200, &json!({"x": "1", "z": "2"})));
    assert_eq!(api.get(&path).await, less);
}

#[tokio::test]
async fn a_conflict_names_the_owner_and_the_field_and_force_takes_it() {
    let api = Api::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let agent = [("content-type", "application/json"), ("user-agent", "helm/4.0 (linux)")];
    let (code, made) =
        read(api.send("POST", CONFIG_MAPS, &agent, map(json!({"x": "1"})).to_string()).await).await;
    assert_eq!(code, 201);
    assert_eq!(entries(&made), [entry("helm", "Update", json!({"f:data": {".": {}, "f:x": {}}}))]);
    let (code, refused) = apply(&api, &path, "two", map(json!({"x": "2"}))).await;
    assert_eq!((code, &refused["reason"]), (409, &"Conflict".into()));
    assert_eq!(refused["message"], "Apply failed with 1 conflict: conflict with \"helm\" using v1: .data.x");
    assert_eq!(
        refused["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"helm\" using v1", "field": ".data.x"}])
    );
    assert_eq!(api.get(&path).await, made);
    let forced = format!("{path}?fieldManager=two&force=true");
    let (code, taken) = api.typed("PATCH", &forced, APPLY, map(json!({"x": "2"}))).await;
    assert_eq!((code, &taken["data"]["x"]), (200, &"2".into()));
    let owners = [
        entry("two", "Apply", json!({"f:data": {"f:x": {}}})),
        entry("helm", "Update", json!({"f:data": {}})),
    ];
    assert_eq!(entries(&taken), owners);
}

#[tokio::test]
async fn every_write_says_who_owns_what() {
    let api = Api::start().await;
    let made = api.make(&format!("{CONFIG_MAPS}?fieldManager=maker"), map(json!({"x": "1"}))).await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, patched) =
        api.patch(&format!("{path}?fieldManager=patcher"), json!({"data": {"y": "2"}})).await;
    assert_eq!(code, 200);
    let maker = entry("maker", "Update", json!({"f:data": {".": {}, "f:x": {}}}));
    let patcher = entry("patcher", "Update", json!({"f:data": {"f:y": {}}}));
    assert_eq!(entries(&patched), [maker.clone(), patcher.clone()]);
    let mut replaced = patched.clone();
    replaced["data"] = json!({"x": "3", "y": "2"});
    let (code, replaced) = api.call("PUT", &format!("{path}?fieldManager=putter"), replaced).await;
    assert_eq!(code, 200);
    let putter = entry("putter", "Update", json!({"f:data": {"f:x": {}}}));
    let without_x = entry("maker", "Update", json!({"f:data": {}}));
    assert_eq!(entries(&replaced), [without_x, patcher, putter]);
    // What does not change anything is nobody's act.
    let (_, same) = api.patch(&format!("{path}?fieldManager=idle"), json!({"data": {"y": "2"}})).await;
    assert_eq!(same, replaced);
    let (_, none) = api.patch(&path, json!({"metadata": {"managedFields": [{}]}})).await;
    assert_eq!(none["metadata"]["managedFields"], Value::Null);
    assert_eq!(entries(&made), [maker]);
}

#[tokio::test]
async fn a_pod_is_applied_with_its_status_apart() {
    let api = Api::start().await;
    let path = format!("{PODS}/p");
    let (code, made) = apply(&api, &path, "one", pod("p")).await;
    assert_eq!(code, 201, "{made}");
    let spec = json!({"f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}, "f:name": {}}}}});
    assert_eq!(entries(&made), [entry("one", "Apply", spec.clone())]);
    assert_eq!((&made["status"]["phase"], &made["metadata"]["generation"]), (&"Pending".into(), &1.into()));
    let condition = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "status": {"conditions": [{"type": "x.io/ok", "status": "True"}]}});
    let (code, done) = apply(&api, &format!("{path}/status"), "gate", condition.clone()).await;
    assert_eq!(code, 200, "{done}");
    let fields = json!({"f:status": {"f:conditions": {"k:{\"type\":\"x.io/ok\"}": {".": {}, "f:status": {}, "f:type": {}}}}});
    let gate = ("gate".to_owned(), "Apply".to_owned(), "status".to_owned(), fields);
    assert!(entries(&done).contains(&gate), "{:?}", entries(&done));
    assert!(entries(&done).contains(&entry("one", "Apply", spec)));
    let (code, same) = apply(&api, &format!("{path}/status"), "gate", condition).await;
    assert_eq!((code, &same), (200, &done));
    // Without an object there is no status to apply.
    let nobody = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}, "status": {}});
    assert_eq!(apply(&api, &format!("{PODS}/q/status"), "gate", nobody).await.0, 404);
}

#[tokio::test]
async fn what_cannot_be_applied_is_refused() {
    let api = Api::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, unnamed) = api.typed("PATCH", &path, APPLY, map(json!({}))).await;
    assert_eq!(code, 422);
    assert_eq!(
        unnamed["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    for (object, code, message) in [
        (json!([]), 400, "error decoding YAML: the body is not an object"),
        (json!({"metadata": {"name": "a"}}), 400, "invalid object type: /, Kind="),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
            400,
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}),
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "colour": "red"}),
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .colour: field not declared in schema",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap"}),
            422,
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "x"}}),
            409,
            "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid x, and no existing object was found",
        ),
    ] {
        let (got, status) = apply(&api, &path, "one", object).await;
        assert_eq!((got, text(&status["message"]).as_str()), (code, message));
    }
    let (code, _) =
        api.typed("PATCH", &format!("{path}?force=true"), "application/merge-patch+json", json!({})).await;
    assert_eq!(code, 422);
    assert_eq!(api.call("GET", &path, Value::Null).await.0, 404);
}

#[tokio::test]
async fn yaml_is_applied_and_its_duplicates_are_told() {
    let api = Api::start().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: '1'\n  k: '2'\n";
    let send = async |validation: &str| {
        let path = format!("{CONFIG_MAPS}/a?fieldManager=one&dryRun=All&fieldValidation={validation}");
        api.send("PATCH", &path, &[("content-type", APPLY)], yaml).await
    };
    let warned = send("Warn").await;
    assert_eq!(warned.headers().get_all("warning").iter().count(), 1);
    let (code, made) = read(warned).await;
    assert_eq!((code, &made["data"]["k"]), (201, &"2".into()));
    assert!(send("Ignore").await.headers().get("warning").is_none());
    let (code, strict) = read(send("Strict").await).await;
    assert_eq!(code, 400);
    let message = strict["message"].as_str().unwrap();
    assert!(message.contains("unmarshal errors:\n  line "), "{message}");
    assert!(message.ends_with("key \"k\" already set in map"), "{message}");
    // Dry runs leave nothing.
    assert_eq!(api.call("GET", &format!("{CONFIG_MAPS}/a"), Value::Null).await.0, 404);
}

#[tokio::test]
async fn applies_that_race_are_all_there() {
    let api = Api::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let one = |i: usize| {
        let (api, path) = (&api, &path);
        async move { apply(api, path, &format!("m{i}"), map(json!({format!("k{i}"): "x"}))).await }
    };
    for (code, answer) in futures::future::join_all([one(1), one(2), one(3), one(4)]).await {
        assert!(code == 200 || code == 201, "{answer}");
    }
    let object = api.get(&path).await;
    assert_eq!((object["data"].as_object().unwrap().len(), entries(&object).len()), (4, 4));
}

#[tokio::test]
async fn an_apply_is_validated_like_any_write() {
    let api = Api::start().await;
    let path = format!("{PODS}/p");
    let mut bad = pod("p");
    bad["spec"]["containers"][0]["name"] = "No Name".into();
    let (code, refused) = apply(&api, &path, "one", bad).await;
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &"spec.containers[0].name".into()));
    assert_eq!(apply(&api, &path, "one", pod("p")).await.0, 201);
    let mut moved = pod("p");
    moved["spec"]["nodeName"] = "elsewhere".into();
    let (code, refused) = apply(&api, &path, "one", moved).await;
    assert_eq!((code, &refused["reason"]), (422, &"Invalid".into()));
    let (code, refused) =
        api.patch(&path, json!({"spec": {"containers": [{"name": "other", "image": "x"}]}})).await;
    assert_eq!((code, &refused["reason"]), (422, &"Invalid".into()));
    let mut wrong = pod("p");
    wrong["spec"]["priority"] = json!(3_000_000_000_i64);
    assert_eq!(apply(&api, &path, "one", wrong).await.0, 400);
}

#[tokio::test]
async fn an_event_keeps_its_owners_in_both_of_its_forms() {
    let api = Api::start().await;
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "R", "message": "m", "type": "Normal"});
    api.make("/api/v1/namespaces/default/events?fieldManager=maker", event).await;
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/e";
    let note =
        json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "note": "n"});
    let (code, refused) = apply(&api, path, "one", note).await;
    assert_eq!(code, 409, "{refused}");
    assert_eq!(refused["details"]["causes"][0]["message"], "conflict with \"maker\" using v1");
    let labels = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "labels": {"a": "b"}}});
    let (code, done) = apply(&api, path, "one", labels).await;
    assert_eq!(code, 200, "{done}");
    let names: Vec<String> = entries(&done).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["one", "maker"]);
}

#[tokio::test]
async fn what_goes_through_a_status_or_another_part_is_owned_there() {
    let api = Api::start().await;
    let path = "/api/v1/namespaces/n";
    api.make("/api/v1/namespaces?fieldManager=maker", json!({"metadata": {"name": "n"}})).await;
    let change = json!({"metadata": {"annotations": {"seen": "true"}}, "spec": {"finalizers": []},
        "status": {"conditions": [{"type": "X", "status": "True"}]}});
    let (code, done) = api.patch(&format!("{path}/status?fieldManager=watcher"), change).await;
    assert_eq!((code, &done["metadata"]["annotations"]["seen"]), (200, &"true".into()));
    assert_eq!(done["spec"]["finalizers"], json!(["kubernetes"]));
    let owned = entries(&done).into_iter().find(|e| e.0 == "watcher").unwrap();
    let condition = json!({".": {}, "f:status": {}, "f:type": {}});
    let fields = json!({"f:metadata": {"f:annotations": {".": {}, "f:seen": {}}},
        "f:status": {"f:conditions": {".": {}, "k:{\"type\":\"X\"}": condition}}});
    assert_eq!((owned.2.as_str(), &owned.3), ("status", &fields));
    let (code, done) = api
        .call(
            "PUT",
            &format!("{path}/finalize?fieldManager=keeper"),
            json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["x.io/y"]}}),
        )
        .await;
    assert_eq!(code, 200, "{done}");
    let owned = entries(&done).into_iter().find(|e| e.0 == "keeper").unwrap();
    assert_eq!((owned.2.as_str(), owned.3), ("finalize", json!({"f:spec": {"f:finalizers": {}}})));
    // Of a Pod the labels go through, its owners do not.
    api.make(PODS, pod("p")).await;
    let change = json!({"metadata": {"labels": {"a": "b"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]}, "status": {"phase": "Running"}});
    let (_, done) = api.patch(&format!("{PODS}/p/status"), change).await;
    assert_eq!(
        (&done["metadata"]["labels"], &done["metadata"]["ownerReferences"]),
        (&json!({"a": "b"}), &Value::Null)
    );
}
