//! Reads the evidence from the API.

use trine_typed::k8s_openapi::api::core::v1::{Event, Node, PersistentVolumeClaim, Pod};
use trine_typed::k8s_openapi::api::storage::v1::StorageClass;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::ListParams;
use trine_typed::kube::{self, Api, Client};
use trine_typed::pods::claim_names;

use super::{Claim, Evidence};
use crate::trace::Step;

/// Why no evidence could be read.
#[derive(Debug, thiserror::Error)]
#[error("why: cannot read {what}")]
pub struct WhyError {
    /// What was asked for.
    pub what: String,
    /// What the API server said.
    pub source: Box<kube::Error>,
}

fn failed(what: impl Into<String>) -> impl FnOnce(kube::Error) -> WhyError {
    let what = what.into();
    move |source| WhyError { what, source: Box::new(source) }
}

/// Reads everything about the Pod `namespace/name`. `steps` are those that a Trine recorded of it.
///
/// # Errors
/// If the Pod cannot be read. What else cannot be read (missing rights) is left out.
pub async fn gather(
    client: &Client,
    namespace: &str,
    name: &str,
    steps: Vec<Step>,
) -> Result<Evidence, WhyError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.get(name).await.map_err(failed(format!("pod {namespace}/{name}")))?;
    let events = events(client, namespace, pod.metadata.uid.as_deref().unwrap_or_default()).await;
    let mut claims = Vec::new();
    for claim in claim_names(&pod) {
        claims.push(read_claim(client, namespace, claim).await?);
    }
    let node_name = pod.spec.as_ref().and_then(|s| s.node_name.clone());
    let node = match node_name.filter(|n| !n.is_empty()) {
        Some(name) => Api::<Node>::all(client.clone()).get_opt(&name).await.unwrap_or_default(),
        None => None,
    };
    Ok(Evidence { pod, events, claims, node, steps, now: Timestamp::now().as_second() })
}

async fn read_claim(client: &Client, namespace: &str, name: String) -> Result<Claim, WhyError> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let object = api.get_opt(&name).await.map_err(failed(format!("claim {namespace}/{name}")))?;
    let mut claim = Claim { name, ..Claim::default() };
    if let Some(object) = object {
        claim.events = events(client, namespace, object.metadata.uid.as_deref().unwrap_or_default()).await;
        let class = object.spec.as_ref().and_then(|s| s.storage_class_name.clone()).filter(|c| !c.is_empty());
        if let Some(class) = class {
            let found = Api::<StorageClass>::all(client.clone()).get_opt(&class).await;
            claim.class_missing = matches!(found, Ok(None));
        }
        claim.object = Some(object);
    }
    Ok(claim)
}

async fn events(client: &Client, namespace: &str, uid: &str) -> Vec<Event> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let list = api.list(&ListParams::default().fields(&format!("involvedObject.uid={uid}"))).await;
    let mut events = list.map(|l| l.items).unwrap_or_default();
    let time = |e: &Event| {
        let micro = e.event_time.as_ref().map(|t| t.0);
        e.last_timestamp.as_ref().map(|t| t.0).or(micro)
    };
    events.sort_by_key(time);
    events
}
