//! Claims that live as long as their Pod: made of the templates in its volumes. `plan` decides; that they go with the Pod is the
//! owner reference's work.

mod plan;

use std::sync::Arc;

use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use trine_typed::kube::api::PostParams;
use trine_typed::kube::{Api, Client, ResourceExt};
use trine_typed::mirror::{Key, Mirror, controller_of};
use trine_typed::work_queue::{Next, WorkQueue};

use crate::events::Events;
use crate::frame::{ControllerError, Cx, retried};

/// Pods that are looked at at a time. Upstream: 10.
const WORKERS: usize = 4;

struct Controller {
    client: Client,
    pods: Mirror<Pod>,
    claims: Mirror<PersistentVolumeClaim>,
    events: Events,
}

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let controller = Arc::new(Controller {
        client: cx.client.clone(),
        pods: cx.shared(),
        claims: cx.shared(),
        events: Events::start(cx.client.clone(), "ephemeral_volume", cx.stop.clone()),
    });
    let Controller { pods, claims, .. } = &*controller;
    tokio::join!(pods.ready(), claims.ready());
    let queue = Arc::new(WorkQueue::default());
    let (by_pod, by_claim, all) = (Arc::clone(&queue), Arc::clone(&queue), pods.clone());
    let _woken = (
        pods.subscribe(move |_, new| {
            if let Some(pod) = new.filter(|pod| has_ephemeral(pod)) {
                by_pod.add(Key::of(&pod.metadata));
            }
        }),
        // What stood in the way is gone, or what was made was taken away.
        claims.subscribe(move |old, new| {
            let Some(claim) = old.filter(|_| new.is_none()) else { return };
            let namespace = claim.namespace().unwrap_or_default();
            let owner = controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod");
            match owner.and_then(|owner| all.get(&namespace, &owner.name)) {
                Some(pod) => by_claim.add(Key::of(&pod.metadata)),
                None => {
                    let waiting = all.in_namespace(&namespace);
                    waiting
                        .iter()
                        .filter(|pod| has_ephemeral(pod))
                        .for_each(|p| by_claim.add(Key::of(&p.metadata)));
                }
            }
        }),
    );
    let one = |key: Key| {
        let this = Arc::clone(&controller);
        async move { this.pod(&key).await.unwrap_or_else(|error| retried("ephemeral-volume", &error)) }
    };
    queue.work(WORKERS, &cx.stop, one).await;
}

fn has_ephemeral(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.into_iter().any(|volume| volume.ephemeral.is_some())
}

impl Controller {
    async fn pod(&self, key: &Key) -> Result<Next, ControllerError> {
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else { return Ok(Next::Wait) };
        let plan = plan::plan(&pod, |name| self.claims.get(&key.namespace, name));
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        for (volume, claim) in &plan.make {
            match api.create(&PostParams::default(), claim).await {
                Ok(made) => self.claims.learn(&made),
                Err(error) => {
                    self.failed(&pod, volume, &format!("create PVC {}: {error}", claim.name_any()));
                    return Err(ControllerError::of("create PersistentVolumeClaim for", key.to_string())(
                        error,
                    ));
                }
            }
        }
        if let Some((volume, why)) = &plan.failed {
            // That the other one is gone wakes it.
            self.failed(&pod, volume, why);
        }
        Ok(Next::Wait)
    }

    fn failed(&self, pod: &Pod, volume: &str, why: &str) {
        let note = format!("ephemeral volume {volume}: {why}");
        self.events.post(pod, Level::Warning, "FailedBinding", "CreateClaim", note);
    }
}
