//! The demo's manifests: a claim, a Service, and Pods that share the claim.

use serde_json::json;
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};

/// The image that is made of the running program.
pub const IMAGE: &str = "trine.local/demo:latest";
/// Name of the app and of its Service.
pub const NAME: &str = "web";
/// Name of the claim.
pub const CLAIM: &str = "data";

/// 400 MiB of the default class: enough for XFS.
pub fn claim() -> PersistentVolumeClaim {
    from(json!({"metadata": {"name": CLAIM}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "400Mi"}}}}))
}

/// Port 80 of the Service is the app's `http`.
pub fn service() -> Service {
    from(json!({"metadata": {"name": NAME}, "spec": {
        "selector": {"app": NAME}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}}))
}

/// One Pod of the app with the claim mounted.
pub fn pod(name: &str) -> Pod {
    from(json!({"metadata": {"name": name, "labels": {"app": NAME}}, "spec": {
        "terminationGracePeriodSeconds": 5,
        "containers": [{
            "name": "web", "image": IMAGE, "imagePullPolicy": "Never", "args": ["--data", "/data"],
            "ports": [{"name": "http", "containerPort": 8080}],
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}]}}))
}

fn from<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("the demo's own manifests are well formed")
}
