//! Says in each ResourceQuota how much of it is used: what admission counted ahead is counted again from the objects.

pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use trine_objects::quota::Beside;
use trine_objects::resources::Resource;
use trine_typed::k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, Secret, Service,
};
use trine_typed::k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use trine_typed::kube::api::{DynamicObject, ListParams, PostParams};
use trine_typed::kube::discovery::ApiResource;
use trine_typed::kube::{self, Api, ResourceExt};
use trine_typed::mirror::Mirror;

use crate::frame::{ControllerError, Cx, log};

/// How often everything is counted again. Upstream: 5 min.
const PERIOD: Duration = Duration::from_secs(300);
/// The same for quotas that count kinds which are not watched here.
const UNWATCHED_PERIOD: Duration = Duration::from_secs(5);
/// How long a count has to stay lower before it is believed.
const SETTLE: Duration = Duration::from_millis(500);
/// Changes that come together are counted together.
const GATHER: Duration = Duration::from_millis(100);

struct Mirrors {
    quotas: Mirror<ResourceQuota>,
    pods: Mirror<Pod>,
    services: Mirror<Service>,
    claims: Mirror<PersistentVolumeClaim>,
    secrets: Mirror<Secret>,
    config_maps: Mirror<ConfigMap>,
    controllers: Mirror<ReplicationController>,
    classes: Mirror<DeviceClass>,
    devices: Mirror<ResourceClaim>,
}

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let mirrors = Mirrors {
        quotas: cx.mirror(&changed),
        pods: cx.mirror(&changed),
        services: cx.mirror(&changed),
        claims: cx.mirror(&changed),
        secrets: cx.mirror(&changed),
        config_maps: cx.mirror(&changed),
        controllers: cx.mirror(&changed),
        classes: cx.mirror(&changed),
        devices: cx.mirror(&changed),
    };
    tokio::join!(
        mirrors.quotas.ready(),
        mirrors.pods.ready(),
        mirrors.services.ready(),
        mirrors.claims.ready(),
        mirrors.secrets.ready(),
        mirrors.config_maps.ready(),
        mirrors.controllers.ready(),
        mirrors.classes.ready(),
        mirrors.devices.ready(),
    );
    loop {
        let mut period = PERIOD;
        for quota in mirrors.quotas.all() {
            match count(&cx, &mirrors, &quota).await {
                Ok(all_watched) if all_watched => {}
                Ok(_) => period = UNWATCHED_PERIOD,
                Err(error) => {
                    period = UNWATCHED_PERIOD;
                    log("resource-quota", &error);
                }
            }
        }
        if !cx.turn(&changed, period).await {
            return;
        }
        tokio::time::sleep(GATHER).await;
    }
}

/// Counts for one quota, and writes what differs; says whether all that it counts is watched.
async fn count(cx: &Cx, mirrors: &Mirrors, quota: &ResourceQuota) -> Result<bool, ControllerError> {
    let value = json!(quota);
    let (status, all_watched) = counted(cx, mirrors, &value).await?;
    if value["status"]["hard"] == status["hard"] && value["status"]["used"] == status["used"] {
        return Ok(all_watched);
    }
    if plan::lowers(&value["status"]["used"], &status["used"]) {
        // What admission counted may be on its way: only what stays away is given back.
        tokio::time::sleep(SETTLE).await;
        let now = mirrors.quotas.get(&quota.namespace().unwrap_or_default(), &quota.name_any());
        let same = now.is_some_and(|now| now.resource_version() == quota.resource_version());
        if !same || counted(cx, mirrors, &value).await?.0 != status {
            return Ok(false);
        }
    }
    write(cx, quota, &status).await.map(|()| all_watched)
}

