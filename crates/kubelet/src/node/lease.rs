//! The heartbeat: a Lease in `kube-node-lease`, owned by the Node.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use trine_typed::k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{Patch, PatchParams, PostParams};
use trine_typed::kube::{Api, Client};

use crate::config::{LEASE_DURATION, LEASE_RENEW};
use crate::error::{KubeletError, api};

/// Where node leases are.
const NAMESPACE: &str = "kube-node-lease";
/// Longest pause between failed renewals (upstream: 7 s).
const MAX_RETRY: Duration = Duration::from_secs(7);

/// Renews the lease of `node` until `stop`.
pub async fn run(client: Client, node: String, node_uid: String, stop: CancellationToken) {
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let mut retry = Duration::from_millis(200);
    loop {
        let pause = match renew(&leases, &node, &node_uid).await {
            Ok(()) => {
                retry = Duration::from_millis(200);
                LEASE_RENEW
            }
            Err(error) => {
                tracing::warn!(error = error.chain(), "node lease not renewed");
                retry = (retry * 2).min(MAX_RETRY);
                retry
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn renew(leases: &Api<Lease>, node: &str, node_uid: &str) -> Result<(), KubeletError> {
    let now = MicroTime(Timestamp::now());
    let seconds = i32::try_from(LEASE_DURATION.as_secs()).unwrap_or(40);
    let spec = json!({"holderIdentity": node, "leaseDurationSeconds": seconds, "renewTime": now});
    let patch = json!({"spec": spec});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    let patched = leases.patch(node, &params, &patch);
    match api("patch Lease", node, patched).await {
        Err(error) if error.api_code() == Some(404) => {}
        other => return other.map(drop),
    }
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: node.to_owned(),
                uid: node_uid.to_owned(),
                ..Default::default()
            }]),
            ..Default::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(node.to_owned()),
            lease_duration_seconds: Some(seconds),
            renew_time: Some(now),
            ..Default::default()
        }),
    };
    api("create Lease", node, leases.create(&PostParams::default(), &lease)).await.map(drop)
}
