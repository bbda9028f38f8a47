//! Endpoints of Services with a selector: the older form of EndpointSlices, which people still read.

pub mod plan;

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use trine_typed::kube::Api;
use trine_typed::kube::api::{DeleteParams, PostParams};
use trine_typed::mirror::{Key, Mirror};
use trine_typed::work_queue::{Next, WorkQueue};

use crate::endpoint_slice::{WORKERS, by_pods};
use crate::frame::{ControllerError, Cx, retried};
use crate::workload::wake;
use plan::{Step, plan};

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let (services, pods, endpoints): (Mirror<Service>, Mirror<Pod>, Mirror<Endpoints>) =
        (cx.shared(), cx.shared(), cx.shared());
    tokio::join!(services.ready(), pods.ready(), endpoints.ready());
    let queue = Arc::new(WorkQueue::default());
    let removed = Arc::new(WorkQueue::default());
    let gone = Arc::clone(&removed);
    let _woken = [
        wake::by_themselves(&services, &queue),
        wake::by_themselves(&endpoints, &queue),
        by_pods(&pods, &services, &queue),
        services.subscribe(move |old, new| {
            if let (Some(service), None) = (old, new) {
                gone.add(Key::of(&service.metadata));
            }
        }),
    ];
    let controller = Arc::new(Controller { cx: cx.clone(), services, pods, endpoints });
    let reconcile = |after_removal: bool| {
        let controller = Arc::clone(&controller);
        move |key: Key| {
            let controller = Arc::clone(&controller);
            async move {
                let done = controller.reconcile(&key, after_removal).await;
                done.map_or_else(|error| retried("endpoints", &error), |()| Next::Wait)
            }
        }
    };
    tokio::join!(queue.work(WORKERS, &cx.stop, reconcile(false)), removed.work(1, &cx.stop, reconcile(true)),);
}

struct Controller {
    cx: Cx,
    services: Mirror<Service>,
    pods: Mirror<Pod>,
    endpoints: Mirror<Endpoints>,
}

impl Controller {
    async fn reconcile(&self, key: &Key, removed: bool) -> Result<(), ControllerError> {
        let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
        let service = self.services.get(namespace, name);
        let current = self.endpoints.get(namespace, name);
        let pods = if service.is_some() { self.pods.in_namespace(namespace) } else { Vec::new() };
        let api = Api::<Endpoints>::namespaced(self.cx.client.clone(), namespace);
        let (params, named) = (PostParams::default(), || key.to_string());
        let written = match plan(service.as_deref(), &pods, current.as_deref(), removed) {
            Step::Stay => return Ok(()),
            Step::Create(endpoints) => api
                .create(&params, &endpoints)
                .await
                .map_err(ControllerError::of("create Endpoints", named()))?,
            Step::Replace(endpoints) => {
                let replaced = api.replace(name, &params, &endpoints).await;
                replaced.map_err(ControllerError::of("replace Endpoints", named()))?
            }
            Step::Delete => {
                let deleted = api.delete(name, &DeleteParams::default()).await;
                let deleted = deleted.map_err(ControllerError::of("delete Endpoints", named()));
                return match deleted {
                    Err(error) if !error.is_race() => Err(error),
                    _ => Ok(()),
                };
            }
        };
        self.endpoints.learn(&written);
        Ok(())
    }
}
