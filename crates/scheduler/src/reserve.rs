//! What is written into claims of devices before a Pod is bound: who keeps them, what they have, and who uses it.

use std::sync::Arc;

use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{ContainerExtendedResourceRequest, Pod};
use trine_typed::k8s_openapi::api::resource::v1::ResourceClaimConsumerReference;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use trine_typed::kube::{self, Api, ResourceExt};
use trine_typed::pods::is_user;

use crate::bind::api_error;
use crate::cycle::{Scheduler, SchedulerError};
use crate::devices::claims::{names, shown_claim};
use crate::devices::extended::{is_unwritten, written_for};
use crate::devices::inventory::allocation_of;
use crate::devices::{AllocationResult, ResourceClaim};
use crate::plugins::dynamic_resources::Given;
use crate::profile::{Args, scheduler_of};

/// Keeps a claim that has devices.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How often a write is tried that meets another one. Upstream: `retry.DefaultRetry`.
const TRIES: usize = 5;

impl Scheduler {
    fn device_claims_of(&self, namespace: &str) -> Api<ResourceClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes a Pod a user of its claims, which get their devices if they have none yet, and waits until these are ready.
    pub(crate) async fn write_devices(&self, pod: &Arc<Pod>, given: &Given) -> Result<(), SchedulerError> {
        let namespace = pod.namespace().unwrap_or_default();
        let mut claims = Vec::new();
        if let Some((claim, allocation)) = given.claims.iter().find(|(claim, _)| is_unwritten(claim)) {
            claims.push(self.write_extended(pod, claim, allocation, &given.extended).await?);
        }
        for name in names(pod) {
            let new = given.claims.iter().find(|(claim, _)| claim.metadata.name.as_deref() == Some(name));
            let known =
                new.map(|(claim, _)| Arc::clone(claim)).or_else(|| self.device_claims.get(&namespace, name));
            let Some(claim) = known else {
                return Err(gone_wrong(&format!("{namespace}/{name}"), "is gone"));
            };
            if new.is_some() || !is_user(pod, &claim) {
                claims.push(self.write_claim(pod, &claim, new.map(|(_, allocation)| allocation)).await?);
            }
        }
        let waits = |claim: &ResourceClaim| {
            let results = allocation_of(claim).into_iter().flat_map(results_of);
            results
                .into_iter()
                .any(|result| result.binding_conditions.as_ref().is_some_and(|c| !c.is_empty()))
        };
        if claims.iter().any(waits) {
            self.wait_ready(pod, &claims).await?;
        }
        Ok(())
    }

    /// Writes the claim for what a Pod asks for by resources, and tells the Pod of it.
    async fn write_extended(
        &self,
        pod: &Arc<Pod>,
        claim: &ResourceClaim,
        allocation: &AllocationResult,
        mappings: &[ContainerExtendedResourceRequest],
    ) -> Result<ResourceClaim, SchedulerError> {
        let mut new = claim.clone();
        (new.metadata.name, new.metadata.uid) = (None, None);
        let api = self.device_claims_of(&pod.namespace().unwrap_or_default());
        let made = api.create(&PostParams::default(), &new).await;
        let made = made.map_err(api_error("create claim for extended resources", &shown_claim(claim)))?;
        self.device_claims.learn(&made);
        let claim = self.write_claim(pod, &made, Some(allocation)).await?;
        let status = serde_json::json!({"extendedResourceClaimStatus":
            {"resourceClaimName": claim.name_any(), "requestMappings": mappings}});
        let told = self.patch_status(pod, &status).await;
        told.map_err(api_error("update ExtendedResourceClaimStatus", &pod.name_any()))?;
        Ok(claim)
    }

