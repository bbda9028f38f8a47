//! Makes the room that preemption has found: the victims are told why, then deleted.

use serde_json::json;
use trine_typed::disruption::disrupt;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::kube::{Error, ResourceExt};

use crate::cycle::Scheduler;
use crate::pod_info::PodInfo;
use crate::preemption::{REASON, Room, nominated_node, priority};
use crate::profile::scheduler_of;

impl Scheduler {
    /// Removes the victims; those to whom the node was `promised` before, and who matter less, have to look for another.
    /// False if not all victims could be removed.
    pub(crate) async fn make_room(&self, pod: &Pod, room: &Room, promised: &[PodInfo]) -> bool {
        let message = format!("{}: preempting to accommodate a higher priority pod", scheduler_of(pod));
        let mut made = true;
        for victim in &room.victims {
            if victim.metadata.deletion_timestamp.is_some() {
                continue;
            }
            match disrupt(&self.client, victim, REASON, &message).await {
                Ok(()) => {
                    let by =
                        format!("Preempted by pod {} on node {}", pod.uid().unwrap_or_default(), room.node);
                    self.teller.tell(scheduler_of(pod), victim, Level::Normal, "Preempted", by);
                }
                Err(Error::Api(status)) if status.code == 404 || status.code == 409 => {}
                Err(error) => {
                    tracing::warn!(victim = victim.name_any(), %error, "could not be preempted");
                    made = false;
                }
            }
        }
        for other in promised.iter().map(|other| &other.pod) {
            if priority(other) < priority(pod)
                && nominated_node(other).is_some()
                && let Err(error) = self.patch_status(other, &json!({"nominatedNodeName": null})).await
            {
                tracing::debug!(%error, "nomination not taken back");
            }
        }
        made
    }
}
