//! What follows from a Pod's claims of devices, and from a claim's users. Pure. Source: upstream's `resourceclaim` controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use trine_typed::k8s_openapi::api::resource::v1::{
    ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate,
};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trine_typed::mirror::controller_of;
use trine_typed::pods::{is_finished, is_made_for};

/// Which of a Pod's claims a claim was made for.
pub const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Keeps a claim that has devices.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// What a generated name may have before the part that makes it the only one.
const LONGEST_BASE: usize = 57;

/// What is to be done for a Pod.
#[derive(Debug, Default, PartialEq)]
pub struct ForPod {
    /// Claims to make, by the Pod's names of them.
    pub make: Vec<(String, ResourceClaim)>,
    /// The claims that were made for it, by its names of them, as its status is to say; none if it says so.
    pub names: Option<BTreeMap<String, String>>,
    /// Claims that have devices, and whose user it is without their knowing: somebody has chosen its node by hand.
    pub reserve: Vec<Arc<ResourceClaim>>,
    /// Why one cannot be made: the Pod's name of it, and the reason.
    pub failed: Option<(String, String)>,
}

/// Whether a Pod will use nothing any more.
#[must_use]
pub fn is_done(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    is_finished(pod) || (pod.metadata.deletion_timestamp.is_some() && node.is_empty())
}

/// Decides for a Pod. `claims` are those of its namespace that it controls or names.
#[must_use]
pub fn of_pod(
    pod: &Pod,
    claims: &[Arc<ResourceClaim>],
    template: impl Fn(&str) -> Option<Arc<ResourceClaimTemplate>>,
) -> ForPod {
    let mut plan = ForPod::default();
    if pod.metadata.deletion_timestamp.is_some() || is_done(pod) {
        return plan;
    }
    let said = said(pod);
    let mut names = said.clone();
    let wanted = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    for claim in wanted.clone() {
        let Some(of) = &claim.resource_claim_template_name else { continue };
        let known = said.get(&claim.name);
        // Its status says that none is needed.
        if known.is_some_and(Option::is_none) {
            continue;
        }
        let made = claims.iter().filter(|made| is_for(made, pod, &claim.name));
        let named = |made: &&&Arc<ResourceClaim>| known.is_some_and(|name| *name == made.metadata.name);
        let there = made.clone().find(|made| named(&made)).or_else(|| made.clone().next());
        if let Some(there) = there {
            names.insert(claim.name.clone(), there.metadata.name.clone());
            continue;
        }
        match template(of) {
            Some(template) => plan.make.push((claim.name.clone(), made_of(&template, pod, claim))),
            None => {
                let why = format!(
                    "resource claim template {of:?}: resourceclaimtemplate.resource.k8s.io {of:?} not found"
                );
                plan.failed.get_or_insert((claim.name.clone(), why));
            }
        }
    }
    if names != said {
        plan.names = Some(names.into_iter().filter_map(|(of, name)| Some((of, name?))).collect());
    }
    let placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_ref().is_some_and(|n| !n.is_empty()));
    if placed {
        let used = wanted.filter_map(|claim| name_of(pod, claim));
        let known = used.filter_map(|name| claims.iter().find(|c| c.metadata.name.as_deref() == Some(name)));
        plan.reserve = known.filter(|claim| lacks(claim, pod)).cloned().collect();
    }
    plan
}

/// The names that a Pod's status says, by its own names of its claims.
fn said(pod: &Pod) -> BTreeMap<String, Option<String>> {
    let statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    statuses.map(|status| (status.name.clone(), status.resource_claim_name.clone())).collect()
}

/// The name of a claim of a Pod, if it has one yet.
#[must_use]
pub fn name_of<'a>(pod: &'a Pod, claim: &'a PodResourceClaim) -> Option<&'a str> {
    if let Some(name) = &claim.resource_claim_name {
        return Some(name);
    }
    let mut statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    statuses.find(|status| status.name == claim.name)?.resource_claim_name.as_deref()
}

/// Whether a claim was made for one of this very Pod's.
fn is_for(claim: &ResourceClaim, pod: &Pod, name: &str) -> bool {
    let of = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(POD_CLAIM));
    is_made_for(&claim.metadata, pod)
        && claim.metadata.deletion_timestamp.is_none()
        && of.is_some_and(|of| of == name)
}

