//! Which claims a Pod has, and what keeps it from being looked at.

use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use trine_typed::pods::is_made_for;

use super::ResourceClaim;
use super::inventory::Inventory;

/// Why a Pod's claims are not as they have to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// In upstream's words.
    pub message: String,
    /// The name of the claim that has to change; none: the Pod has.
    pub claim: Option<String>,
}

/// The claims that a Pod asks for.
#[must_use]
pub fn wanted(pod: &Pod) -> &[PodResourceClaim] {
    pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default()
}

/// The names of a Pod's claims as far as they are known.
pub fn names(pod: &Pod) -> impl Iterator<Item = &str> {
    wanted(pod).iter().filter_map(|claim| name_of(pod, claim).ok().flatten())
}

/// The name of a claim: nothing if none is needed.
fn name_of<'a>(pod: &'a Pod, claim: &'a PodResourceClaim) -> Result<Option<&'a str>, Missing> {
    if let Some(name) = &claim.resource_claim_name {
        return Ok(Some(name));
    }
    let statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    match statuses.into_iter().find(|status| status.name == claim.name) {
        Some(status) => Ok(status.resource_claim_name.as_deref()),
        None => {
            let message = format!("pod \"{}\": ResourceClaim not created yet", shown(pod));
            Err(Missing { message, claim: None })
        }
    }
}

/// The claims of a Pod, in the order in which it names them.
///
/// # Errors
/// One is missing, is on its way out, or is not the Pod's.
pub fn of<'a>(pod: &Pod, inventory: &'a Inventory) -> Result<Vec<&'a Arc<ResourceClaim>>, Missing> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut claims = Vec::new();
    for wanted in wanted(pod) {
        let Some(name) = name_of(pod, wanted)? else { continue };
        let missing = |message: String| Missing { message, claim: Some(name.to_owned()) };
        let found = inventory.claim(namespace, name);
        let claim =
            found.ok_or_else(|| missing(format!("could not find ResourceClaim \"{namespace}/{name}\"")))?;
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(missing(format!("resourceclaim \"{name}\" is being deleted")));
        }
        if wanted.resource_claim_name.is_none() && !is_made_for(&claim.metadata, pod) {
            return Err(missing(format!(
                "ResourceClaim {namespace}/{name} was not created for Pod {} (Pod is not owner)",
                shown(pod)
            )));
        }
        claims.push(claim);
    }
    Ok(claims)
}

fn shown(pod: &Pod) -> String {
    let meta = &pod.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// A claim as it is named in messages.
#[must_use]
pub fn shown_claim(claim: &ResourceClaim) -> String {
    let meta = &claim.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}
