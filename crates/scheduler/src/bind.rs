//! What is written once a Pod was decided for: its volumes and its node, or why it has none.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{Patch, PatchParams, PostParams};
use trine_typed::kube::{self, Api, ResourceExt};
use trine_typed::volumes::SELECTED_NODE;

use crate::cycle::{Scheduler, SchedulerError};
use crate::plugins::dynamic_resources::Given;
use crate::plugins::volume_binding::{Bindings, is_bound};
use crate::pod_info::PodInfo;
use crate::preemption::nominated_node;
use crate::profile::{Args, scheduler_of};

/// What is written before a Pod's node is.
#[derive(Debug)]
pub(crate) struct Writes {
    pub bindings: Bindings,
    pub devices: Given,
}

/// Why a Pod has no node, in its condition.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reason {
    /// None fits.
    Unschedulable,
    /// Something went wrong.
    SchedulerError,
}

/// What becomes of the node that was promised to a Pod.
#[derive(Debug, Clone)]
pub(crate) enum Nomination {
    AsItIs,
    None,
    To(String),
}

impl Scheduler {
    /// Writes a decision: the Pod's volumes first, then its node.
    ///
    /// # Errors
    /// The API server refuses, or the volumes are not bound in time or not here.
    pub(crate) async fn bind(
        &self,
        pod: &PodInfo,
        node: &str,
        writes: &Writes,
    ) -> Result<(), SchedulerError> {
        let reserved = self.write_devices(&pod.pod, &writes.devices).await;
        let bound = match &reserved {
            Ok(_) => self.bind_with_devices(pod, node, &writes.bindings).await,
            Err(_) => Ok(()),
        };
        if bound.is_err() || (reserved.is_err() && !writes.devices.extended.is_empty()) {
            self.unreserve(&pod.pod).await;
        }
        reserved.and(bound)
    }

    async fn bind_with_devices(
        &self,
        pod: &PodInfo,
        node: &str,
        bindings: &Bindings,
    ) -> Result<(), SchedulerError> {
        self.write_volume_choices(node, bindings).await?;
        let (pod, claims) = (&pod.pod, &pod.claims);
        let patience = self.config.profile_of(pod).map(|profile| profile.args.bind_timeout);
        let patience = patience.unwrap_or_else(|| Args::default().bind_timeout);
        for claim in claims {
            self.wait_bound(&pod.namespace().unwrap_or_default(), claim, node, patience).await?;
        }
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let api = self.pods_of(pod);
        let body = json!({"apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod.uid()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let _: serde_json::Value = api
            .create_subresource("binding", &name, &PostParams::default(), &body)
            .await
            .map_err(api_error("binding", &name))?;
        let message = format!("Successfully assigned {namespace}/{name} to {node}");
        self.teller.tell(scheduler_of(pod), pod, Level::Normal, "Scheduled", message);
        Ok(())
    }

    async fn write_volume_choices(&self, node: &str, bindings: &Bindings) -> Result<(), SchedulerError> {
        for (volume, claim) in &bindings.to_bind {
            let api: Api<PersistentVolume> = Api::all(self.client.clone());
            let patch = json!({"metadata": {"resourceVersion": volume.resource_version(),
                    "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                "spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid(),
                    "resourceVersion": claim.resource_version()}}});
            api.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .map_err(api_error("claimRef", &volume.name_any()))?;
        }
        for claim in &bindings.to_provision {
            let api: Api<PersistentVolumeClaim> =
                Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
            api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .map_err(api_error("selected-node", &claim.name_any()))?;
        }
        Ok(())
    }

    async fn wait_bound(
        &self,
        namespace: &str,
        name: &str,
        node: &str,
        patience: Duration,
    ) -> Result<(), SchedulerError> {
        let deadline = tokio::time::Instant::now() + patience;
        let mut chosen_seen = false;
        loop {
            let woken = self.claims_changed.notified();
            if let Some(claim) = self.claims.get(namespace, name) {
                if is_bound(&claim) {
                    return Ok(());
                }
                let chosen = claim.annotations().get(SELECTED_NODE).map(String::as_str);
                if chosen_seen && chosen != Some(node) {
                    return Err(SchedulerError::NotHere { claim: name.to_owned(), node: node.to_owned() });
                }
                chosen_seen = chosen == Some(node);
            }
            if tokio::time::timeout_at(deadline, woken).await.is_err() {
                return Err(SchedulerError::Volumes { claim: name.to_owned(), waited: patience });
            }
        }
    }

    /// Where the Pods of a Pod's namespace are.
    fn pods_of(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }

    /// Changes the status of this very Pod.
    pub(crate) async fn patch_status(&self, pod: &Pod, status: &Value) -> Result<(), kube::Error> {
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": status}));
        let done = self.pods_of(pod).patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
        done.map(drop)
    }

    /// The condition PodScheduled=False, the node that is promised, and a FailedScheduling event.
    pub(crate) async fn report(
        &self,
        pod: &Arc<Pod>,
        reason: Reason,
        message: &str,
        nomination: &Nomination,
    ) {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
        let old = conditions.into_iter().flatten().find(|c| c.type_ == "PodScheduled");
        let known = old.is_some_and(|c| c.status == "False" && c.message.as_deref() == Some(message));
        let nominated = match nomination {
            Nomination::AsItIs => nominated_node(pod),
            Nomination::None => None,
            Nomination::To(node) => Some(node.as_str()),
        };
        if !known || nominated != nominated_node(pod) {
            let status = json!({"nominatedNodeName": nominated, "conditions": [{"type": "PodScheduled",
                "status": "False", "reason": format!("{reason:?}"), "message": message,
                "lastTransitionTime": Timestamp::now().to_string()}]});
            if let Err(error) = self.patch_status(pod, &status).await {
                tracing::debug!(%error, "PodScheduled condition not written");
            }
        }
        self.teller.tell(scheduler_of(pod), pod, Level::Warning, "FailedScheduling", message.to_owned());
    }
}

pub(crate) fn api_error(
    call: &'static str,
    object: &str,
) -> impl FnOnce(trine_typed::kube::Error) -> SchedulerError {
    let object = object.to_owned();
    move |source| SchedulerError::Api { call, object, source: Box::new(source) }
}
