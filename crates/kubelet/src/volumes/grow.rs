//! Growth on the node: a volume that its controller has made larger is told to the driver here, which makes the file system larger
//! under its users; then the claim says so. The claims are asked for, since a node may not watch them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use trine_typed::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{Api, ResourceExt};

use super::csi::{For, NodeCalls};
use super::manager::VolumeManager;
use super::model::MountedClaim;
use super::stage;
use crate::error::{KubeletError, api};
use crate::pod::spec;

/// How often the claims of mounted volumes are looked at. Upstream: with each sync of a Pod, about a minute.
const PERIOD: Duration = Duration::from_secs(15);
/// The condition of a claim that waits for its node.
const PENDING: &str = "FileSystemResizePending";

/// Works until `stop`.
pub async fn run(manager: Arc<VolumeManager>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        for at in manager.mounted_claims() {
            if at.resolved.read_only {
                continue;
            }
            if let Err(error) = look(&manager, &at).await {
                let volume = &at.resolved.pv;
                let text =
                    format!("MountVolume.NodeExpandVolume failed for volume {volume:?}: {}", error.chain());
                tracing::info!(error = text, "a volume does not grow");
                manager.recorder.post(&*at.pod, Level::Warning, "VolumeResizeFailed", &text).await;
            }
        }
    }
}

async fn look(manager: &VolumeManager, at: &MountedClaim) -> Result<(), KubeletError> {
    let client = &manager.operations.client;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &at.namespace);
    let key = &at.resolved.claim;
    let claim = api("get PersistentVolumeClaim", key, claims.get_opt(&at.claim)).await?;
    let Some(claim) = claim.filter(waits) else { return Ok(()) };
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = api("get PersistentVolume", &at.resolved.pv, volumes.get(&at.resolved.pv)).await?;
    let size = volume.spec.and_then(|spec| spec.capacity?.remove("storage"));
    let Some(size) = size else { return Ok(()) };
    let outcome = expand(manager, at, &size).await;
    let infeasible = outcome.as_ref().is_err_and(is_infeasible);
    if outcome.is_ok() || infeasible {
        let status = if infeasible { refused(&claim) } else { grown(&claim, &size) };
        let (patch, params) = (Patch::Merge(status), PatchParams::default());
        let done = claims.patch_status(&at.claim, &params, &patch);
        drop(api("tell the size of PersistentVolumeClaim", key, done).await?);
    }
    outcome?;
    let note = format!("MountVolume.NodeExpandVolume succeeded for volume {:?}", at.resolved.pv);
    manager.recorder.post(&*at.pod, Level::Normal, "FileSystemResizeSuccessful", &note).await;
    manager.recorder.post(&claim, Level::Normal, "FileSystemResizeSuccessful", &note).await;
    Ok(())
}

async fn expand(manager: &VolumeManager, at: &MountedClaim, size: &Quantity) -> Result<(), KubeletError> {
    let operations = &manager.operations;
    let calls = NodeCalls::new(operations.drivers.get(&at.resolved.driver)?);
    // For one that need not be told it is done as it is.
    if !calls.capabilities().expand {
        return Ok(());
    }
    let bytes = i64::try_from(trine_typed::demand::amount(&size.0) / 1000).unwrap_or(i64::MAX);
    let staged = calls.capabilities().stage.then(|| stage::path(&operations.config.root, &at.resolved));
    let (pod, uid) = (spec::key(&at.pod), at.uid.as_str());
    let who = For { pod: &pod, uid, volume: &at.resolved.pv, claim: &at.resolved.claim };
    calls.expand(who, &at.resolved, &at.path, staged.as_deref(), bytes).await
}

/// Whether a claim waits for its node.
fn waits(claim: &PersistentVolumeClaim) -> bool {
    let Some(status) = &claim.status else { return false };
    let pending = |c: &trine_typed::k8s_openapi::api::core::v1::PersistentVolumeClaimCondition| {
        c.type_ == PENDING && c.status == "True"
    };
    let allocated = status.allocated_resource_statuses.as_ref().and_then(|all| all.get("storage"));
    match allocated.map(String::as_str) {
        Some(state) => matches!(state, "NodeResizePending" | "NodeResizeInProgress"),
        None => status.conditions.iter().flatten().any(pending),
    }
}

/// What a claim says whose volume is as large as it should be.
fn grown(claim: &PersistentVolumeClaim, size: &Quantity) -> Value {
    let conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let others: Vec<_> = conditions.filter(|c| c.type_ != PENDING && c.type_ != "Resizing").collect();
    json!({"metadata": {"resourceVersion": claim.resource_version()}, "status": {
        "capacity": {"storage": size},
        "allocatedResourceStatuses": {"storage": null},
        "conditions": others}})
}

/// What a claim says whose volume cannot be as large.
fn refused(claim: &PersistentVolumeClaim) -> Value {
    json!({"metadata": {"resourceVersion": claim.resource_version()},
        "status": {"allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"}}})
}

/// Whether trying again is of no use (upstream: `isInfeasibleError`).
fn is_infeasible(error: &KubeletError) -> bool {
    matches!(error.grpc_code(), Some(Code::InvalidArgument | Code::OutOfRange | Code::NotFound))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(status: Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": "c", "resourceVersion": "7"}, "status": status}))
            .unwrap()
    }

    #[test]
    fn a_claim_waits_for_its_node_when_its_controller_is_done() {
        let pending = json!([{"type": "FileSystemResizePending", "status": "True"}]);
        let rows = [
            (json!({"conditions": pending}), true),
            (json!({"allocatedResourceStatuses": {"storage": "NodeResizePending"}}), true),
            (json!({"allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"}}), false),
            (
                json!({"allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"}, "conditions": pending}),
                false,
            ),
            (json!({"conditions": [{"type": "FileSystemResizePending", "status": "False"}]}), false),
            (json!({"conditions": [{"type": "Resizing", "status": "True"}]}), false),
            (json!({}), false),
        ];
        for (status, expected) in rows {
            assert_eq!(waits(&claim(status.clone())), expected, "{status}");
        }
    }

    #[test]
    fn a_claim_that_has_grown_keeps_what_is_said_of_other_things() {
        let before = claim(json!({"conditions": [
            {"type": "Resizing", "status": "True"}, {"type": "FileSystemResizePending", "status": "True"},
            {"type": "ModifyingVolume", "status": "True"}]}));
        let expected = json!({"metadata": {"resourceVersion": "7"}, "status": {"capacity": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": null},
            "conditions": [{"type": "ModifyingVolume", "status": "True"}]}});
        assert_eq!(grown(&before, &Quantity("2Gi".to_owned())), expected);
    }
}
