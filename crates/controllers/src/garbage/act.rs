//! Looks an object's owners up, and does what the plan says.

use serde_json::{Value, json};
use trine_typed::kube::api::{
    DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use trine_typed::kube::{self, Api, ResourceExt};

use super::graph::{Node, Owner};
use super::plan::{FOREGROUND, ORPHAN, Policy, Standing, Step, decide};
use super::watch::Watched;
use crate::frame::ControllerError;

/// Does what follows for one object.
pub async fn reconcile(watched: &Watched, uid: &str) -> Result<(), ControllerError> {
    let (node, dependents) = {
        let graph = watched.graph();
        let Some(node) = graph.get(uid).cloned() else { return Ok(()) };
        let dependents = graph.dependents(uid);
        (node, dependents)
    };
    let mut owners = Vec::new();
    if !node.deleting {
        for owner in &node.owners {
            owners.push((owner.clone(), standing(watched, &node, owner).await?));
        }
    }
    let Some(api) = api(watched, &node) else { return Ok(()) };
    match decide(&node, &owners, &dependents) {
        Step::Rest => Ok(()),
        Step::Orphan { dependents } => {
            for uid in dependents {
                let dependent = watched.graph().get(&uid).cloned();
                if let Some(dependent) = dependent {
                    change_owners(watched, &dependent, |o| o["uid"] != *node.uid, |_| {}).await?;
                }
            }
            release(&api, &node, ORPHAN).await
        }
        Step::Finish => release(&api, &node, FOREGROUND).await,
        Step::Wait { dependents } => {
            watched.graph().mark(dependents.into_iter().filter(|uid| *uid != node.uid));
            watched.changed().notify_one();
            Ok(())
        }
        Step::Forget { owners } => {
            let stays = |o: &Value| !owners.iter().any(|uid| o["uid"] == **uid);
            change_owners(watched, &node, stays, |_| {}).await
        }
        Step::Delete { policy, unblock } => {
            if unblock {
                change_owners(watched, &node, |_| true, |o| o["blockOwnerDeletion"] = false.into()).await?;
            }
            delete(&api, &node, policy).await
        }
    }
}

fn api(watched: &Watched, node: &Node) -> Option<Api<DynamicObject>> {
    let (resource, namespaced) = watched.resource_of(node)?;
    let client = watched.client().clone();
    Some(if namespaced {
        Api::namespaced_with(client, &node.namespace, &resource)
    } else {
        Api::all_with(client, &resource)
    })
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// How an owner is: as it is watched, or as the server says if it is not seen there.
async fn standing(watched: &Watched, node: &Node, owner: &Owner) -> Result<Standing, ControllerError> {
    let Some(kind) = watched.kind(&owner.api_version, &owner.kind) else { return Ok(Standing::Unknown) };
    if kind.namespaced && node.namespace.is_empty() {
        // Nobody in a namespace owns what lies outside.
        return Ok(Standing::Unknown);
    }
    {
        let graph = watched.graph();
        if let Some(seen) = graph.get(&owner.uid)
            && (!kind.namespaced || seen.namespace == node.namespace)
        {
            let waiting = seen.deleting && seen.holds(FOREGROUND);
            return Ok(if waiting { Standing::Waiting } else { Standing::Solid });
        }
    }
    let client = watched.client().clone();
    let api: Api<DynamicObject> = if kind.namespaced {
        Api::namespaced_with(client, &node.namespace, &kind.api)
    } else {
        Api::all_with(client, &kind.api)
    };
    match api.get_metadata(&owner.name).await {
        Ok(found) if found.uid().as_deref() == Some(&owner.uid) => Ok(Standing::Solid),
        Ok(_) => Ok(Standing::Gone),
        Err(error) if is_missing(&error) => Ok(Standing::Gone),
        Err(error) => Err(ControllerError::of("get", format!("{} {}", owner.kind, owner.name))(error)),
    }
}

async fn delete(api: &Api<DynamicObject>, node: &Node, policy: Policy) -> Result<(), ControllerError> {
    let same = Preconditions { uid: Some(node.uid.clone()), resource_version: None };
    let propagation_policy = Some(match policy {
        Policy::Background => PropagationPolicy::Background,
        Policy::Foreground => PropagationPolicy::Foreground,
        Policy::Orphan => PropagationPolicy::Orphan,
    });
    let params = DeleteParams { preconditions: Some(same), propagation_policy, ..DeleteParams::default() };
    match api.delete(&node.name, &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        done => done.map(drop).map_err(ControllerError::of("delete", shown(node))),
    }
}

fn shown(node: &Node) -> String {
    if node.namespace.is_empty() { node.name.clone() } else { format!("{}/{}", node.namespace, node.name) }
}

/// Takes a finalizer away.
async fn release(api: &Api<DynamicObject>, node: &Node, finalizer: &str) -> Result<(), ControllerError> {
    change(api, node, |metadata| {
        if let Some(list) = metadata["finalizers"].as_array_mut() {
            list.retain(|f| f != finalizer);
        }
    })
    .await
}

/// Keeps those references to owners that stay, changed.
async fn change_owners(
    watched: &Watched,
    node: &Node,
    stays: impl Fn(&Value) -> bool,
    turn: impl Fn(&mut Value),
) -> Result<(), ControllerError> {
    let Some(api) = api(watched, node) else { return Ok(()) };
    change(&api, node, |metadata| {
        if let Some(list) = metadata["ownerReferences"].as_array_mut() {
            list.retain(|o| stays(o));
            list.iter_mut().for_each(&turn);
        }
    })
    .await
}

/// Changes an object's metadata by what it is now; a race is run again at the next turn.
async fn change(
    api: &Api<DynamicObject>,
    node: &Node,
    turn: impl FnOnce(&mut Value),
) -> Result<(), ControllerError> {
    let failed = |call: &'static str| ControllerError::of(call, shown(node));
    let found = match api.get_metadata(&node.name).await {
        Err(error) if is_missing(&error) => return Ok(()),
        found => found.map_err(failed("get"))?,
    };
    if found.uid().as_deref() != Some(&node.uid) {
        return Ok(());
    }
    let before = json!(found.metadata);
    let mut metadata = before.clone();
    turn(&mut metadata);
    if metadata == before {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": node.uid, "resourceVersion": metadata["resourceVersion"],
        "finalizers": metadata["finalizers"], "ownerReferences": metadata["ownerReferences"]}});
    match api.patch_metadata(&node.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Err(error) if is_missing(&error) => Ok(()),
        done => done.map(drop).map_err(failed("patch")),
    }
}
