//! What is done below one object: a Pod is bound, a namespace released.

use serde_json::{Value, json};
use trine_objects::time;
use trine_store::Expect;

use super::options::WriteOptions;
use super::owners::Place;
use super::update::{may_go, parse};
use crate::admission::act;
use crate::admission::attempt::Operation;
use crate::registry::{Registry, now_unix, text};
use crate::request::Target;
use crate::status::ApiError;

/// How often a lost race is run again.
const RETRIES: usize = 8;

/// `Status` of success.
#[must_use]
pub fn done(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}

/// Asks those who are configured to decide about what is sent to a part of an object, or to `bindings`.
///
/// # Errors
/// The first refusal.
pub async fn admit(
    registry: &Registry,
    target: &Target,
    sent: &mut Value,
    dry_run: bool,
) -> Result<(), ApiError> {
    let part = target.subresource.as_deref().unwrap_or_default();
    let name = target.name.clone().unwrap_or_else(|| text(&sent["metadata"]["name"]).to_owned());
    let place = (part, target.namespace.as_str(), name.as_str());
    // A namespace is finalized by a change, all else is something new.
    if part == "finalize" {
        let Ok(current) = registry.get(&target.resource, "", &name) else { return Ok(()) };
        let old = parse(current.json())?;
        return act(registry, Operation::Update, place, (sent, Some(&old)), dry_run).await;
    }
    act(registry, Operation::Create, place, (sent, None), dry_run).await
}

/// Gives a Pod its node.
///
/// # Errors
/// [`ApiError::Conflict`] if it has one.
pub async fn bind(registry: &Registry, target: &Target, binding: &Value) -> Result<Value, ApiError> {
    let name = target.name.as_deref().unwrap_or_default();
    let node = text(&binding["target"]["name"]);
    if node.is_empty() {
        return Err(ApiError::BadRequest("target.name: Required value".to_owned()));
    }
    for attempt in 0.. {
        let current = registry.get(&target.resource, &target.namespace, name)?;
        let mut pod = parse(current.json())?;
        let conflict = |why: String| ApiError::Conflict {
            resource: "pods/binding".to_owned(),
            name: name.to_owned(),
            why,
        };
        let uid = text(&binding["metadata"]["uid"]);
        if !uid.is_empty() && uid != text(&pod["metadata"]["uid"]) {
            return Err(conflict("the UID in the binding is not the Pod's".to_owned()));
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        let has = text(&pod["spec"]["nodeName"]);
        if !has.is_empty() {
            return Err(conflict(format!("pod {name} is already assigned to node {has:?}")));
        }
        pod["spec"]["nodeName"] = node.into();
        set_scheduled(&mut pod);
        match registry.put(&target.resource, pod, Expect::At(current.revision)).await {
            Err(ApiError::Conflict { .. }) if attempt < RETRIES => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(done(201)),
        }
    }
    Err(ApiError::Internal("no end of retries".to_owned()))
}

fn set_scheduled(pod: &mut Value) {
    let condition = json!({"type": "PodScheduled", "status": "True",
        "lastTransitionTime": time::format(now_unix()), "lastProbeTime": null});
    let status = &mut pod["status"];
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|c| c["type"] != "PodScheduled");
        conditions.push(condition);
    }
}

/// Writes a namespace's own finalizers; the last of them lets it go.
///
/// # Errors
/// [`ApiError`].
pub async fn finalize(
    registry: &Registry,
    target: &Target,
    object: &Value,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    let name = target.name.as_deref().unwrap_or_default();
    for attempt in 0.. {
        let current = registry.get(&target.resource, "", name)?;
        let old = parse(current.json())?;
        let mut namespace = old.clone();
        match object["spec"]["finalizers"].as_array() {
            Some(list) if !list.is_empty() => namespace["spec"]["finalizers"] = json!(list),
            _ => {
                if let Some(spec) = namespace["spec"].as_object_mut() {
                    spec.remove("finalizers");
                }
            }
        }
        let place = Place { registry, resource: &target.resource, subresource: "finalize" };
        place.record(&old, &mut namespace, &options.manager).await?;
        if options.dry_run {
            return Ok(namespace);
        }
        let written = if may_go(&namespace) {
            registry.remove(&target.resource, &namespace, current.revision).await
        } else {
            let written = registry.put(&target.resource, namespace, Expect::At(current.revision)).await;
            written.map(|stored| stored.object)
        };
        match written {
            Err(ApiError::Conflict { .. }) if attempt < RETRIES => {}
            written => return written,
        }
    }
    Err(ApiError::Internal("no end of retries".to_owned()))
}
