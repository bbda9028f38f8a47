//! Makes the room that preemption has found: the victims are told why, then deleted.

use serde_json::json;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use trine_typed::kube::{Api, Error, ResourceExt};

use crate::cycle::Scheduler;
use crate::preemption::{REASON, Room, nominated_node, priority};
use crate::snapshot::Snapshot;

impl Scheduler {
    /// Removes the victims; those to whom the node was promised before, and who matter less, have to look for another.
    pub(crate) async fn make_room(&self, pod: &Pod, room: &Room, snapshot: &Snapshot) {
        for victim in &room.victims {
            if victim.metadata.deletion_timestamp.is_some() {
                continue;
            }
            match self.evict(victim).await {
                Ok(()) => {
                    let message =
                        format!("Preempted by pod {} on node {}", pod.uid().unwrap_or_default(), room.node);
                    self.recorder.post(victim.as_ref(), Level::Normal, "Preempted", &message).await;
                }
                Err(Error::Api(status)) if status.code == 404 || status.code == 409 => {}
                Err(error) => {
                    tracing::warn!(victim = victim.name_any(), %error, "could not be preempted");
                }
            }
        }
        for other in snapshot.nominated.get(&room.node).into_iter().flatten() {
            if priority(other) < priority(pod) && nominated_node(other).is_some() {
                let patch = json!({"metadata": {"uid": other.uid()}, "status": {"nominatedNodeName": null}});
                let (api, patch) = (self.pods_of(other), Patch::Strategic(&patch));
                let done = api.patch_status(&other.name_any(), &PatchParams::default(), &patch).await;
                if let Err(error) = done {
                    tracing::debug!(%error, "nomination not taken back");
                }
            }
        }
    }

    async fn evict(&self, victim: &Pod) -> Result<(), Error> {
        let (api, name) = (self.pods_of(victim), victim.name_any());
        let message = format!("{}: preempting to accommodate a higher priority pod", self.config.name);
        let patch = json!({"metadata": {"uid": victim.uid()}, "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": REASON, "message": message,
            "lastTransitionTime": Timestamp::now().to_string()}]}});
        api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await?;
        let same = Preconditions { uid: victim.uid(), resource_version: None };
        api.delete(&name, &DeleteParams::default().preconditions(same)).await.map(drop)
    }

    fn pods_of(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }
}
