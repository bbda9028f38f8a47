//! EndpointSlices of Services with a selector.

pub mod place;
pub mod plan;
pub mod write;

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Node, Pod, Service};
use trine_typed::k8s_openapi::api::discovery::v1::EndpointSlice;
use trine_typed::kube::ResourceExt;
use trine_typed::mirror::{Key, Mirror, Subscription};
use trine_typed::work_queue::WorkQueue;

use crate::frame::Cx;
use crate::workload::wake;
use place::{Owner, SERVICE_NAME};
use plan::CONTROLLER;
use write::Slices;

/// Services that are worked on at a time. Upstream: 5.
pub const WORKERS: usize = 8;
/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let (services, pods, nodes): (Mirror<Service>, Mirror<Pod>, Mirror<Node>) =
        (cx.shared(), cx.shared(), cx.shared());
    let slices: Mirror<EndpointSlice> = cx.shared();
    tokio::join!(services.ready(), pods.ready(), nodes.ready(), slices.ready());
    let queue = Arc::new(WorkQueue::default());
    let _woken = [
        wake::by_themselves(&services, &queue),
        by_pods(&pods, &services, &queue),
        write::by_slices(&slices, &queue, CONTROLLER),
    ];
    let slices = Slices { client: cx.client.clone(), mirror: slices, controller: "endpoint-slice" };
    let reconcile = move |key: Key| {
        let (services, pods, nodes, slices) = (services.clone(), pods.clone(), nodes.clone(), slices.clone());
        async move {
            let zone = |node: &str| nodes.get("", node)?.labels().get(ZONE).cloned();
            let (owner, groups) = match services.get(&key.namespace, &key.name) {
                Some(service) => {
                    (plan::owner(&service), plan::groups(&service, &pods.in_namespace(&key.namespace), zone))
                }
                None => (Owner::gone(&key, CONTROLLER), Vec::new()),
            };
            slices.keep(&owner, groups).await
        }
    };
    queue.work(WORKERS, &cx.stop, reconcile).await;
}

/// Adds the Services that select a Pod, or did, whenever something of it changes that endpoints show.
pub(crate) fn by_pods(
    pods: &Mirror<Pod>,
    services: &Mirror<Service>,
    queue: &Arc<WorkQueue<Key>>,
) -> Subscription {
    let (services, queue) = (services.clone(), Arc::clone(queue));
    pods.subscribe(move |old, new| {
        if old.zip(new).is_some_and(|(old, new)| plan::shown(old) == plan::shown(new)) {
            return;
        }
        let Some(namespace) = new.or(old).and_then(|pod| pod.metadata.namespace.clone()) else { return };
        for service in services.in_namespace(&namespace) {
            if [old, new].into_iter().flatten().any(|pod| plan::selects(&service, pod)) {
                queue.add(Key::of(&service.metadata));
            }
        }
    })
}

/// The Service whose slice it is.
fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.labels().get(SERVICE_NAME)?;
    Some(Key::new(slice.metadata.namespace.as_deref()?, name))
}
