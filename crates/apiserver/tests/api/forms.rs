//! Tables, metadata alone, discovery, both forms of Events.

use crate::server::*;
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn accept(api: &Api, path: &str, accept: &str) -> Value {
    read(api.send("GET", path, &[("accept", accept)], "").await).await.1
}

#[tokio::test]
async fn tables_have_a_cell_for_every_column() {
    let api = Api::start().await;
    api.make(PODS, pod("p")).await;
    let table = accept(&api, PODS, TABLE).await;
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    let row = &table["rows"][0];
    assert_eq!(row["cells"].as_array().unwrap().len(), table["columnDefinitions"].as_array().unwrap().len());
    assert_eq!((&row["cells"][0], &row["cells"][2]), (&"p".into(), &"Pending".into()));
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    let response =
        api.send("GET", &format!("{PODS}?watch=1&timeoutSeconds=1"), &[("accept", TABLE)], "").await;
    let (_, event) = read(response).await;
    assert_eq!((&event["type"], &event["object"]["kind"]), (&"ADDED".into(), &"Table".into()));
    let metadata =
        accept(&api, PODS, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").await;
    assert_eq!(
        (&metadata["kind"], &metadata["items"][0]["spec"]),
        (&"PartialObjectMetadataList".into(), &Value::Null)
    );
}

#[tokio::test]
async fn discovery_is_served_in_all_its_forms() {
    let api = Api::start().await;
    for version in ["v2", "v2beta1"] {
        let wanted = format!(
            "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList,application/json"
        );
        let response = api.send("GET", "/apis", &[("accept", &wanted)], "").await;
        let media = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(
            media.contains(&format!("v={version}")) && media.contains("as=APIGroupDiscoveryList"),
            "{media}"
        );
        let (_, list) = read(response).await;
        assert_eq!(list["apiVersion"], format!("apidiscovery.k8s.io/{version}"));
        assert!(list["items"].as_array().unwrap().iter().any(|g| g["metadata"]["name"] == "storage.k8s.io"));
    }
    assert_eq!(api.get("/api").await["versions"], json!(["v1"]));
    assert_eq!(api.get("/apis").await["kind"], "APIGroupList");
    assert_eq!(api.get("/apis/storage.k8s.io").await["kind"], "APIGroup");
    let core = api.get("/api/v1").await;
    let names: Vec<String> = core["resources"].as_array().unwrap().iter().map(|r| text(&r["name"])).collect();
    for name in ["pods", "pods/status", "pods/log", "pods/eviction", "namespaces/finalize"] {
        assert!(names.iter().any(|n| n == name), "{name}");
    }
    assert_eq!(api.get("/version").await["major"], "1");
    assert!(api.get("/openapi/v3").await["paths"]["api/v1"].is_object());
}

#[tokio::test]
async fn events_are_one_set_of_objects_in_two_forms() {
    let api = Api::start().await;
    let (core, other) =
        ("/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events");
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "Tested",
        "note": "hello", "type": "Normal", "action": "test", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c", "reportingInstance": "i",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}});
    let made = api.make(other, event).await;
    assert_eq!((&made["apiVersion"], &made["note"]), (&"events.k8s.io/v1".into(), &"hello".into()));
    let seen = api.get(&format!("{core}/e")).await;
    assert_eq!((&seen["apiVersion"], &seen["message"]), (&"v1".into(), &"hello".into()));
    assert_eq!(seen["involvedObject"]["name"], "p");
    let (code, patched) = api.patch(&format!("{other}/e"), json!({"note": "again"})).await;
    assert_eq!((code, &patched["note"]), (200, &"again".into()));
    assert_eq!(api.get(core).await["items"][0]["message"], "again");
    assert_eq!(api.get(other).await["items"][0]["note"], "again");
    let count = async |path: &str, field: &str| {
        let (code, list) = api.call("GET", &format!("{path}?fieldSelector={field}"), Value::Null).await;
        list["items"]
            .as_array()
            .map_or_else(|| text(&list["message"]), |items| format!("{code} {}", items.len()))
    };
    for (path, field, expected) in [
        (core, "involvedObject.name%3Dp", "200 1"),
        (core, "reportingComponent%3Dc", "200 1"),
        (core, "reportingController%3Dc", "field label not supported: reportingController"),
        (other, "regarding.name%3Dp", "200 1"),
        (other, "reportingController%3Dc", "200 1"),
        (other, "reportingController%3Dd", "200 0"),
        (other, "involvedObject.name%3Dp", "field label not supported: involvedObject.name"),
    ] {
        assert_eq!(count(path, field).await, expected, "{path} {field}");
    }
}

#[tokio::test]
async fn an_answer_to_a_question_is_no_table() {
    let api = Api::start().await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let question = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}).to_string();
    let json = ("content-type", "application/json");
    let only = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (wanted, code) in [(only, 406), (TABLE, 201), ("application/json", 201)] {
        let answer = api.send("POST", path, &[json, ("accept", wanted)], question.clone()).await;
        assert_eq!(read(answer).await.0, code, "{wanted}");
    }
}

#[tokio::test]
async fn a_cluster_begins_with_its_namespaces_and_its_own_service() {
    let api = Api::start().await;
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        assert_eq!(api.get(&format!("/api/v1/namespaces/{name}")).await["status"]["phase"], "Active");
    }
    let service = api.get("/api/v1/namespaces/default/services/kubernetes").await;
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    let slice = api.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").await;
    assert_eq!(slice["ports"][0]["port"], api.server.addr().port());
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "kubernetes");
}