    /// Takes away the claim that was written for what a Pod asks for by resources.
    async fn remove_extended(&self, pod: &str) {
        let known = self.device_claims.controlled_by(pod);
        for claim in known.iter().filter(|claim| written_for(claim) == Some(pod)) {
            let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
            let api = self.device_claims_of(&namespace);
            let left: Vec<&String> = claim.finalizers().iter().filter(|f| *f != FINALIZER).collect();
            let patch =
                Patch::Merge(serde_json::json!({"metadata": {"uid": claim.uid(), "finalizers": left}}));
            let same = Preconditions { uid: claim.uid(), resource_version: None };
            let done = match api.patch(&name, &PatchParams::default(), &patch).await {
                Ok(_) => api.delete(&name, &DeleteParams::default().preconditions(same)).await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                tracing::debug!(claim = name, %error, "claim for extended resources not removed");
            }
        }
    }

    async fn write_claim(
        &self,
        pod: &Pod,
        claim: &ResourceClaim,
        new: Option<&AllocationResult>,
    ) -> Result<ResourceClaim, SchedulerError> {
        let (namespace, name, shown) =
            (claim.namespace().unwrap_or_default(), claim.name_any(), shown_claim(claim));
        let api = self.device_claims_of(&namespace);
        let mut claim = claim.clone();
        let mut tries = 0;
        loop {
            match self.write_once(&api, pod, &mut claim, new).await {
                Err(SchedulerError::Api { source, .. })
                    if tries < TRIES
                        && matches!(&*source, kube::Error::Api(status) if status.code == 409) =>
                {
                    tries += 1;
                    claim = api.get(&name).await.map_err(api_error("get", &shown))?;
                }
                done => return done.map(|()| claim),
            }
        }
    }

    async fn write_once(
        &self,
        api: &Api<ResourceClaim>,
        pod: &Pod,
        claim: &mut ResourceClaim,
        new: Option<&AllocationResult>,
    ) -> Result<(), SchedulerError> {
        let (name, shown) = (claim.name_any(), shown_claim(claim));
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(gone_wrong(&shown, "got deleted in the meantime"));
        }
        if let Some(new) = new {
            if allocation_of(claim).is_some() {
                return Err(gone_wrong(&shown, "got allocated elsewhere in the meantime"));
            }
            if !claim.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
                claim.finalizers_mut().push(FINALIZER.to_owned());
                let kept = api.replace(&name, &PostParams::default(), claim).await;
                *claim = kept.map_err(api_error("add finalizer to claim", &shown))?;
            }
            claim.status.get_or_insert_default().allocation = Some(new.clone());
        }
        let status = claim.status.get_or_insert_default();
        let Some(allocation) = &mut status.allocation else {
            return Err(gone_wrong(&shown, "got deallocated elsewhere in the meantime"));
        };
        allocation.allocation_timestamp.get_or_insert_with(|| Time(Timestamp::now()));
        status.reserved_for.get_or_insert_default().push(ResourceClaimConsumerReference {
            api_group: None,
            resource: "pods".to_owned(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
        });
        let call = if new.is_some() {
            "add allocation and reservation to claim"
        } else {
            "add reservation to claim"
        };
        let written = api.replace_status(&name, &PostParams::default(), claim).await;
        *claim = written.map_err(api_error(call, &shown))?;
        self.device_claims.learn(claim);
        Ok(())
    }

    /// Waits until the drivers say that the devices are ready.
    async fn wait_ready(&self, pod: &Arc<Pod>, claims: &[ResourceClaim]) -> Result<(), SchedulerError> {
        let note = "waiting for binding conditions for device".to_owned();
        self.teller.tell(scheduler_of(pod), pod, Level::Normal, "BindingConditionsPending", note);
        let patience = self.config.profile_of(pod).map(|profile| profile.args.devices_timeout);
        let deadline =
            tokio::time::Instant::now() + patience.unwrap_or_else(|| Args::default().devices_timeout);
        for claim in claims {
            let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
            loop {
                let woken = self.claims_changed.notified();
                let now = self.device_claims.get(&namespace, &name);
                let now = now.ok_or_else(|| gone_wrong(&shown_claim(claim), "is gone"))?;
                let ready = ready(&now);
                let failed = match ready {
                    Ok(true) => break,
                    Ok(false) => tokio::time::timeout_at(deadline, woken)
                        .await
                        .err()
                        .map(|_| format!("device binding timeout: claim={name}")),
                    Err(why) => Some(why),
                };
                if let Some(why) = failed {
                    // Other devices may be tried then.
                    self.give_back(&now, &pod.uid().unwrap_or_default()).await;
                    return Err(gone_wrong(&shown_claim(claim), &why));
                }
            }
        }
        Ok(())
    }

    /// Takes a Pod that could not be bound from the users of its claims.
    pub(crate) async fn unreserve(&self, pod: &Pod) {
        self.remove_extended(pod.metadata.uid.as_deref().unwrap_or_default()).await;
        let namespace = pod.namespace().unwrap_or_default();
        for name in names(pod) {
            let known = self.device_claims.get(&namespace, name);
            let Some(claim) = known.filter(|claim| is_user(pod, claim)) else { continue };
            let patch = Patch::Strategic(serde_json::json!({"metadata": {"uid": claim.uid()},
                "status": {"reservedFor": [{"$patch": "delete", "uid": pod.uid()}]}}));
            let api = self.device_claims_of(&namespace);
            match api.patch_status(name, &PatchParams::default(), &patch).await {
                Ok(claim) => self.device_claims.learn(&claim),
                Err(error) => tracing::debug!(claim = name, %error, "reservation not taken back"),
            }
        }
    }

    /// Has a claim give its devices back that nobody but this Pod uses.
    pub(crate) fn give_back_in_background(self: &Arc<Self>, claim: Arc<ResourceClaim>, pod: &str) {
        let (this, pod) = (Arc::clone(self), pod.to_owned());
        tokio::spawn(async move { this.give_back(&claim, &pod).await });
    }

    async fn give_back(&self, claim: &ResourceClaim, pod: &str) {
        if written_for(claim).is_some() {
            return self.remove_extended(pod).await;
        }
        let mut claim = claim.clone();
        let users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
        if users.into_iter().any(|user| user.uid != pod) {
            return;
        }
        claim.status = None;
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        match self.device_claims_of(&namespace).replace_status(&name, &PostParams::default(), &claim).await {
            Ok(claim) => self.device_claims.learn(&claim),
            Err(error) => tracing::debug!(claim = name, %error, "devices not given back"),
        }
    }
}

