//! Custom kinds in the description of what is served, and what kubectl makes of it.

use crate::custom::{DEFINITIONS, established, until};
use crate::kubectl::Kubectl;
use crate::server::*;
use serde_json::{Value, json};
use trine_kernel::testing::program;

const NAME: &str = "foos.test.example.com";

fn foo_schema() -> Value {
    json!({"description": "Foo CRD for Testing", "type": "object", "properties": {
        "spec": {"type": "object", "description": "Specification of Foo", "properties": {
            "bars": {"description": "List of Bars and their specs.", "type": "array", "items": {"type": "object", "required": ["name"],
                "properties": {
                    "name": {"description": "Name of Bar.", "type": "string"},
                    "feeling": {"description": "Whether Bar is feeling great.", "type": "string", "enum": ["Great", "Down"]},
                    "bazs": {"description": "List of Bazs.", "type": "array", "items": {"type": "string"}}}}}}},
        "status": {"type": "object", "description": "Status of Foo"}}})
}

fn foos(versions: &[(&str, bool)], schema: &Value) -> Value {
    let versions = versions.iter().enumerate().map(|(i, (name, served))| {
        json!({"name": name, "served": served, "storage": i == 0, "schema": {"openAPIV3Schema": schema}})
    });
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": NAME},
        "spec": {"group": "test.example.com", "scope": "Namespaced", "versions": versions.collect::<Vec<_>>(),
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooBag"}}})
}

async fn defined(api: &Api, definition: Value) {
    api.make(DEFINITIONS, definition).await;
    established(api, NAME).await;
}

/// The published schema of a version in the older form, without what the server adds.
async fn published(api: &Api, version: &str) -> Option<Value> {
    let document = api.get("/openapi/v2").await;
    let mut schema = document["definitions"][format!("com.example.test.{version}.Foo")].clone();
    let map = schema.as_object_mut()?;
    map.remove("x-kubernetes-group-version-kind");
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        for added in ["metadata", "apiVersion", "kind"] {
            assert!(properties.remove(added).is_some(), "{added}");
        }
    }
    Some(schema)
}

