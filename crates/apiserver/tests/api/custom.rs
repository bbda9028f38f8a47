//! Kinds that people define.

use std::time::Duration;

use crate::server::*;
use serde_json::{Value, json};

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRONS: &str = "/apis/example.org/v1/namespaces/default/crons";

fn version(name: &str, storage: bool, more: &Value) -> Value {
    let mut version = json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "additionalPrinterColumns": [{"name": "Schedule", "type": "string", "jsonPath": ".spec.schedule"}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "required": ["schedule"], "properties": {
                "schedule": {"type": "string", "pattern": "^[0-9* ]+$"},
                "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
                "replicas": {"type": "integer", "minimum": 1}},
                "x-kubernetes-validations": [{"rule": "!has(self.replicas) || self.replicas != 13", "message": "not thirteen"}]},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}});
    for (key, value) in more.as_object().into_iter().flatten() {
        version[key] = value.clone();
    }
    version
}

fn definition(versions: &[Value]) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "crons.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": "crons", "kind": "Cron", "shortNames": ["cr"]}, "versions": versions}})
}

fn cron(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Cron", "metadata": {"name": name}, "spec": spec})
}

pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..200 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}");
}

async fn defined(api: &Api, definition: Value) {
    api.make(DEFINITIONS, definition).await;
    established(api, "crons.example.org").await;
}

pub async fn established(api: &Api, name: &str) {
    until("established", async || {
        let now = api.get(&format!("{DEFINITIONS}/{name}")).await;
        let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True")
    })
    .await;
}

#[tokio::test]
async fn a_defined_kind_is_served_like_any_other() {
    let api = Api::start().await;
    assert_eq!(api.call("GET", CRONS, Value::Null).await.0, 404);
    defined(&api, definition(&[version("v1", true, &Value::Null)])).await;
    let made = api.make(CRONS, cron("a", &json!({"schedule": "* *"}))).await;
    assert_eq!(made["spec"]["color"], "red");
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{CRONS}/a");
    assert_eq!(api.patch(&path, json!({"spec": {"replicas": 2}})).await.0, 200);
    let now = api.get(&path).await;
    assert_eq!((&now["spec"]["replicas"], &now["metadata"]["generation"]), (&json!(2), &json!(2)));
    let mut object = now.clone();
    object["status"] = json!({"free": {"form": 1}});
    object["spec"]["schedule"] = "0".into();
    let (code, after) = api.call("PUT", &format!("{path}/status"), object).await;
    assert_eq!(
        (code, &after["status"]["free"]["form"], &after["spec"]["schedule"]),
        (200, &json!(1), &json!("* *"))
    );
    api.make(CRONS, cron("b", &json!({"schedule": "1", "color": "blue"}))).await;
    let blue = api.get(&format!("{CRONS}?fieldSelector=spec.color%3Dblue")).await;
    assert_eq!(blue["items"].as_array().map(Vec::len), Some(1));
    assert_eq!((&blue["kind"], &blue["items"][0]["metadata"]["name"]), (&json!("CronList"), &json!("b")));
    let discovery = api.get("/apis/example.org/v1").await;
    assert_eq!(discovery["resources"][0]["shortNames"], json!(["cr"]));
}

#[tokio::test]
async fn what_does_not_fit_the_schema_is_refused_and_unknown_fields_are_dropped() {
    let api = Api::start().await;
    defined(&api, definition(&[version("v1", true, &Value::Null)])).await;
    for (spec, wanted) in [
        (json!({}), "spec.schedule: Required value"),
        (json!({"schedule": 7}), "spec.schedule in body must be of type string"),
        (json!({"schedule": "x"}), "spec.schedule in body should match"),
        (json!({"schedule": "*", "color": "pink"}), "supported values: \"blue\", \"red\""),
        (json!({"schedule": "*", "replicas": 0}), "should be greater than or equal to 1"),
        (json!({"schedule": "*", "replicas": 13}), "not thirteen"),
    ] {
        let (code, refused) = api.call("POST", CRONS, cron("x", &spec)).await;
        let message = refused["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(code, 422, "{spec}: {message}");
        assert!(message.contains(wanted), "{message}");
    }
    let unknown = json!({"schedule": "*", "extra": 1});
    let strict = format!("{CRONS}?fieldValidation=Strict");
    let (code, refused) = api.call("POST", &strict, cron("x", &unknown)).await;
    assert_eq!(code, 400);
    assert!(refused["message"].as_str().unwrap().contains("unknown field \"spec.extra\""), "{refused}");
    let made = api.make(CRONS, cron("x", &unknown)).await;
    assert_eq!(made["spec"]["extra"], Value::Null);
}

#[tokio::test]
async fn versions_show_the_same_objects() {
    let api = Api::start().await;
    let old = version("v1beta1", false, &json!({"deprecated": true}));
    defined(&api, definition(&[version("v1", true, &Value::Null), old])).await;
    api.make(CRONS, cron("a", &json!({"schedule": "1"}))).await;
    let beta = CRONS.replace("/v1/", "/v1beta1/");
    let shown = api.get(&format!("{beta}/a")).await;
    assert_eq!(shown["apiVersion"], "example.org/v1beta1");
    let mut other = cron("b", &json!({"schedule": "2"}));
    other["apiVersion"] = "example.org/v1beta1".into();
    api.make(&beta, other).await;
    let listed = api.get(CRONS).await;
    let versions: Vec<&Value> =
        listed["items"].as_array().unwrap().iter().map(|i| &i["apiVersion"]).collect();
    assert_eq!(versions, ["example.org/v1", "example.org/v1"]);
}

#[tokio::test]
async fn a_deleted_definition_takes_its_objects_with_it() {
    let api = Api::start().await;
    defined(&api, definition(&[version("v1", true, &Value::Null)])).await;
    api.make(CRONS, cron("a", &json!({"schedule": "1"}))).await;
    let path = format!("{DEFINITIONS}/crons.example.org");
    assert_eq!(api.call("DELETE", &path, Value::Null).await.0, 200);
    until("gone", async || api.call("GET", &path, Value::Null).await.0 == 404).await;
    until("not served", async || api.call("GET", CRONS, Value::Null).await.0 == 404).await;
    // The same name again begins with nothing.
    defined(&api, definition(&[version("v1", true, &Value::Null)])).await;
    assert_eq!(api.get(CRONS).await["items"], json!([]));
}

#[tokio::test]
async fn a_definition_that_is_wrong_is_refused_with_the_field() {
    let api = Api::start().await;
    let mut wrong = definition(&[version("v1", true, &json!({"schema": {"openAPIV3Schema": {}}}))]);
    let (code, refused) = api.call("POST", DEFINITIONS, wrong.clone()).await;
    assert_eq!(code, 422);
    let field = &refused["details"]["causes"][0]["field"];
    assert_eq!(field, "spec.versions[0].schema.openAPIV3Schema.type");
    wrong["metadata"]["name"] = "other.example.org".into();
    assert_eq!(api.call("POST", DEFINITIONS, wrong).await.0, 422);
}