fn results_of(
    allocation: &AllocationResult,
) -> &[trine_typed::k8s_openapi::api::resource::v1::DeviceRequestAllocationResult] {
    allocation.devices.as_ref().and_then(|devices| devices.results.as_deref()).unwrap_or_default()
}

/// Whether all conditions that a claim's devices wait for are true.
///
/// # Errors
/// One says that it will not be.
fn ready(claim: &ResourceClaim) -> Result<bool, String> {
    let Some(allocation) = allocation_of(claim) else {
        return Err("got deallocated in the meantime".to_owned());
    };
    let devices = claim.status.as_ref().and_then(|status| status.devices.as_deref()).unwrap_or_default();
    for result in results_of(allocation) {
        let wanted = result.binding_conditions.as_deref().unwrap_or_default();
        if wanted.is_empty() {
            continue;
        }
        let is = |other: &&trine_typed::k8s_openapi::api::resource::v1::AllocatedDeviceStatus| {
            other.device == result.device && other.driver == result.driver && other.pool == result.pool
        };
        let Some(device) = devices.iter().find(is) else { return Ok(false) };
        let conditions = device.conditions.as_deref().unwrap_or_default();
        let holds = |type_: &String| conditions.iter().find(|c| c.type_ == *type_ && c.status == "True");
        if let Some(failed) = result.binding_failure_conditions.iter().flatten().find_map(holds) {
            return Err(format!(
                "device binding failed: claim={}, reason={}, message=\"{}\"",
                claim.name_any(),
                failed.reason,
                failed.message
            ));
        }
        if !wanted.iter().all(|type_| holds(type_).is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn gone_wrong(claim: &str, why: &str) -> SchedulerError {
    SchedulerError::Devices { claim: claim.to_owned(), why: why.to_owned() }
}
