//! Definitions of further networks (`network-attachment-definitions.k8s.cni.cncf.io`), and what is said of them on a Pod.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Error};
use serde_json::{Value, json};

/// A definition that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot find a network-attachment-definition ({name}) in namespace ({namespace}): {cause}")]
pub struct NotFound {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// What the server said, or why it could not be asked.
    pub cause: String,
}

/// The `config` of each of these definitions (namespace and name, which have to be names of objects); empty if it has none.
///
/// # Errors
/// [`NotFound`] for the first that cannot be read, also if there is no such kind.
pub async fn configs(
    client: &Client,
    definitions: &BTreeSet<(String, String)>,
) -> Result<BTreeMap<(String, String), String>, NotFound> {
    let mut configs = BTreeMap::new();
    for (namespace, name) in definitions {
        let not_found = |error: Error| {
            let cause = match error {
                Error::Api(status) => format!("{} ({}, {})", status.message, status.reason, status.code),
                other => other.to_string(),
            };
            NotFound { name: name.clone(), namespace: namespace.clone(), cause }
        };
        let path =
            format!("/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions/{name}");
        let request =
            http::Request::get(path).body(Vec::new()).map_err(|e| not_found(Error::HttpError(e)))?;
        let definition: Value = client.request(request).await.map_err(not_found)?;
        let config = definition["spec"]["config"].as_str().unwrap_or_default().to_owned();
        configs.insert((namespace.clone(), name.clone()), config);
    }
    Ok(configs)
}

/// Sets an annotation of a Pod by way of its status, which is what a node may write; none if the Pod is gone.
///
/// # Errors
/// The client's.
pub async fn annotate(client: &Client, pod: &Pod, key: &str, text: &str) -> Result<Option<Pod>, Error> {
    let meta = &pod.metadata;
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref());
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let body = json!({"metadata": {"uid": meta.uid, "annotations": {key: text}}});
    match pods.patch_status(name.unwrap_or_default(), &PatchParams::default(), &Patch::Merge(&body)).await {
        Ok(pod) => Ok(Some(pod)),
        // Gone, or another Pod of this name.
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(error) => Err(error),
    }
}
