//! What is to be done with a request.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use trine_typed::k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::request::Asked;

/// Signs certificates of clients.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signs certificates with which kubelets are clients.
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signs certificates with which kubelets serve.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Names of nodes begin with it.
const NODE: &str = "system:node:";
/// The group of nodes.
const NODES: &str = "system:nodes";
/// How long a request that is done with is kept, and one that nobody cares about. Source: upstream's cleaner.
const DONE: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);

/// Why a request is approved without a person's look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A node asks for its own next client certificate.
    Itself,
    /// Somebody asks for a node's first one.
    First,
    /// A node asks for a certificate for its own names and addresses.
    Serving,
}

impl Why {
    /// What the asking user must be allowed to create.
    #[must_use]
    pub fn subresource(self) -> Option<&'static str> {
        match self {
            Self::Itself => Some("selfnodeclient"),
            Self::First => Some("nodeclient"),
            Self::Serving => None,
        }
    }

    /// For the condition.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::Itself => "Auto approving self kubelet client certificate after SubjectAccessReview.",
            Self::First => "Auto approving kubelet client certificate after SubjectAccessReview.",
            Self::Serving => {
                "Auto approving kubelet serving certificate for the node's own names and addresses."
            }
        }
    }
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing, or a person's decision is awaited.
    Wait,
    /// Approve it.
    Approve(Why),
    /// Sign it.
    Sign,
    /// Remove it.
    Remove,
}

/// The next step. `nodes` are the names and addresses of each node.
#[must_use]
pub fn step(
    request: &CertificateSigningRequest,
    nodes: &BTreeMap<String, Vec<String>>,
    now: Timestamp,
) -> Step {
    let status = request.status.as_ref();
    let said = |kind: &str| {
        let conditions = status.and_then(|s| s.conditions.as_ref());
        conditions.into_iter().flatten().any(|c| c.type_ == kind)
    };
    let issued = status.and_then(|s| s.certificate.as_ref()).is_some_and(|c| !c.0.is_empty());
    let age = request.metadata.creation_timestamp.as_ref().map(|t| now.duration_since(t.0));
    let decided = said("Approved") || said("Denied") || said("Failed") || issued;
    if age.is_some_and(|age| age > PENDING || decided && age > DONE) {
        return Step::Remove;
    }
    if issued || said("Denied") || said("Failed") {
        return Step::Wait;
    }
    let ours = [CLIENT, KUBELET_CLIENT, KUBELET_SERVING].contains(&request.spec.signer_name.as_str());
    if said("Approved") {
        return if ours { Step::Sign } else { Step::Wait };
    }
    recognized(request, nodes).map_or(Step::Wait, Step::Approve)
}

fn recognized(request: &CertificateSigningRequest, nodes: &BTreeMap<String, Vec<String>>) -> Option<Why> {
    let asked = Asked::read(&request.spec.request.0).ok()?;
    let usages: Vec<&str> = request.spec.usages.iter().flatten().map(String::as_str).collect();
    let by_itself = request.spec.username.as_deref() == Some(asked.common_name.as_str());
    match request.spec.signer_name.as_str() {
        KUBELET_CLIENT if node_client(&asked, &usages).is_ok() => {
            Some(if by_itself { Why::Itself } else { Why::First })
        }
        KUBELET_SERVING if by_itself && node_serving(&asked, &usages).is_ok() => {
            let node = asked.common_name.strip_prefix(NODE)?;
            let own = nodes.get(node)?;
            let all = asked.hosts.iter().cloned().chain(asked.addresses.iter().map(ToString::to_string));
            all.into_iter().all(|name| own.contains(&name)).then_some(Why::Serving)
        }
        _ => None,
    }
}

/// Whether a signer may sign it, and if not, why.
///
/// # Errors
/// What the signer does not sign.
pub fn signable(signer: &str, asked: &Asked, usages: &[&str]) -> Result<(), String> {
    match signer {
        CLIENT => {
            only(usages, &["digital signature", "key encipherment", "client auth"])?;
            with(usages, "client auth")
        }
        KUBELET_CLIENT => node_client(asked, usages),
        KUBELET_SERVING => node_serving(asked, usages),
        other => Err(format!("signer {other} is not served")),
    }
}

fn node_name(asked: &Asked) -> Result<(), String> {
    if asked.organizations != [NODES] {
        return Err("subject organization is not system:nodes".to_owned());
    }
    match asked.common_name.strip_prefix(NODE) {
        Some(node) if !node.is_empty() => Ok(()),
        _ => Err("subject common name does not begin with system:node: ".to_owned()),
    }
}

fn node_client(asked: &Asked, usages: &[&str]) -> Result<(), String> {
    node_name(asked)?;
    if !asked.hosts.is_empty() || !asked.addresses.is_empty() || asked.other_names {
        return Err("DNS, IP, email and URI subjectAltNames are not allowed".to_owned());
    }
    only(usages, &["digital signature", "key encipherment", "client auth"])?;
    with(usages, "client auth")?;
    with(usages, "digital signature")
}

fn node_serving(asked: &Asked, usages: &[&str]) -> Result<(), String> {
    node_name(asked)?;
    if asked.hosts.is_empty() && asked.addresses.is_empty() {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    if asked.other_names {
        return Err("email and URI subjectAltNames are not allowed".to_owned());
    }
    only(usages, &["digital signature", "key encipherment", "server auth"])?;
    with(usages, "server auth")?;
    with(usages, "digital signature")
}

fn only(usages: &[&str], known: &[&str]) -> Result<(), String> {
    match usages.iter().find(|u| !known.contains(u)) {
        Some(usage) => Err(format!("usages did not match {known:?}: {usage:?}")),
        None => Ok(()),
    }
}

fn with(usages: &[&str], needed: &str) -> Result<(), String> {
    if usages.contains(&needed) { Ok(()) } else { Err(format!("usages did not include {needed:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, group: &str, hosts: &[&str]) -> Asked {
        Asked {
            common_name: name.to_owned(),
            organizations: vec![group.to_owned()],
            hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
            ..Asked::default()
        }
    }

    #[test]
    fn each_signer_signs_its_own() {
        let (client, serving) = (["digital signature", "client auth"], ["digital signature", "server auth"]);
        let node = |hosts: &[&str]| asked("system:node:n", "system:nodes", hosts);
        let rows = [
            (CLIENT, asked("bob", "dev", &[]), client, true),
            (CLIENT, asked("bob", "dev", &[]), serving, false),
            (KUBELET_CLIENT, node(&[]), client, true),
            (KUBELET_CLIENT, node(&["x"]), client, false),
            (KUBELET_CLIENT, asked("bob", "system:nodes", &[]), client, false),
            (KUBELET_CLIENT, asked("system:node:n", "dev", &[]), client, false),
            (KUBELET_SERVING, node(&["n"]), serving, true),
            (KUBELET_SERVING, node(&[]), serving, false),
            (KUBELET_SERVING, node(&["n"]), client, false),
            ("kubernetes.io/legacy-unknown", node(&[]), client, false),
        ];
        for (signer, asked, usages, fine) in rows {
            assert_eq!(signable(signer, &asked, &usages).is_ok(), fine, "{signer} {asked:?} {usages:?}");
        }
    }
}
