//! Finalizers: set before the act that has to be undone, dropped after its undoing.

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde_json::json;
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{self, Api, Resource, ResourceExt};

/// Makes `object` carry `finalizer`, and the annotation if one is given. Fails with a conflict if it has changed since
/// it was read: the list is written as a whole.
pub async fn add<K>(
    api: &Api<K>,
    object: &K,
    finalizer: &str,
    annotation: Option<(&str, &str)>,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let annotated = annotation
        .is_none_or(|(key, value)| object.annotations().get(key).map(String::as_str) == Some(value));
    if has(object, finalizer) && annotated {
        return Ok(());
    }
    let mut list = object.finalizers().to_vec();
    if !has(object, finalizer) {
        list.push(finalizer.to_owned());
    }
    let mut patch = json!({"metadata": {"finalizers": list, "resourceVersion": object.resource_version()}});
    if let Some((key, value)) = annotation {
        patch["metadata"]["annotations"] = json!({key: value});
    }
    api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

/// Makes the object `name` not carry `finalizer`; gone is success.
pub async fn remove<K>(api: &Api<K>, name: &str, finalizer: &str) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let Some(object) = api.get_opt(name).await? else { return Ok(()) };
    if !has(&object, finalizer) {
        return Ok(());
    }
    let list: Vec<&String> = object.finalizers().iter().filter(|f| *f != finalizer).collect();
    let patch = json!({"metadata": {"finalizers": list, "resourceVersion": object.resource_version()}});
    match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

/// True if `object` carries `finalizer`.
#[must_use]
pub fn has<K: ResourceExt>(object: &K, finalizer: &str) -> bool {
    object.finalizers().iter().any(|f| f == finalizer)
}
