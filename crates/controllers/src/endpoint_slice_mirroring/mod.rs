//! EndpointSlices of Endpoints that somebody wrote for a Service without a selector.

pub mod plan;

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Endpoints, Service};
use trine_typed::k8s_openapi::api::discovery::v1::EndpointSlice;
use trine_typed::mirror::{Key, Mirror};
use trine_typed::work_queue::WorkQueue;

use crate::endpoint_slice::WORKERS;
use crate::endpoint_slice::place::Owner;
use crate::endpoint_slice::write::{Slices, by_slices};
use crate::frame::Cx;
use crate::workload::wake;
use plan::CONTROLLER;

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let (services, endpoints, slices): (Mirror<Service>, Mirror<Endpoints>, Mirror<EndpointSlice>) =
        (cx.shared(), cx.shared(), cx.shared());
    tokio::join!(services.ready(), endpoints.ready(), slices.ready());
    let queue = Arc::new(WorkQueue::default());
    let _woken = [
        wake::by_themselves(&services, &queue),
        wake::by_themselves(&endpoints, &queue),
        by_slices(&slices, &queue, CONTROLLER),
    ];
    let slices = Slices { client: cx.client.clone(), mirror: slices, controller: "endpoint-slice-mirroring" };
    let reconcile = move |key: Key| {
        let (services, endpoints, slices) = (services.clone(), endpoints.clone(), slices.clone());
        async move {
            let service = services.get(&key.namespace, &key.name);
            let written = endpoints.get(&key.namespace, &key.name);
            let (owner, groups) = match written.filter(|e| plan::is_mirrored(service.as_deref(), e)) {
                Some(written) => (plan::owner(&written), plan::groups(&written)),
                None => (Owner::gone(&key, CONTROLLER), Vec::new()),
            };
            slices.keep(&owner, groups).await
        }
    };
    queue.work(WORKERS, &cx.stop, reconcile).await;
}
