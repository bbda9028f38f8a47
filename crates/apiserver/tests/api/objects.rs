//! Create, read, change; refusals; pages.

use crate::server::*;
use serde_json::{Value, json};

#[tokio::test]
async fn an_object_is_created_read_replaced_patched_and_deleted() {
    let api = Api::start().await;
    let made = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    for field in ["uid", "creationTimestamp", "resourceVersion"] {
        assert!(made["metadata"][field].is_string(), "{field}");
    }
    assert_eq!(made["metadata"]["namespace"], "default");
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(api.get(&path).await, made);
    let mut changed = made.clone();
    changed["data"]["key"] = "2".into();
    let (code, replaced) = api.call("PUT", &path, changed.clone()).await;
    assert_eq!((code, &replaced["data"]["key"]), (200, &"2".into()));
    assert!(revision(&replaced) > revision(&made));
    assert_eq!(replaced["metadata"]["uid"], made["metadata"]["uid"]);
    let (code, stale) = api.call("PUT", &path, changed).await;
    assert_eq!((code, &stale["reason"]), (409, &"Conflict".into()));
    assert_eq!(
        stale["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes \
         to the latest version and try again"
    );
    let (code, patched) = api.patch(&path, json!({"data": {"key": null, "other": "3"}})).await;
    assert_eq!((code, &patched["data"]), (200, &json!({"other": "3"})));
    let (code, gone) = api.call("DELETE", &path, Value::Null).await;
    assert_eq!((code, &gone["status"]), (200, &"Success".into()));
    let (code, missing) = api.call("GET", &path, Value::Null).await;
    assert_eq!((code, &missing["message"]), (404, &"configmaps \"a\" not found".into()));
}

#[tokio::test]
async fn every_form_of_patch_does_what_it_is_named_for() {
    let api = Api::start().await;
    api.make(PODS, pod("p")).await;
    let path = format!("{PODS}/p");
    let strategic = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "example/web:2"}]}});
    let (code, done) = api.typed("PATCH", &path, "application/strategic-merge-patch+json", strategic).await;
    assert_eq!(code, 200, "{done}");
    assert_eq!(done["spec"]["containers"][0]["image"], "example/web:2");
    assert_eq!(done["spec"]["containers"][0]["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(done["metadata"]["generation"], 2);
    let operations = json!([{"op": "test", "path": "/metadata/labels/a", "value": "b"},
        {"op": "replace", "path": "/metadata/labels/a", "value": "c"}]);
    let (code, done) = api.typed("PATCH", &path, "application/json-patch+json", operations.clone()).await;
    assert_eq!((code, &done["metadata"]["labels"]["a"]), (200, &"c".into()));
    assert_eq!(done["metadata"]["generation"], 2);
    let (code, done) = api.typed("PATCH", &path, "application/json-patch+json", operations).await;
    assert_eq!((code, &done["reason"]), (422, &"Invalid".into()));
    let (code, done) = api.typed("PATCH", &path, "application/x-patch", pod("p")).await;
    assert_eq!((code, &done["reason"]), (415, &"UnsupportedMediaType".into()));
}

#[tokio::test]
async fn a_patch_that_changes_nothing_writes_nothing() {
    let api = Api::start().await;
    let made = api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let (code, same) = api.patch(&format!("{CONFIG_MAPS}/a"), json!({"data": {"key": "1"}})).await;
    assert_eq!((code, same), (200, made));
}

#[tokio::test]
async fn patches_that_race_are_all_applied() {
    let api = Api::start().await;
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let one = |i: usize| api.patch(&path, json!({"data": {format!("k{i}"): "x"}}));
    for (code, answer) in futures::future::join_all([one(1), one(2), one(3), one(4)]).await {
        assert_eq!(code, 200, "{answer}");
    }
    assert_eq!(api.get(&path).await["data"].as_object().unwrap().len(), 5);
}

#[tokio::test]
async fn status_is_written_through_its_own_path_only() {
    let api = Api::start().await;
    let mut given = pod("p");
    given["status"] = json!({"phase": "Running"});
    let made = api.make(PODS, given).await;
    assert_eq!(made["status"]["phase"], "Pending");
    let path = format!("{PODS}/p");
    let (_, done) =
        api.patch(&path, json!({"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(
        (&done["status"]["phase"], &done["metadata"]["labels"]["a"]),
        (&"Pending".into(), &"b".into())
    );
    let change = json!({"status": {"phase": "Running"}, "spec": {"nodeName": "elsewhere"}});
    let (code, done) = api.patch(&format!("{path}/status"), change).await;
    assert_eq!((code, &done["status"]["phase"]), (200, &"Running".into()));
    assert_eq!((&done["spec"]["nodeName"], &done["metadata"]["generation"]), (&Value::Null, &1.into()));
    assert_eq!(api.call("PATCH", &format!("{CONFIG_MAPS}/x/status"), json!({})).await.0, 404);
}

#[tokio::test]
async fn refusals_name_what_is_wrong() {
    let api = Api::start().await;
    api.make(CONFIG_MAPS, config_map("a", "1")).await;
    let (code, twice) = api.call("POST", CONFIG_MAPS, config_map("a", "1")).await;
    assert_eq!((code, &twice["message"]), (409, &"configmaps \"a\" already exists".into()));
    assert_eq!(twice["reason"], "AlreadyExists");
    let (code, nowhere) = api.call("POST", "/api/v1/namespaces/none/configmaps", config_map("a", "1")).await;
    assert_eq!((code, &nowhere["message"]), (404, &"namespaces \"none\" not found".into()));
    let mut double = pod("p");
    double["spec"]["containers"] = json!([{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]);
    let (code, invalid) = api.call("POST", PODS, double).await;
    assert_eq!((code, &invalid["reason"]), (422, &"Invalid".into()));
    assert_eq!(invalid["details"]["causes"][0]["field"], "spec.containers[1].name");
    assert!(
        text(&invalid["message"])
            .starts_with("Pod \"p\" is invalid: spec.containers[1].name: Duplicate value")
    );
    let class = json!({"metadata": {"name": "c"}});
    let (_, invalid) = api.call("POST", "/apis/storage.k8s.io/v1/storageclasses", class).await;
    assert!(
        text(&invalid["message"]).starts_with("StorageClass.storage.k8s.io \"c\" is invalid"),
        "{invalid}"
    );
    for (method, path, code) in [
        ("GET", "/apis/apps/v1beta1/deployments", 404),
        ("POST", "/apis/none.example.org/v1/namespaces/default/things", 404),
        ("GET", "/api/v1/namespaces/default/bindings", 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("PUT", CONFIG_MAPS, 405),
    ] {
        let (got, status) = api.call(method, path, Value::Null).await;
        assert_eq!((got, &status["kind"]), (code, &"Status".into()), "{method} {path}");
    }
}

#[tokio::test]
async fn unknown_and_duplicate_fields_are_refused_warned_of_or_dropped() {
    let api = Api::start().await;
    let body = r#"{"metadata":{"name":"a"},"data":{"k":"1","k":"2"},"colour":"red"}"#;
    let json = [("content-type", "application/json")];
    let path = |v: &str| format!("{CONFIG_MAPS}?dryRun=All&fieldValidation={v}");
    let (code, strict) = read(api.send("POST", &path("Strict"), &json, body).await).await;
    assert_eq!(code, 400);
    let message = text(&strict["message"]);
    assert!(
        message.ends_with("strict decoding error: duplicate field \"data.k\", unknown field \"colour\""),
        "{message}"
    );
    let other_order = r#"{"metadata":{"name":"a"},"colour":"red","data":{"k":"1","k":"2"}}"#;
    let (_, strict) = read(api.send("POST", &path("Strict"), &json, other_order).await).await;
    let message = text(&strict["message"]);
    assert!(
        message.ends_with("strict decoding error: unknown field \"colour\", duplicate field \"data.k\""),
        "{message}"
    );
    let warned = api.send("POST", &path("Warn"), &json, body).await;
    assert_eq!(warned.headers().get_all("warning").iter().count(), 2);
    let (code, made) = read(warned).await;
    assert_eq!((code, &made["data"]["k"], &made["colour"]), (201, &"2".into(), &Value::Null));
    let ignored = api.send("POST", &path("Ignore"), &json, body).await;
    assert!(ignored.headers().get("warning").is_none());
    let (code, wrong) =
        api.call("POST", PODS, json!({"metadata": {"name": "p"}, "spec": {"containers": "none"}})).await;
    assert_eq!((code, &wrong["reason"]), (400, &"BadRequest".into()));
}

#[tokio::test]
async fn yaml_is_read_and_what_is_no_document_is_refused_clearly() {
    let api = Api::start().await;
    let yaml = "metadata:\n  name: a\ndata:\n  k: 'yes'\n";
    let (code, made) =
        read(api.send("POST", CONFIG_MAPS, &[("content-type", "application/yaml")], yaml).await).await;
    assert_eq!((code, &made["data"]["k"]), (201, &"yes".into()));
    let cbor = [("content-type", "application/cbor")];
    let (code, status) = read(api.send("POST", CONFIG_MAPS, &cbor, "\u{a0}").await).await;
    assert_eq!((code, &status["reason"]), (415, &"UnsupportedMediaType".into()));
    let large = format!("{{\"data\":\"{}\"}}", "x".repeat(4 << 20));
    let (code, status) = read(api.send("POST", CONFIG_MAPS, &[], large).await).await;
    assert_eq!((code, &status["reason"]), (413, &"RequestEntityTooLarge".into()));
}

#[tokio::test]
async fn names_are_generated_and_dry_runs_leave_nothing() {
    let api = Api::start().await;
    let generated = json!({"metadata": {"generateName": "job-"}});
    let (a, b) = (api.make(CONFIG_MAPS, generated.clone()).await, api.make(CONFIG_MAPS, generated).await);
    assert!(
        text(&a["metadata"]["name"]).starts_with("job-") && a["metadata"]["name"] != b["metadata"]["name"]
    );
    api.make(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("dry", "1")).await;
    assert_eq!(api.call("GET", &format!("{CONFIG_MAPS}/dry"), Value::Null).await.0, 404);
    // An address given in a dry run is given back.
    let service = |n: &str| json!({"metadata": {"name": n}, "spec": {"clusterIP": "10.96.5.5", "ports": [{"port": 80}]}});
    api.make("/api/v1/namespaces/default/services?dryRun=All", service("a")).await;
    api.make("/api/v1/namespaces/default/services", service("a")).await;
    let (code, _) = api.call("POST", "/api/v1/namespaces/default/services", service("b")).await;
    assert_eq!(code, 422);
    api.call("DELETE", "/api/v1/namespaces/default/services/a", Value::Null).await;
    api.make("/api/v1/namespaces/default/services", service("b")).await;
}

#[tokio::test]
async fn selectors_choose_and_pages_show_one_moment() {
    let api = Api::start().await;
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
        api.make(CONFIG_MAPS, labelled(name, app)).await;
    }
    let names = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|o| text(&o["metadata"]["name"])).collect()
    };
    let chosen = api.get(&format!("{CONFIG_MAPS}?labelSelector=app%3Dx")).await;
    assert_eq!(names(&chosen), ["a", "c", "d"]);
    assert_eq!(chosen["kind"], "ConfigMapList");
    let field = api.get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Db")).await;
    assert_eq!(names(&field), ["b"]);
    assert_eq!(api.call("GET", &format!("{CONFIG_MAPS}?fieldSelector=data.k%3Db"), Value::Null).await.0, 400);
    let first = api.get(&format!("{CONFIG_MAPS}?limit=3")).await;
    assert_eq!((names(&first).len(), &first["metadata"]["remainingItemCount"]), (3, &1.into()));
    api.call("DELETE", &format!("{CONFIG_MAPS}/d"), Value::Null).await;
    api.make(CONFIG_MAPS, config_map("e", "1")).await;
    let token = text(&first["metadata"]["continue"]);
    let rest = api.get(&format!("{CONFIG_MAPS}?limit=3&continue={token}")).await;
    assert_eq!(names(&rest), ["d"]);
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert!(rest["metadata"]["continue"].is_null());
    let then = text(&first["metadata"]["resourceVersion"]);
    let exact = format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    assert_eq!(names(&api.get(&exact).await), ["a", "b", "c", "d"]);
    let (code, _) = api.call("GET", &format!("{exact}&continue={token}"), Value::Null).await;
    assert_eq!(code, 422);
    let (code, ahead) = api.call("GET", &format!("{CONFIG_MAPS}?resourceVersion=999999"), Value::Null).await;
    assert_eq!((code, &ahead["details"]["causes"][0]["reason"]), (504, &"ResourceVersionTooLarge".into()));
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let api = Api::start().await;
    api.make(PODS, pod("p")).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(api.call("POST", &format!("{PODS}/p/binding"), binding.clone()).await.0, 201);
    let bound = api.get(&format!("{PODS}/p")).await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(api.call("POST", &format!("{PODS}/p/binding"), binding).await.0, 409);
    let on_node = api.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await;
    assert_eq!(on_node["items"].as_array().unwrap().len(), 1);
    api.make(PODS, pod("q")).await;
    let older = json!({"metadata": {"name": "q"}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(api.call("POST", "/api/v1/namespaces/default/bindings", older).await.0, 201);
}