#[tokio::test]
async fn the_published_schema_follows_its_definition() {
    let api = Api::start().await;
    assert_eq!(published(&api, "v2").await, None);
    defined(&api, foos(&[("v2", true), ("v3", true)], &foo_schema())).await;
    for version in ["v2", "v3"] {
        assert_eq!(published(&api, version).await.unwrap(), foo_schema(), "{version}");
    }
    let index = api.get("/openapi/v3").await;
    let url = text(&index["paths"]["apis/test.example.com/v2"]["serverRelativeURL"]);
    let document = api.get(&url).await;
    let object = &document["paths"]["/apis/test.example.com/v2/namespaces/{namespace}/foos/{name}"];
    let patches: Vec<&String> =
        object["patch"]["requestBody"]["content"].as_object().unwrap().keys().collect();
    assert_eq!(
        patches,
        ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]
    );
    assert_eq!(
        object["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/com.example.test.v2.Foo"
    );

    let path = format!("{DEFINITIONS}/{NAME}");
    let renamed = json!([{"op": "test", "path": "/spec/versions/1/name", "value": "v3"},
        {"op": "replace", "path": "/spec/versions/1/name", "value": "v4"}]);
    assert_eq!(api.typed("PATCH", &path, "application/json-patch+json", renamed).await.0, 200);
    until("renamed", async || published(&api, "v4").await.is_some() && published(&api, "v3").await.is_none())
        .await;
    let unserved = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]);
    assert_eq!(api.typed("PATCH", &path, "application/json-patch+json", unserved).await.0, 200);
    until("not served", async || published(&api, "v4").await.is_none()).await;
    assert_eq!(published(&api, "v2").await.unwrap(), foo_schema());
    let (code, _) = api.call("DELETE", &path, Value::Null).await;
    assert_eq!(code, 200);
    until("gone", async || published(&api, "v2").await.is_none()).await;
    assert_eq!(api.call("GET", "/openapi/v3/apis/test.example.com/v2", Value::Null).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_explains_and_checks_custom_objects() {
    if !program("kubectl_explains_and_checks_custom_objects", "kubectl") {
        return;
    }
    let api = Api::start().await;
    defined(&api, foos(&[("v1", true)], &foo_schema())).await;
    let kubectl = Kubectl::of(&api);
    let manifest = api.dir.path().join("foo.json");
    let file = manifest.to_str().unwrap();
    let write = |spec: Value| {
        let foo = json!({"apiVersion": "test.example.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": spec});
        std::fs::write(&manifest, foo.to_string()).unwrap();
    };
    write(json!({"bars": [{"name": "test-bar"}]}));
    kubectl.ok(&["create", "-f", file]).await;
    assert_eq!(kubectl.ok(&["apply", "-f", file]).await, "foo.test.example.com/a configured\n");
    kubectl.ok(&["delete", "foos", "a"]).await;
    for (spec, wanted) in [
        (json!({"bars": [{"name": "b", "feeling": "Odd"}]}), "Unsupported value: \"Odd\""),
        (json!({"foo": true}), "unknown field \"spec.foo\""),
        (json!({"bars": [{}]}), "spec.bars[0].name: Required value"),
    ] {
        write(spec);
        for verb in ["create", "apply"] {
            let said = kubectl.refused(&[verb, "-f", file]).await;
            assert!(said.contains(wanted), "{verb}: {said}");
        }
    }
    let explained = |text: String, wanted: &[&str]| {
        let mut rest = text.as_str();
        for part in wanted {
            let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is missing in\n{text}"));
            rest = &rest[at + part.len()..];
        }
    };
    let of = async |path: &str| kubectl.ok(&["explain", path]).await;
    let root = [
        "DESCRIPTION:",
        "Foo CRD for Testing",
        "FIELDS:",
        "apiVersion",
        "<string>",
        "APIVersion defines",
        "spec",
        "<Object>",
        "Specification of Foo",
    ];
    explained(of("foos").await, &root);
    let metadata = [
        "DESCRIPTION:",
        "Standard object's metadata",
        "FIELDS:",
        "creationTimestamp",
        "<string>",
        "CreationTimestamp is a timestamp",
    ];
    explained(of("foos.metadata").await, &metadata);
    let bars = [
        "bars",
        "<[]Object>",
        "DESCRIPTION:",
        "List of Bars and their specs",
        "FIELDS:",
        "bazs",
        "<[]string>",
        "List of Bazs",
        "name",
        "<string>",
        "Name of Bar",
    ];
    explained(of("foos.spec.bars").await, &bars);
    let said = kubectl.refused(&["explain", "foos.spec.bars2"]).await;
    assert!(said.contains("field \"bars2\" does not exist"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_lets_anything_pass_where_unknown_fields_are_kept() {
    if !program("kubectl_lets_anything_pass_where_unknown_fields_are_kept", "kubectl") {
        return;
    }
    let api = Api::start().await;
    let mut schema = foo_schema();
    schema["x-kubernetes-preserve-unknown-fields"] = true.into();
    schema["properties"] = json!({"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    defined(&api, foos(&[("v1", true)], &schema)).await;
    assert_eq!(published(&api, "v1").await.unwrap(), json!({"type": "object"}));
    let kubectl = Kubectl::of(&api);
    let manifest = api.dir.path().join("foo.json");
    let foo = json!({"apiVersion": "test.example.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "a": {"b": [{"c": "d"}]},
        "spec": {"a": null, "b": [{"c": "d"}]}});
    std::fs::write(&manifest, foo.to_string()).unwrap();
    kubectl.ok(&["create", "-f", manifest.to_str().unwrap()]).await;
    kubectl.ok(&["apply", "-f", manifest.to_str().unwrap()]).await;
    assert!(kubectl.ok(&["explain", "foos"]).await.contains("Foo CRD for Testing"));
    let listed = api.get("/apis/test.example.com/v1/foos").await;
    assert_eq!((&listed["kind"], &listed["items"][0]["a"]["b"][0]["c"]), (&json!("FooBag"), &json!("d")));
}

#[tokio::test]
async fn nothing_is_made_of_a_definition_that_is_going() {
    let api = Api::start().await;
    defined(&api, foos(&[("v1", true)], &foo_schema())).await;
    let path = "/apis/test.example.com/v1/namespaces/default/foos";
    let foo = |name: &str, finalizers: Value| json!({"apiVersion": "test.example.com/v1", "kind": "Foo", "metadata": {"name": name, "finalizers": finalizers}});
    api.make(path, foo("held", json!(["example.com/hold"]))).await;
    assert_eq!(api.call("DELETE", &format!("{DEFINITIONS}/{NAME}"), Value::Null).await.0, 200);
    until("refused", async || {
        let (code, said) = api.call("POST", &format!("{path}?dryRun=All"), foo("late", Value::Null)).await;
        let wanted = "foos.test.example.com \"late\" is forbidden: create not allowed while custom resource definition is \
                      terminating";
        code == 403 && said["message"] == wanted
    })
    .await;
    let (code, _) = api.patch(&format!("{path}/held"), json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(code, 200, "what is there may change");
}

#[tokio::test]
async fn who_applies_what_is_not_there_needs_the_right_to_create() {
    let api = Api::start().await;
    let rule = |verbs: Value| json!({"metadata": {"name": "patcher"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]});
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    api.make(roles, rule(json!(["patch"]))).await;
    let binding = json!({"metadata": {"name": "patcher"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "patcher"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "pat"}]});
    api.make(&roles.replace("roles", "rolebindings"), binding).await;
    let apply = async || {
        let path = format!("{CONFIG_MAPS}/new?fieldManager=pat");
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"a": "b"}});
        api.typed_as(("pat", &[]), "PATCH", &path, "application/apply-patch+yaml", config).await
    };
    let (code, said) = apply().await;
    assert_eq!(code, 403);
    let wanted = "configmaps \"new\" is forbidden: User \"pat\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert!(text(&said["message"]).starts_with(wanted), "{said}");
    let (code, _) = api.call("PUT", &format!("{roles}/patcher"), rule(json!(["patch", "create"]))).await;
    assert_eq!(code, 200);
    assert_eq!(apply().await.0, 201);
}