/// The status that a quota should have, and whether all that it counts is watched.
async fn counted(cx: &Cx, mirrors: &Mirrors, quota: &Value) -> Result<(Value, bool), ControllerError> {
    let namespace = quota["metadata"]["namespace"].as_str().unwrap_or_default();
    let (mut objects, mut numbers, mut all_watched) = (Vec::new(), Vec::new(), true);
    let classes: Vec<Value> = mirrors.classes.all().iter().map(|class| json!(**class)).collect();
    let devices = in_namespace(&mirrors.devices, namespace);
    let pods = if devices.is_empty() { Vec::new() } else { in_namespace(&mirrors.pods, namespace) };
    let beside = Beside { classes: &classes, pods: &pods, claims: &devices };
    for resource in plan::counted(quota, &beside) {
        match watched(mirrors, resource, namespace) {
            Some(found) => objects.push((resource, found)),
            None => {
                all_watched = false;
                let name = trine_objects::quota::counted_as(resource);
                let api = api_resource(&resource.group, &resource.version, &resource.kind, &resource.plural);
                numbers.push((name, number(cx, namespace, &api).await?));
            }
        }
    }
    for (plural, group) in plan::foreign(quota) {
        all_watched = false;
        if let Some(api) = find(cx, &plural, &group).await? {
            numbers.push((format!("count/{plural}.{group}"), number(cx, namespace, &api).await?));
        }
    }
    let now = trine_clock::now().as_second();
    Ok((plan::status(quota, &objects, &numbers, now, &beside), all_watched))
}

/// Replaces the counts of a quota, if it is still the one that was read.
async fn write(cx: &Cx, quota: &ResourceQuota, status: &Value) -> Result<(), ControllerError> {
    let (namespace, name) = (quota.namespace().unwrap_or_default(), quota.name_any());
    let api: Api<ResourceQuota> = Api::namespaced(cx.client.clone(), &namespace);
    let object = || format!("{namespace}/{name}");
    let mut counted = quota.clone();
    counted.status = serde_json::from_value(status.clone()).map_err(|e| {
        ControllerError::of("write the status of quota", object())(kube::Error::SerdeError(e))
    })?;
    let done = api.replace_status(&name, &PostParams::default(), &counted).await;
    done.map(drop).map_err(ControllerError::of("write the status of quota", object()))
}

/// What is watched of a namespace.
fn in_namespace<K>(mirror: &Mirror<K>, namespace: &str) -> Vec<Value>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    K: serde::Serialize + Send + Sync + 'static,
{
    let all = mirror.all();
    all.iter().filter(|o| o.namespace().as_deref() == Some(namespace)).map(|o| json!(**o)).collect()
}

/// The objects of a kind that is watched.
fn watched(mirrors: &Mirrors, resource: &Resource, namespace: &str) -> Option<Vec<Value>> {
    Some(match (&*resource.group, &*resource.plural) {
        ("", "pods") => in_namespace(&mirrors.pods, namespace),
        ("", "services") => in_namespace(&mirrors.services, namespace),
        ("", "persistentvolumeclaims") => in_namespace(&mirrors.claims, namespace),
        ("", "secrets") => in_namespace(&mirrors.secrets, namespace),
        ("", "configmaps") => in_namespace(&mirrors.config_maps, namespace),
        ("", "replicationcontrollers") => in_namespace(&mirrors.controllers, namespace),
        ("", "resourcequotas") => in_namespace(&mirrors.quotas, namespace),
        ("resource.k8s.io", "resourceclaims") => in_namespace(&mirrors.devices, namespace),
        _ => return None,
    })
}

fn api_resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// How many objects of a kind a namespace has.
async fn number(cx: &Cx, namespace: &str, resource: &ApiResource) -> Result<usize, ControllerError> {
    let api: Api<DynamicObject> = Api::namespaced_with(cx.client.clone(), namespace, resource);
    let found = api.list_metadata(&ListParams::default()).await;
    found
        .map(|l| l.items.len())
        .map_err(ControllerError::of("list", format!("{} in {namespace}", resource.plural)))
}

/// A kind that people defined, by plural and group.
async fn find(cx: &Cx, plural: &str, group: &str) -> Result<Option<ApiResource>, ControllerError> {
    let found = kube::discovery::group(&cx.client, group).await;
    match found {
        Ok(found) => {
            Ok(found.recommended_resources().into_iter().map(|(r, _)| r).find(|r| r.plural == plural))
        }
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(error) => Err(ControllerError::of("discover", group.to_owned())(error)),
    }
}