fn made_of(template: &ResourceClaimTemplate, pod: &Pod, claim: &PodResourceClaim) -> ResourceClaim {
    let template = template.spec.clone().unwrap_or_default();
    let wanted = template.metadata.unwrap_or_default();
    let mut annotations = wanted.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM.to_owned(), claim.name.clone());
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let metadata = ObjectMeta {
        generate_name: Some(base(pod.metadata.name.as_deref().unwrap_or_default(), &claim.name)),
        namespace: pod.metadata.namespace.clone(),
        labels: wanted.labels,
        annotations: Some(annotations),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    ResourceClaim { metadata, spec: template.spec, status: None }
}

/// `POD-CLAIM-`; where that is too long both are cut by their share of it, so that something of both is left.
fn base(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= LONGEST_BASE {
        return whole;
    }
    let cut = |name: &str| name.chars().take(name.len() * LONGEST_BASE / whole.len()).collect::<String>();
    format!("{}-{}", cut(pod), cut(claim))
}

/// Whether a claim has devices, and does not know of a Pod that uses it.
fn lacks(claim: &ResourceClaim, pod: &Pod) -> bool {
    let Some(status) = &claim.status else { return false };
    let users = status.reserved_for.as_deref().unwrap_or_default();
    let knows = users.iter().any(|user| Some(&user.uid) == pod.metadata.uid.as_ref());
    status.allocation.is_some() && !knows && users.len() < MOST_USERS
}

/// Users that a claim may have. Upstream: `ResourceClaimReservedForMaxSize`.
const MOST_USERS: usize = 256;

/// A Pod as the user of a claim.
#[must_use]
pub fn user(pod: &Pod) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".to_owned(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
    }
}

/// What is known of the Pod that a claim names as its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// It is there and may run.
    There,
    /// It is gone, or will use nothing any more, or another has its name.
    Gone,
    /// Nothing: it may be new, so only the API server knows.
    Unknown,
}

/// What a Pod that was looked up by its name is to a claim that names this UID.
#[must_use]
pub fn known(pod: Option<&Pod>, uid: &str) -> User {
    match pod {
        None => User::Unknown,
        Some(pod) if pod.metadata.uid.as_deref() == Some(uid) && !is_done(pod) => User::There,
        Some(_) => User::Gone,
    }
}

/// What is to be done for a claim, in this order.
#[derive(Debug, Default, PartialEq)]
pub struct ForClaim {
    /// Users to keep, if some have gone.
    pub users: Option<Vec<ResourceClaimConsumerReference>>,
    /// Its devices are given back: nobody uses it any more, so whoever comes next may be elsewhere.
    pub give_back: bool,
    /// It need not be kept any longer.
    pub let_go: bool,
    /// It was made for a Pod that needs it no more.
    pub remove: bool,
}

/// Decides for a claim; `user` says what is known of a Pod by name and UID.
#[must_use]
pub fn of_claim(claim: &ResourceClaim, user: impl Fn(&str, &str) -> User) -> ForClaim {
    let status = claim.status.clone().unwrap_or_default();
    let users = status.reserved_for.unwrap_or_default();
    // What is no Pod nobody here can judge.
    let stays = |user_of: &&ResourceClaimConsumerReference| {
        let group = user_of.api_group.as_deref().unwrap_or_default();
        let is_pod = group.is_empty() && user_of.resource == "pods";
        !is_pod || user(&user_of.name, &user_of.uid) != User::Gone
    };
    let left: Vec<_> = users.iter().filter(stays).cloned().collect();
    let finalizers = claim.metadata.finalizers.as_deref().unwrap_or_default();
    let kept = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    let mut plan = ForClaim::default();
    let fewer = left.len() < users.len();
    let unused = left.is_empty();
    if kept && unused && (fewer || claim.metadata.deletion_timestamp.is_some()) {
        plan.give_back = status.allocation.is_some();
        plan.let_go = true;
    }
    plan.users = fewer.then_some(left);
    let owner = controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod");
    plan.remove = unused
        && claim.metadata.deletion_timestamp.is_none()
        && owner.is_some_and(|owner| user(&owner.name, &owner.uid) == User::Gone);
    plan
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
