//! What runs on this node, as lists and numbers.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use trine_contracts::cri;

use super::server::Server;
use crate::error::KubeletError;
use crate::runtime::labels;

fn unavailable(error: &KubeletError) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, error.chain()).into_response()
}

fn list(items: Vec<Value>) -> Response {
    Json(json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})).into_response()
}

/// The Pods that are bound to this node.
pub async fn pods(State(server): State<Server>) -> Response {
    let all = server.pods.all();
    list(all.iter().map(|pod| serde_json::to_value(&**pod).unwrap_or_default()).collect())
}

/// The Pods that the runtime has a ready sandbox for.
pub async fn running(State(server): State<Server>) -> Response {
    let both = tokio::try_join!(server.runtime.sandboxes(None), server.runtime.containers(None));
    let (sandboxes, containers) = match both {
        Ok(both) => both,
        Err(error) => return unavailable(&error),
    };
    let ready = sandboxes.iter().filter(|s| s.state == cri::PodSandboxState::SandboxReady as i32);
    let items = ready.map(|sandbox| {
        let of_sandbox = containers.iter().filter(|c| c.pod_sandbox_id == sandbox.id);
        let names = of_sandbox.map(|c| {
            let image = c.image.as_ref().map(|i| i.image.clone()).unwrap_or_default();
            json!({"name": c.metadata.as_ref().map(|m| m.name.clone()), "image": image})
        });
        let get = |key: &str| sandbox.labels.get(key).cloned().unwrap_or_default();
        json!({
            "metadata": {
                "name": get(labels::POD_NAME),
                "namespace": get(labels::POD_NAMESPACE),
                "uid": get(labels::POD_UID),
            },
            "spec": {"containers": names.collect::<Vec<_>>()},
            "status": {},
        })
    });
    list(items.collect())
}
