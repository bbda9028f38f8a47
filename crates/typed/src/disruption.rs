//! Somebody other than its owner ends a Pod: it is told why first, so that its owner can tell that from a failure (KEP-3329).

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Error, ResourceExt};
use serde_json::json;

/// Writes the condition `DisruptionTarget`; gives the Pod as it is then.
///
/// # Errors
/// What the API server says.
pub async fn mark(api: &Api<Pod>, pod: &Pod, reason: &str, message: &str) -> Result<Pod, Error> {
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": trine_clock::now()});
    let patch =
        Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}}));
    api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await
}

/// Marks a Pod, then deletes this very one.
///
/// # Errors
/// What the API server says of the first write that it refuses.
pub async fn disrupt(client: &Client, pod: &Pod, reason: &str, message: &str) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    mark(&api, pod, reason, message).await?;
    let same = Preconditions { uid: pod.uid(), resource_version: None };
    api.delete(&pod.name_any(), &DeleteParams::default().preconditions(same)).await.map(drop)
}
