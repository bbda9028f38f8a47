//! Custom objects that a webhook converts between versions.

use std::time::Duration;

use crate::far::{Answer, Far, reviewed};
use crate::server::*;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.org/v1/namespaces/default/crons";
const V2: &str = "/apis/example.org/v2/namespaces/default/crons";

/// `v1` has `spec.schedule` "MINUTE HOUR", `v2` has both apart.
fn converted(object: &Value, to: &str) -> Value {
    let mut out = object.clone();
    out["apiVersion"] = to.into();
    if to.ends_with("v2") {
        let (minute, hour) =
            out["spec"]["schedule"].as_str().unwrap_or_default().split_once(' ').unwrap_or_default();
        out["spec"] = json!({"minute": minute, "hour": hour});
    } else {
        let part = |key: &str| text(&object["spec"][key]);
        out["spec"] = json!({"schedule": format!("{} {}", part("minute"), part("hour"))});
    }
    out["metadata"]["annotations"]["converted"] = to.into();
    out
}

fn answer(path: &str, review: &Value) -> Answer {
    if review["kind"] == "AdmissionReview" {
        let minute = review["request"]["object"]["spec"]["minute"].clone();
        return reviewed(
            review,
            &json!({"allowed": minute != "13", "status": {"message": "an unlucky minute"}}),
        );
    }
    let request = &review["request"];
    let to = text(&request["desiredAPIVersion"]);
    let objects = request["objects"].as_array().unwrap();
    let mut objects: Vec<Value> = objects.iter().map(|o| converted(o, &to)).collect();
    let mut result = json!({"status": "Success"});
    match path {
        "/fails" => result = json!({"status": "Failure", "message": "cannot convert"}),
        "/fewer" => drop(objects.pop()),
        "/renames" => objects.iter_mut().for_each(|o| o["metadata"]["name"] = "other".into()),
        _ => {}
    }
    (
        200,
        json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview",
        "response": {"uid": request["uid"], "result": result, "convertedObjects": objects}}),
    )
}

fn version(name: &str, storage: bool, fields: &[&str]) -> Value {
    let properties: Value = fields
        .iter()
        .map(|f| {
            ((*f).to_owned(), json!({"type": "string", "maxLength": if fields.len() > 1 { 2 } else { 9 }}))
        })
        .collect();
    let selectable: Vec<Value> = fields.iter().map(|f| json!({"jsonPath": format!(".spec.{f}")})).collect();
    json!({"name": name, "served": true, "storage": storage, "selectableFields": selectable,
        "additionalPrinterColumns": [{"name": "First", "type": "string", "jsonPath": format!(".spec.{}", fields[0])}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "required": fields, "properties": properties}}}}})
}

fn definition(far: &Far, path: &str, stored: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "crons.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": "crons", "kind": "Cron"},
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": far.url(path), "conversionReviewVersions": ["v1"]}},
            "versions": [version("v1", stored == "v1", &["schedule"]), version("v2", stored == "v2", &["minute", "hour"])]}})
}

async fn defined(api: &Api, definition: Value) {
    api.make(DEFINITIONS, definition).await;
    for _ in 0..200 {
        if api.call("GET", V1, Value::Null).await.0 == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the kind is served");
}

/// Changes the definition, and waits until that is done.
async fn redefine(api: &Api, change: Value) {
    let path = format!("{DEFINITIONS}/crons.example.org");
    let (code, now) = api.patch(&path, change).await;
    assert_eq!(code, 200, "{now}");
    tokio::time::sleep(Duration::from_millis(300)).await;
}

fn v1(name: &str, schedule: &str) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Cron", "metadata": {"name": name}, "spec": {"schedule": schedule}})
}

fn v2(name: &str, minute: &str, hour: &str) -> Value {
    json!({"apiVersion": "example.org/v2", "kind": "Cron", "metadata": {"name": name},
        "spec": {"minute": minute, "hour": hour}})
}

