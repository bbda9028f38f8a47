//! The published description, read by the client that everybody uses: `kubectl explain` and `kubectl apply` against a server
//! that has just discovery, the description and one Pod.

#![allow(clippy::unwrap_used)]

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use trine_apiserver::catalog::Catalog;
use trine_apiserver::openapi::OpenApi;
use trine_objects::{patch, resources, schema};

#[derive(Default)]
struct Server {
    openapi: OpenApi,
    pod: Mutex<Option<Value>>,
    writes: Mutex<Vec<String>>,
}

type Shared = State<Arc<Server>>;

async fn discovery() -> Json<Value> {
    let list = resources::resources().iter().filter(|r| r.group.is_empty()).map(|r| {
        json!({"name": r.plural, "singularName": r.singular, "namespaced": r.namespaced, "kind": r.kind, "verbs": r.verbs,
            "shortNames": r.short_names})
    });
    Json(json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": list.collect::<Value>()}))
}

async fn document(State(server): Shared, Path(path): Path<String>) -> Response {
    match server.openapi.document(&Catalog::new().now(), &[], &path) {
        Some(document) => ([("content-type", "application/json")], document.bytes).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn read(State(server): Shared) -> Response {
    let pod = server.pod.lock().unwrap().clone();
    let absent = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "pods \"web\" not found", "details": {"name": "web", "kind": "pods"}});
    match pod {
        Some(pod) => Json(pod).into_response(),
        None => (StatusCode::NOT_FOUND, Json(absent)).into_response(),
    }
}

fn note(server: &Server, verb: &str, query: &HashMap<String, String>, headers: &HeaderMap) {
    let kind = headers["content-type"].to_str().unwrap();
    let validation = query.get("fieldValidation").map_or("", String::as_str);
    server.writes.lock().unwrap().push(format!("{verb} {kind} {validation}"));
}

async fn create(
    State(server): Shared,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    note(&server, "POST", &query, &headers);
    let pod: Value = serde_json::from_slice(&body).unwrap();
    *server.pod.lock().unwrap() = Some(pod.clone());
    (StatusCode::CREATED, Json(pod)).into_response()
}

async fn change(
    State(server): Shared,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    note(&server, "PATCH", &query, &headers);
    let mut pod = server.pod.lock().unwrap().clone().unwrap();
    let ty = schema::of("", "v1", "Pod").unwrap();
    patch::strategic(&mut pod, &serde_json::from_slice(&body).unwrap(), ty).unwrap();
    *server.pod.lock().unwrap() = Some(pod.clone());
    Json(pod).into_response()
}

async fn serve() -> (Arc<Server>, String) {
    let server = Arc::new(Server::default());
    let router = Router::new()
        .route("/api", get(|| async { Json(json!({"kind": "APIVersions", "versions": ["v1"]})) }))
        .route(
            "/version",
            get(|| async { Json(json!({"major": "1", "minor": "37", "gitVersion": "v1.37.0"})) }),
        )
        .route(
            "/apis",
            get(|| async { Json(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})) }),
        )
        .route("/api/v1", get(discovery))
        .route(
            "/openapi/v3",
            get(|State(server): Shared| async move {
                ([("content-type", "application/json")], server.openapi.index(&Catalog::new().now(), &[]))
            }),
        )
        .route("/openapi/v3/{*path}", get(document))
        .route("/api/v1/namespaces/default/pods", get(read).post(create))
        .route("/api/v1/namespaces/default/pods/web", get(read).patch(change))
        .with_state(server.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (server, url)
}

async fn kubectl(url: &str, home: &std::path::Path, args: &[&str]) -> String {
    let mut command = Command::new("kubectl");
    command
        .args(["--server", url, "--cache-dir"])
        .arg(home.join("cache"))
        .args(args)
        .env("HOME", home)
        .env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {args:?}: {text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_explains_and_applies_by_the_description() {
    if !trine_kernel::testing::program("kubectl_explains_and_applies_by_the_description", "kubectl") {
        return;
    }
    let (server, url) = serve().await;
    let home = tempfile::tempdir().unwrap();
    let explained = kubectl(&url, home.path(), &["explain", "pods.spec.containers.ports"]).await;
    assert!(explained.contains("containerPort") && explained.contains("-required-"), "{explained}");
    let tree = kubectl(&url, home.path(), &["explain", "pod.spec.volumes", "--recursive"]).await;
    assert!(tree.contains("persistentVolumeClaim") && tree.contains("claimName"), "{tree}");

    let manifest = home.path().join("pod.json");
    let manifest_path = manifest.to_str().unwrap().to_owned();
    for image in ["nginx:1", "nginx:2"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": image}, {"name": "d", "image": "x"}]}});
        std::fs::write(&manifest, pod.to_string()).unwrap();
        kubectl(&url, home.path(), &["apply", "-f", &manifest_path]).await;
    }
    let writes = server.writes.lock().unwrap().clone();
    assert_eq!(
        writes,
        ["POST application/json Strict", "PATCH application/strategic-merge-patch+json Strict"]
    );
    let pod = server.pod.lock().unwrap().clone().unwrap();
    assert_eq!(
        pod["spec"]["containers"],
        json!([{"name": "c", "image": "nginx:2"}, {"name": "d", "image": "x"}])
    );
}
