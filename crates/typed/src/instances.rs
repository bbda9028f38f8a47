//! Generic code for the kinds that the rooms work with, compiled once here instead of once in each room.
//!
//! Reading, writing and watching a kind is generic code of `serde` and `kube`, half a megabyte of it for a Pod. A crate that
//! uses an instance which a crate below it has already made takes that one. So this only has to mention them: nothing here
//! is ever called, and the linker drops it.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
    ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::mirror::Mirror;

type Call = Pin<Box<dyn Future<Output = bool> + Send>>;

/// What is done with a kind, mentioned.
fn of<K>(api: &Api<K>, value: K, calls: &mut Vec<Call>)
where
    K: Resource<DynamicType = ()>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + PartialEq
        + Send
        + Sync
        + 'static,
{
    let patch = || Patch::Merge(Value::Null);
    let (a, b, c, d, e, f, g, h) = (
        api.clone(),
        api.clone(),
        api.clone(),
        api.clone(),
        api.clone(),
        api.clone(),
        api.clone(),
        (api.clone(), value.clone()),
    );
    calls.push(Box::pin(async move { a.get("").await.is_ok() }));
    calls.push(Box::pin(async move { b.get_opt("").await.is_ok() }));
    calls.push(Box::pin(async move { c.list(&ListParams::default()).await.is_ok() }));
    calls.push(Box::pin(async move { d.patch("", &PatchParams::default(), &patch()).await.is_ok() }));
    calls.push(Box::pin(async move { e.patch_status("", &PatchParams::default(), &patch()).await.is_ok() }));
    calls.push(Box::pin(async move { f.delete("", &DeleteParams::default()).await.is_ok() }));
    calls.push(Box::pin(async move {
        let mirror =
            Mirror::start(g, watcher::Config::default(), Arc::new(Notify::new()), CancellationToken::new());
        mirror.ready().await;
        mirror.get("", "").is_some() && !mirror.all().is_empty()
    }));
    calls.push(Box::pin(async move { h.0.create(&PostParams::default(), &h.1).await.is_ok() }));
    calls.push(Box::pin(async move {
        let text = serde_json::to_vec(&value).unwrap_or_default();
        let tree = serde_json::to_value(&value).unwrap_or_default();
        serde_json::from_slice::<K>(&text).is_ok_and(|k| k == value)
            && serde_json::from_value::<K>(tree).is_ok()
    }));
}

/// Everything mentioned.
#[doc(hidden)]
#[must_use]
pub fn all(client: &Client) -> Vec<Call> {
    let mut calls = Vec::new();
    of(&Api::all(client.clone()), Pod::default(), &mut calls);
    of(&Api::all(client.clone()), Node::default(), &mut calls);
    of(&Api::all(client.clone()), Namespace::default(), &mut calls);
    of(&Api::all(client.clone()), Service::default(), &mut calls);
    of(&Api::all(client.clone()), ServiceAccount::default(), &mut calls);
    of(&Api::all(client.clone()), ConfigMap::default(), &mut calls);
    of(&Api::all(client.clone()), Secret::default(), &mut calls);
    of(&Api::all(client.clone()), Event::default(), &mut calls);
    of(&Api::all(client.clone()), PersistentVolume::default(), &mut calls);
    of(&Api::all(client.clone()), PersistentVolumeClaim::default(), &mut calls);
    of(&Api::all(client.clone()), Lease::default(), &mut calls);
    of(&Api::all(client.clone()), EndpointSlice::default(), &mut calls);
    of(&Api::all(client.clone()), StorageClass::default(), &mut calls);
    of(&Api::all(client.clone()), CSINode::default(), &mut calls);
    of(&Api::all(client.clone()), CSIDriver::default(), &mut calls);
    of(&Api::all(client.clone()), VolumeAttachment::default(), &mut calls);
    calls
}
