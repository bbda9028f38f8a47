//! This node among the endpoints of the Service `kube-system/kube-dns`, by which Pods find a name server. Its traffic
//! stays on the node (`internalTrafficPolicy: Local`), so each node answers its own Pods.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trine_typed::k8s_openapi::api::core::v1::{Node, Service};
use trine_typed::k8s_openapi::api::discovery::v1::EndpointSlice;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams};
use trine_typed::kube::{self, Api, Client, ResourceExt};

use crate::config::Announcement;

/// Where the Service is.
pub const NAMESPACE: &str = "kube-system";
/// The Service's name, which people and tools know.
pub const SERVICE: &str = "kube-dns";
/// Who writes the slices.
const MANAGER: &str = "dns.trine.dev";
/// The first pause while something is missing; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The pause once all is said: somebody may have changed it.
const PAUSE: Duration = Duration::from_secs(30);

/// The Service, for a cluster that has none yet.
#[must_use]
pub fn service(address: &str) -> Value {
    let port = |name: &str, protocol: &str| json!({"name": name, "protocol": protocol, "port": 53, "targetPort": 53});
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": SERVICE,
            "namespace": NAMESPACE,
            "labels": {
                "k8s-app": SERVICE,
                "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "CoreDNS",
            },
        },
        "spec": {
            "clusterIP": address,
            "internalTrafficPolicy": "Local",
            "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")],
        },
    })
}

/// What this node does about the Service.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    /// Nothing yet: it is not there.
    Wait,
    /// It is an endpoint.
    Join,
    /// It is none: Pods that a selector finds serve it, who were put there by somebody.
    Leave,
}

fn wish(service: Option<&Service>) -> Wish {
    let Some(service) = service else { return Wish::Wait };
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    if selector.is_some_and(|labels| !labels.is_empty()) { Wish::Leave } else { Wish::Join }
}

fn slice_name(node: &str) -> String {
    format!("{SERVICE}-{node}")
}

/// The slice of this node, which goes with the node.
fn slice(node: &str, uid: &str, at: SocketAddr) -> Value {
    let port = |name: &str, protocol: &str| json!({"name": name, "protocol": protocol, "port": at.port()});
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": slice_name(node),
            "namespace": NAMESPACE,
            "labels": {
                "kubernetes.io/service-name": SERVICE,
                "endpointslice.kubernetes.io/managed-by": MANAGER,
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
        },
        "addressType": if at.is_ipv4() { "IPv4" } else { "IPv6" },
        "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")],
        "endpoints": [{
            "addresses": [at.ip().to_string()],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": node,
        }],
    })
}

/// Keeps this node among the endpoints until told to stop. The endpoint stays then, as Pods outlive Trine.
pub async fn keep(client: Client, node: Announcement, at: SocketAddr, stop: &CancellationToken) {
    let mut pause = FIRST_PAUSE;
    loop {
        match act(&client, &node.node, at).await {
            Ok(true) => pause = PAUSE,
            Ok(false) => pause = (pause * 2).min(PAUSE),
            Err(error) => {
                pause = (pause * 2).min(PAUSE);
                tracing::debug!(%error, "the name server is not among its Service's endpoints yet");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// True when all is as it should be.
async fn act(client: &Client, node: &str, at: SocketAddr) -> kube::Result<bool> {
    let services = Api::<Service>::namespaced(client.clone(), NAMESPACE);
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), NAMESPACE);
    match wish(services.get_opt(SERVICE).await?.as_ref()) {
        Wish::Wait => Ok(false),
        Wish::Leave => match slices.delete(&slice_name(node), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
            other => other.map(|_| true),
        },
        Wish::Join => {
            let Some(found) = Api::<Node>::all(client.clone()).get_opt(node).await? else { return Ok(false) };
            let Some(uid) = found.uid() else { return Ok(false) };
            let params = PatchParams::apply(MANAGER).force();
            slices.patch(&slice_name(node), &params, &Patch::Apply(slice(node, &uid, at))).await?;
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_with_a_selector_is_somebody_elses() {
        let with = |selector: Value| {
            let mut object = service("10.96.0.10");
            object["spec"]["selector"] = selector;
            let service: Service = serde_json::from_value(object).unwrap();
            wish(Some(&service))
        };
        assert_eq!(with(Value::Null), Wish::Join);
        assert_eq!(with(json!({})), Wish::Join);
        assert_eq!(with(json!({"k8s-app": "kube-dns"})), Wish::Leave);
        assert_eq!(wish(None), Wish::Wait);
    }
}
