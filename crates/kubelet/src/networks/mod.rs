//! Networks of a Pod beside its default one, as users of Multus ask for them: definitions are read from the API, the runtime is
//! handed whole configurations, and what came of it is written on the Pod.
//!
//! What annotations and definitions mean is `trine_contracts::networks`.

use std::time::Duration;

use trine_contracts::cri;
use trine_contracts::networks::attachments::ANNOTATION;
use trine_contracts::networks::{Attached, Attachments, Isolation, Unusable, plan, status};
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::networks;

use crate::config::API_TIMEOUT;
use crate::error::{KubeletError, api};
use crate::pod::{Context, spec};

/// The runtime that understands the annotation. Under another one a plugin of its network has to do all this.
const RUNTIME: &str = "trine";

/// Who looks after a Pod's further networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodNetworks {
    /// The kubelet, by definitions of the namespaces that this allows.
    Here(Isolation),
    /// Somebody else: Multus, for instance.
    Elsewhere,
}

impl Default for PodNetworks {
    fn default() -> Self {
        Self::Here(Isolation::default())
    }
}

impl From<Unusable> for KubeletError {
    fn from(why: Unusable) -> Self {
        Self::Invalid(why.to_string())
    }
}

/// True if there may be something to do for the Pod.
#[must_use]
pub fn concern(ctx: &Context, pod: &Pod) -> bool {
    let named = |key: &str| pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key));
    ctx.runtime.name() == RUNTIME
        && ctx.config.pod_networks != PodNetworks::Elsewhere
        && !spec::host_network(pod)
        && [plan::NETWORKS, plan::DEFAULT_NETWORK].iter().any(|key| named(key))
}

/// Has the sandbox attached to the networks that the Pod asks for.
///
/// # Errors
/// What cannot be meant, or is not there.
pub async fn give(ctx: &Context, pod: &Pod, config: &mut cri::PodSandboxConfig) -> Result<(), KubeletError> {
    let PodNetworks::Here(isolation) = &ctx.config.pod_networks else { return Ok(()) };
    if !concern(ctx, pod) {
        return Ok(());
    }
    if let Some(all) = resolve(ctx, pod, isolation).await? {
        config.annotations.insert(ANNOTATION.to_owned(), all.text());
    }
    Ok(())
}

async fn resolve(
    ctx: &Context,
    pod: &Pod,
    isolation: &Isolation,
) -> Result<Option<Attachments>, KubeletError> {
    let namespace = spec::namespace(pod);
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let Some(asked) = plan::asked(&annotations, namespace)? else { return Ok(None) };
    let definitions = asked.definitions(namespace, isolation)?;
    // One deadline for each, as for any call.
    let deadline = API_TIMEOUT * u32::try_from(definitions.len()).unwrap_or(u32::MAX);
    let configs = match tokio::time::timeout(deadline, networks::configs(&ctx.client, &definitions)).await {
        Ok(read) => read.map_err(|e| KubeletError::NotYet(e.to_string()))?,
        Err(_) => return Err(late(deadline)),
    };
    Ok(Some(asked.attachments(&configs)?))
}

fn late(deadline: Duration) -> KubeletError {
    let what = "reading network-attachment-definitions".to_owned();
    KubeletError::Deadline { what, seconds: deadline.as_secs() }
}

/// Writes on the Pod how its sandbox is attached, unless that is there; the Pod as it is then, if it was changed.
///
/// # Errors
/// The runtime's or the API's.
pub async fn say(ctx: &Context, pod: &Pod, sandbox: &str) -> Result<Option<Pod>, KubeletError> {
    let attached = ctx.runtime.networks(sandbox).await?;
    let text = status::annotation(&attached);
    let annotations = pod.metadata.annotations.as_ref();
    if attached.is_empty() || annotations.and_then(|all| all.get(status::ANNOTATION)) == Some(&text) {
        return Ok(None);
    }
    let written = networks::annotate(&ctx.client, pod, status::ANNOTATION, &text);
    let pod_then = api("annotate Pod", &spec::key(pod), written).await?;
    for one in &attached {
        ctx.events.pod(pod, Level::Normal, "AddedInterface", added(one));
    }
    Ok(pod_then)
}

/// As Multus says it.
fn added(one: &Attached) -> String {
    let ips = one.result["ips"].as_array().into_iter().flatten();
    let ips: Vec<&str> = ips.filter_map(|ip| ip["address"].as_str()).collect();
    format!("Add {} [{}] from {}", one.interface, ips.join(" "), one.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trine_objects::names;

    use super::*;

    #[test]
    fn no_pod_can_have_the_annotation_that_the_runtime_follows() {
        assert!(
            names::qualified_name(ANNOTATION).is_err(),
            "annotations of Pods are copied to their sandboxes"
        );
        assert!(names::qualified_name(plan::NETWORKS).is_ok());
    }

    #[test]
    fn an_interface_is_announced_as_multus_does_it() {
        let result = json!({"ips": [{"address": "10.0.0.5/24"}, {"address": "fd00::5/64"}]});
        let one = Attached { name: "n/a".into(), interface: "net1".into(), default: false, result };
        assert_eq!(added(&one), "Add net1 [10.0.0.5/24 fd00::5/64] from n/a");
    }
}
