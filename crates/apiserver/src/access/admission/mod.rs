//! What depends on the object that is written, and on who writes it.
//!
//! - [`account`] a Pod has a ServiceAccount and its token
//! - [`secret`] a Secret holds the token of a ServiceAccount
//! - [`params`] a policy reads nothing that its writer may not read
//! - [`node`] a node writes about itself and its own Pods

pub mod account;
pub mod node;
pub mod params;
pub mod secret;

use serde_json::Value;

use super::certificates::admission as certificates;
use super::rbac::{defaults, escalation};
use crate::admission::Change;
use crate::registry::{Registry, now_unix};
use crate::status::ApiError;
use crate::user::{self, User};

/// Admits a write, perhaps with changes to the object. Writes of the server itself, which has no caller, are let through.
///
/// # Errors
/// [`ApiError::Denied`].
pub async fn mutate(registry: &Registry, change: &Change<'_>, new: &mut Value) -> Result<(), ApiError> {
    let Some(user) = user::caller() else { return Ok(()) };
    let refused = user.node().and_then(|node| node::refuse(registry, node, change, Some(new)));
    if let Some(why) = refused {
        return Err(change.denied(new, why));
    }
    let (resource, old) = (change.resource, change.old);
    if resource.group == params::GROUP && change.subresource.is_empty() {
        return params::refuse(registry, &user, &resource.kind, new, old);
    }
    let refused = match (&*resource.group, &*resource.plural, change.subresource) {
        ("", "pods", "") if old.is_none() => account::admit(registry, new).await.err(),
        ("", "secrets", "") => {
            secret::fill(registry, new);
            None
        }
        (defaults::GROUP, plural, "") => escalation::refuse(registry.authorizer(), &user, plural, new, old),
        ("certificates.k8s.io", "certificatesigningrequests", part) => {
            signing_request(registry, &user, part, old, new)
        }
        ("certificates.k8s.io", "clustertrustbundles", "") => {
            certificates::refuse_bundle(registry.authorizer(), &user, old, new)
        }
        ("certificates.k8s.io", "podcertificaterequests", "status") => {
            old.and_then(|old| certificates::refuse_answer(registry.authorizer(), &user, old, new))
        }
        _ => None,
    };
    refused.map_or(Ok(()), |why| Err(change.denied(new, why)))
}

/// Admits a deletion.
///
/// # Errors
/// [`ApiError::Denied`].
pub fn delete(registry: &Registry, change: &Change<'_>) -> Result<(), ApiError> {
    let Some(user) = user::caller() else { return Ok(()) };
    match user.node().and_then(|node| node::refuse(registry, node, change, None)) {
        Some(why) => Err(change.denied(change.old.unwrap_or(&Value::Null), why)),
        None => Ok(()),
    }
}

fn signing_request(
    registry: &Registry,
    user: &User,
    part: &str,
    old: Option<&Value>,
    new: &mut Value,
) -> Option<String> {
    let Some(old) = old else {
        certificates::note_requester(user, new);
        return certificates::refuse_subject(new);
    };
    let refused = certificates::refuse_part(registry.authorizer(), user, part, old, new);
    certificates::keep(part, old, new, &trine_objects::time::format(now_unix()));
    refused
}
