//! A namespace that is being deleted is emptied, then released by taking `kubernetes` from its finalizers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::Namespace;
use trine_typed::kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use trine_typed::kube::core::discovery::Scope;
use trine_typed::kube::discovery::{ApiResource, Discovery, verbs};
use trine_typed::kube::{Api, ResourceExt};
use trine_typed::mirror::Mirror;

use crate::frame::{ControllerError, Cx, log};

const PERIOD: Duration = Duration::from_secs(300);
/// Pause before a namespace that is not yet empty is looked at again.
const NOT_YET_EMPTY: Duration = Duration::from_millis(250);

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let namespaces: Mirror<Namespace> = cx.mirror(&changed);
    namespaces.ready().await;
    loop {
        let mut waiting = false;
        for namespace in namespaces.all() {
            if namespace.metadata.deletion_timestamp.is_none() {
                continue;
            }
            match empty(&cx, &namespace).await {
                Ok(done) => waiting |= !done,
                Err(error) => {
                    waiting = true;
                    log("namespace", &error);
                }
            }
        }
        if !cx.turn(&changed, if waiting { NOT_YET_EMPTY } else { PERIOD }).await {
            return;
        }
    }
}

/// Deletes what is left in `namespace`; true if nothing was and the namespace is released.
async fn empty(cx: &Cx, namespace: &Namespace) -> Result<bool, ControllerError> {
    let name = namespace.name_any();
    let mut left = 0;
    for resource in deletable(cx).await? {
        let api: Api<DynamicObject> = Api::namespaced_with(cx.client.clone(), &name, &resource);
        let object = || format!("{} in {name}", resource.plural);
        let found = api.list_metadata(&ListParams::default().limit(1)).await;
        let found = found.map_err(ControllerError::of("list", object()))?;
        if !found.items.is_empty() {
            left += 1;
            api.delete_collection(&DeleteParams::background(), &ListParams::default())
                .await
                .map_err(ControllerError::of("delete all", object()))?;
        }
    }
    if left > 0 {
        return Ok(false);
    }
    let mut released = namespace.clone();
    if let Some(spec) = &mut released.spec {
        spec.finalizers = None;
    }
    let api: Api<Namespace> = Api::all(cx.client.clone());
    let done = api.replace_subresource("finalize", &name, &PostParams::default(), &released).await;
    done.map(|_| true).map_err(ControllerError::of("finalize namespace", name))
}

async fn deletable(cx: &Cx) -> Result<Vec<ApiResource>, ControllerError> {
    let discovery = Discovery::new(cx.client.clone())
        .run()
        .await
        .map_err(ControllerError::of("discover", "namespaced resources"))?;
    let mut resources = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let events_twice = resource.kind == "Event" && resource.group == "events.k8s.io";
            if capabilities.scope == Scope::Namespaced
                && capabilities.supports_operation(verbs::DELETE_COLLECTION)
                && capabilities.supports_operation(verbs::LIST)
                && !events_twice
            {
                resources.push(resource);
            }
        }
    }
    Ok(resources)
}