#[tokio::test]
async fn fields_are_selected_in_the_version_that_was_asked_for() {
    let api = Api::start().await;
    let far = Far::start(&api, answer).await;
    defined(&api, definition(&far, "/convert", "v1")).await;
    for (name, schedule) in [("a", "5 6"), ("b", "7 6"), ("c", "5 8")] {
        api.make(V1, v1(name, schedule)).await;
    }
    let names = async |path: String| {
        let listed = api.get(&path).await;
        let items = listed["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| text(&item["metadata"]["name"])).collect::<Vec<_>>()
    };
    assert_eq!(names(format!("{V2}?fieldSelector=spec.hour%3D6")).await, ["a", "b"]);
    assert_eq!(names(format!("{V2}?fieldSelector=spec.hour%3D6,spec.minute%3D7")).await, ["b"]);
    assert_eq!(names(format!("{V2}?fieldSelector=spec.hour!%3D6")).await, ["c"]);
    assert_eq!(names(format!("{V1}?fieldSelector=spec.schedule%3D5 8").replace(' ', "%20")).await, ["c"]);

    let mut watch = api
        .watch(&format!(
            "{V2}?watch=true&fieldSelector=spec.hour%3D6&sendInitialEvents=true&\
        resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        ))
        .await;
    let mut next = async || {
        let event = watch.next().await.unwrap();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    };
    assert_eq!(next().await, ("ADDED".into(), "a".into()));
    assert_eq!(next().await, ("ADDED".into(), "b".into()));
    assert_eq!(next().await.0, "BOOKMARK");
    api.patch(&format!("{V1}/c"), json!({"spec": {"schedule": "5 6"}})).await;
    assert_eq!(next().await, ("ADDED".into(), "c".into()));
    api.patch(&format!("{V1}/a"), json!({"spec": {"schedule": "5 9"}})).await;
    assert_eq!(next().await, ("DELETED".into(), "a".into()));
}

#[tokio::test]
async fn every_verb_speaks_the_version_that_was_asked_for() {
    let api = Api::start().await;
    let far = Far::start(&api, answer).await;
    defined(&api, definition(&far, "/convert", "v1")).await;
    api.make(V1, v1("a", "5 6")).await;
    assert_eq!(far.asked(), Vec::<Value>::new(), "nothing was to convert");
    let shown = api.get(&format!("{V2}/a")).await;
    assert_eq!(
        (&shown["apiVersion"], &shown["spec"]),
        (&json!("example.org/v2"), &json!({"minute": "5", "hour": "6"}))
    );
    assert_eq!(shown["metadata"]["annotations"]["converted"], "example.org/v2");
    let made = api.make(V2, v2("b", "7", "8")).await;
    assert_eq!(made["spec"], json!({"minute": "7", "hour": "8"}));
    assert_eq!(api.get(&format!("{V1}/b")).await["spec"], json!({"schedule": "7 8"}));
    let (code, changed) = api.patch(&format!("{V2}/a"), json!({"spec": {"hour": "9"}})).await;
    assert_eq!((code, &changed["spec"]), (200, &json!({"minute": "5", "hour": "9"})));
    let mut whole = api.get(&format!("{V2}/a")).await;
    whole["spec"]["minute"] = "1".into();
    let (code, changed) = api.call("PUT", &format!("{V2}/a"), whole).await;
    assert_eq!((code, &changed["spec"]), (200, &json!({"minute": "1", "hour": "9"})));
    assert_eq!(api.get(&format!("{V1}/a")).await["spec"], json!({"schedule": "1 9"}));
    let (code, refused) = api.patch(&format!("{V2}/a"), json!({"spec": {"hour": "123"}})).await;
    assert_eq!(code, 422, "it is judged by the schema of its version: {refused}");
    far.asked();
    let listed = api.get(V2).await;
    let minutes: Vec<String> =
        listed["items"].as_array().unwrap().iter().map(|i| text(&i["spec"]["minute"])).collect();
    assert_eq!(minutes, ["1", "7"]);
    let asked = far.asked();
    assert_eq!(
        (asked.len(), asked[0]["request"]["objects"].as_array().map(Vec::len)),
        (1, Some(2)),
        "all at once"
    );
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let (_, table) = read(api.send("GET", V2, &headers, "").await).await;
    assert_eq!(table["rows"][0]["cells"][1], "1");
}

#[tokio::test]
async fn a_watch_tells_changes_in_its_version() {
    let api = Api::start().await;
    let far = Far::start(&api, answer).await;
    defined(&api, definition(&far, "/convert", "v1")).await;
    api.make(V1, v1("a", "5 6")).await;
    let mut lines = api.watch(&format!("{V2}?watch=true")).await;
    let first = lines.next().await.unwrap();
    assert_eq!((&first["type"], &first["object"]["spec"]["minute"]), (&json!("ADDED"), &json!("5")));
    api.patch(&format!("{V1}/a"), json!({"spec": {"schedule": "7 6"}})).await;
    let second = lines.next().await.unwrap();
    assert_eq!((&second["type"], &second["object"]["spec"]["minute"]), (&json!("MODIFIED"), &json!("7")));
    assert_eq!(second["object"]["apiVersion"], "example.org/v2");
    api.call("DELETE", &format!("{V2}/a"), Value::Null).await;
    let last = lines.next().await.unwrap();
    assert_eq!((&last["type"], &last["object"]["apiVersion"]), (&json!("DELETED"), &json!("example.org/v2")));
}

#[tokio::test]
async fn a_new_storage_version_takes_objects_over_as_they_are_written() {
    let api = Api::start().await;
    let far = Far::start(&api, answer).await;
    let first = definition(&far, "/convert", "v1");
    defined(&api, first).await;
    api.make(V1, v1("a", "5 6")).await;
    let versions = definition(&far, "/convert", "v2")["spec"]["versions"].clone();
    redefine(&api, json!({"spec": {"versions": versions}})).await;
    api.make(V2, v2("b", "7", "8")).await;
    // Objects of both versions lie beside each other.
    let all = api.get(V1).await;
    let schedules: Vec<String> =
        all["items"].as_array().unwrap().iter().map(|i| text(&i["spec"]["schedule"])).collect();
    assert_eq!(schedules, ["5 6", "7 8"]);
    // A write that changes nothing brings the old one into the new form.
    let before = api.get(&format!("{V2}/a")).await;
    let (code, after) = api.call("PUT", &format!("{V2}/a"), before.clone()).await;
    assert_eq!(code, 200, "{after}");
    assert_ne!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
    far.asked();
    assert_eq!(api.get(&format!("{V2}/a")).await["spec"]["minute"], "5");
    assert_eq!(far.asked(), Vec::<Value>::new(), "it lies as it is shown");
}

#[tokio::test]
async fn a_webhook_that_does_not_convert_is_an_error_that_says_so() {
    let api = Api::start().await;
    let far = Far::start(&api, answer).await;
    defined(&api, definition(&far, "/convert", "v1")).await;
    api.make(V1, v1("a", "5 6")).await;
    let of = "conversion webhook for example.org/v1, Kind=Cron";
    for (config, wanted) in [
        (far.url("/fails"), format!("{of} failed: cannot convert")),
        (far.url("/fewer"), format!("{of} returned 0 objects, expected 1")),
        (
            far.url("/renames"),
            format!("{of} returned invalid converted object at index 0: must have the same name: a != other"),
        ),
        (
            json!({"url": "https://localhost:1/", "caBundle": far.bundle}),
            format!("{of} failed: Post \"https://localhost:1/?timeout=30s\": dial tcp "),
        ),
    ] {
        redefine(&api, json!({"spec": {"conversion": {"webhook": {"clientConfig": config}}}})).await;
        let (code, refused) = api.call("GET", &format!("{V2}/a"), Value::Null).await;
        assert_eq!(code, 500, "{refused}");
        assert!(text(&refused["message"]).starts_with(&wanted), "{refused}");
    }
    assert_eq!(api.get(&format!("{V1}/a")).await["spec"]["schedule"], "5 6", "as it is stored it is shown");
}

#[tokio::test]
async fn owners_and_deciders_see_their_own_versions() {
    let api = Api::start().await;
    let far = Far::start(&api, answer).await;
    defined(&api, definition(&far, "/convert", "v1")).await;
    let apply = async |manager: &str, object: Value, force: bool| {
        let path = format!(
            "{}/a?fieldManager={manager}&force={force}",
            if object["apiVersion"] == "example.org/v1" { V1 } else { V2 }
        );
        api.typed("PATCH", &path, "application/apply-patch+yaml", object).await
    };
    let (code, made) = apply("first", v1("a", "5 6"), false).await;
    assert_eq!(code, 201, "{made}");
    let (code, refused) = apply("second", v2("a", "7", "6"), false).await;
    assert_eq!(code, 409, "{refused}");
    assert!(text(&refused["message"]).contains("conflict with \"first\""), "{refused}");
    assert_eq!(apply("second", v2("a", "7", "6"), true).await.0, 200);
    let shown = api.get(&format!("{V1}/a")).await;
    assert_eq!(shown["spec"]["schedule"], "7 6");
    let entries = shown["metadata"]["managedFields"].as_array().unwrap();
    let versions: Vec<(String, String)> =
        entries.iter().map(|e| (text(&e["manager"]), text(&e["apiVersion"]))).collect();
    assert!(versions.contains(&("second".to_owned(), "example.org/v2".to_owned())), "{versions:?}");
    let hook = json!({"metadata": {"name": "v"}, "webhooks": [{"name": "v.example.org", "clientConfig": far.url("/"),
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [{"operations": ["CREATE"],
            "apiGroups": ["example.org"], "apiVersions": ["v2"], "resources": ["crons"]}]}]});
    api.make("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", hook).await;
    let (code, refused) = api.call("POST", V1, v1("unlucky", "13 1")).await;
    assert_eq!(code, 400, "it was asked about the version that it wants: {refused}");
    api.make(V1, v1("lucky", "12 1")).await;
}
