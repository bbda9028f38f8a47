//! The life of Pods on hollow nodes: they run as soon as they are bound, and go as soon as they are asked to. One watch serves all
//! nodes, and of a Pod no more is kept than that it is being worked on.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use trine_typed::k8s_openapi::api::core::v1::Pod as Whole;
use trine_typed::kube::api::{ApiResource, DeleteParams, Object, Patch, PatchParams, Preconditions};
use trine_typed::kube::runtime::watcher::{self, Event};
use trine_typed::kube::runtime::{WatchStreamExt, watcher as watch};
use trine_typed::kube::{Api, Client, Error, ResourceExt};

use super::plan::{Act, Shape, Spec, Status, act, pod_address, running};

/// Writes about Pods that are under way at once.
const WRITING: usize = 64;

/// A Pod as far as it is read.
type Pod = Object<Spec, Status>;

/// All hollow nodes' Pods.
pub struct HollowPods {
    client: Client,
    shape: Arc<Shape>,
    count: u32,
    /// By UID: what was last done.
    doing: Mutex<HashMap<String, Act>>,
    /// How many addresses each node has given.
    given: Mutex<HashMap<u32, u32>>,
}

impl HollowPods {
    /// The Pods of `count` nodes of a shape.
    #[must_use]
    pub fn new(client: Client, shape: Arc<Shape>, count: u32) -> Arc<Self> {
        Arc::new(Self { client, shape, count, doing: Mutex::default(), given: Mutex::default() })
    }

    /// Plays for ever.
    pub async fn play(self: Arc<Self>) {
        let resource = ApiResource::erase::<Whole>(&());
        let api: Api<Pod> = Api::all_with(self.client.clone(), &resource);
        let placed = watcher::Config::default().fields("spec.nodeName!=");
        let mut events = watch(api, placed).default_backoff().boxed();
        let limit = Arc::new(Semaphore::new(WRITING));
        // A Pod whose write has failed is looked at again.
        let (again, mut retries) = mpsc::unbounded_channel::<Pod>();
        let mut listed = HashSet::new();
        loop {
            let pod = tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Apply(pod))) => pod,
                    Some(Ok(Event::InitApply(pod))) => {
                        listed.insert(pod.uid().unwrap_or_default());
                        pod
                    }
                    Some(Ok(Event::Init)) => { listed.clear(); continue }
                    Some(Ok(Event::InitDone)) => {
                        self.doing().retain(|uid, _| listed.contains(uid));
                        listed = HashSet::new();
                        continue;
                    }
                    Some(Ok(Event::Delete(pod))) => {
                        self.doing().remove(&pod.uid().unwrap_or_default());
                        continue;
                    }
                    Some(Err(error)) => { tracing::warn!(%error, "the watch of Pods was interrupted"); continue }
                    None => return,
                },
                Some(pod) = retries.recv() => pod,
            };
            let Some((node, act)) = self.due(&pod) else { continue };
            let Ok(permit) = Arc::clone(&limit).acquire_owned().await else { return };
            let (this, again) = (Arc::clone(&self), again.clone());
            tokio::spawn(async move {
                if let Err(error) = this.perform(&pod, node, act).await {
                    tracing::warn!(%error, pod = pod.name_any(), "a Pod's state was not written");
                    this.doing().remove(&pod.uid().unwrap_or_default());
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    drop(again.send(pod));
                }
                drop(permit);
            });
        }
    }

    fn doing(&self) -> std::sync::MutexGuard<'_, HashMap<String, Act>> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be done for a Pod of ours, and on which node, if that is not under way.
    fn due(&self, pod: &Pod) -> Option<(u32, Act)> {
        let node = self.shape.number(&pod.spec.node_name).filter(|n| *n < self.count)?;
        let phase = pod.status.as_ref().map(|status| status.phase.as_str()).unwrap_or_default();
        let act = act(pod.metadata.deletion_timestamp.is_some(), phase)?;
        let before = self.doing().insert(pod.uid().unwrap_or_default(), act);
        (before != Some(act)).then_some((node, act))
    }

    async fn perform(&self, pod: &Pod, node: u32, act: Act) -> Result<(), Error> {
        let api: Api<Whole> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let done = match act {
            Act::Start => {
                let address = pod_address(node, self.next_address(node));
                let status = running(&pod.spec, node, address, Timestamp::now());
                let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": status}));
                api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.map(drop)
            }
            Act::End => {
                let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
                let now = DeleteParams::default().grace_period(0).preconditions(preconditions);
                api.delete(&pod.name_any(), &now).await.map(drop)
            }
        };
        match done {
            // Gone, or another of its name.
            Err(Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            other => other,
        }
    }

    fn next_address(&self, node: u32) -> u32 {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let next = given.entry(node).or_default();
        *next = next.wrapping_add(1);
        *next - 1
    }
}
