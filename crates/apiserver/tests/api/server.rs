//! A server in a folder of its own, and calls to it without a network.

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;
use trine_apiserver::{ApiServer, AuditConfig, Config, start};
use trine_store::Store;
use trine_store::redb::{Limits, RedbStore};

/// How long anything may take.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// A running server; its folder goes with it.
pub struct Api {
    pub server: ApiServer,
    pub dir: tempfile::TempDir,
}

pub async fn start_in(dir: &Path) -> ApiServer {
    start_with(dir, AuditConfig::default()).await
}

pub async fn start_with(dir: &Path, audit: AuditConfig) -> ApiServer {
    let store = RedbStore::open(&dir.join("store.redb"), Limits::default()).unwrap();
    start_noting(dir, Arc::new(store), audit).await
}

pub async fn start_on(dir: &Path, store: Arc<dyn Store>) -> ApiServer {
    start_noting(dir, store, AuditConfig::default()).await
}

async fn start_noting(dir: &Path, store: Arc<dyn Store>, audit: AuditConfig) -> ApiServer {
    let config = Config {
        data_dir: dir.to_owned(),
        bind: "127.0.0.1:0".parse().unwrap(),
        advertise: "127.0.0.1".parse().unwrap(),
        service_cidr: "10.96.0.0/16".to_owned(),
        audit,
        // All that can be served.
        runtime_config: "api/beta".parse().unwrap(),
    };
    start(config, store).await.unwrap()
}

impl Api {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { server: start_in(dir.path()).await, dir }
    }

    /// One of several on a store.
    pub async fn on(store: Arc<dyn Store>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { server: start_on(dir.path(), store).await, dir }
    }

    /// Stops, and starts again on the same data.
    pub async fn restart(self) -> Self {
        self.server.stop().await;
        Self { server: start_in(self.dir.path()).await, dir: self.dir }
    }

    /// A request as the admin; `headers` are pairs.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let service = self.server.service("admin", &["system:masters"]);
        service.oneshot(request.body(body.into()).unwrap()).await.unwrap()
    }

    /// A request with a JSON body as another user; code and answer.
    pub async fn call_as(
        &self,
        user: (&str, &[&str]),
        method: &str,
        path: &str,
        body: Value,
    ) -> (u16, Value) {
        self.typed_as(user, method, path, "application/json", body).await
    }

    pub async fn typed_as(
        &self,
        user: (&str, &[&str]),
        method: &str,
        path: &str,
        media: &str,
        body: Value,
    ) -> (u16, Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", media).body(Body::from(text)).unwrap();
        let service = self.server.service(user.0, user.1);
        read(service.oneshot(request).await.unwrap()).await
    }

    /// A request with a JSON body; code and answer.
    pub async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.typed(method, path, "application/json", body).await
    }

    pub async fn typed(&self, method: &str, path: &str, media: &str, body: Value) -> (u16, Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.send(method, path, &[("content-type", media)], text).await;
        read(response).await
    }

    pub async fn get(&self, path: &str) -> Value {
        let (code, value) = self.call("GET", path, Value::Null).await;
        assert_eq!(code, 200, "{path}: {value}");
        value
    }

    /// Creates, and insists on it.
    pub async fn make(&self, path: &str, object: Value) -> Value {
        let (code, made) = self.call("POST", path, object).await;
        assert_eq!(code, 201, "{path}: {made}");
        made
    }

    pub async fn patch(&self, path: &str, change: Value) -> (u16, Value) {
        self.typed("PATCH", path, "application/merge-patch+json", change).await
    }

    pub async fn watch(&self, path: &str) -> Lines {
        let response = self.send("GET", path, &[], "").await;
        assert_eq!(response.status(), 200, "{path}");
        Lines::new(response)
    }
}

pub async fn read(response: Response) -> (u16, Value) {
    let code = response.status().as_u16();
    let body: Bytes =
        tokio::time::timeout(DEADLINE, response.into_body().collect()).await.unwrap().unwrap().to_bytes();
    let text = || Value::from(String::from_utf8_lossy(&body).into_owned());
    (code, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
}

/// The lines of a watch.
pub struct Lines {
    body: Body,
    have: Vec<u8>,
}

impl Lines {
    pub fn new(response: Response) -> Self {
        Self { body: response.into_body(), have: Vec::new() }
    }

    /// The next event; `None` at the end of the watch.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.have.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.have.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(DEADLINE, self.body.frame())
                .await
                .expect("an event within the deadline")?;
            self.have.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
        }
    }

    /// Type and name of the next event.
    pub async fn seen(&mut self) -> (String, String) {
        let event = self.next().await.expect("the watch goes on");
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }

    /// Whether nothing comes for a while.
    pub async fn quiet(&mut self) -> bool {
        self.have.is_empty()
            && tokio::time::timeout(Duration::from_millis(200), self.body.frame()).await.is_err()
    }
}

/// The annotations of the last note about a resource in an audit log.
pub fn annotations(log: &Path, resource: &str) -> Value {
    let notes = std::fs::read_to_string(log).unwrap();
    let mut notes = notes.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let about = |e: &Value| e["objectRef"]["resource"] == resource && e["stage"] == "ResponseComplete";
    notes.rfind(about).unwrap()["annotations"].clone()
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";

pub fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

pub fn labelled(name: &str, app: &str) -> Value {
    let mut map = config_map(name, "");
    map["metadata"]["labels"] = json!({"app": app});
    map
}

pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "example/web:1"}]}})
}
