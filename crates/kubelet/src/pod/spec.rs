//! Small questions about a Pod's spec, asked in many places.

use std::borrow::Cow;

use trine_typed::k8s_openapi::api::core::v1::{Container, Pod};

use crate::config::DEFAULT_GRACE;

/// `Always`, `OnFailure` or `Never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Whatever the exit code.
    Always,
    /// Unless it was 0.
    OnFailure,
    /// Never.
    Never,
}

impl Restart {
    fn parse(text: Option<&str>) -> Self {
        match text {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Whether a container that ended with `code` starts again.
    #[must_use]
    pub fn again(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// The Pod's restart policy.
#[must_use]
pub fn restart(pod: &Pod) -> Restart {
    Restart::parse(pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()))
}

/// The restart policy of one container. An init container is never started again after success.
#[must_use]
pub fn restart_of(pod: &Pod, container: &Container) -> Restart {
    match container.restart_policy.as_deref() {
        Some(own) => Restart::parse(Some(own)),
        None if is_init(pod, &container.name) && restart(pod) == Restart::Always => Restart::OnFailure,
        None => restart(pod),
    }
}

/// Containers of the main list.
#[must_use]
pub fn containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map(|s| s.containers.as_slice()).unwrap_or_default()
}

/// Init containers, sidecars among them.
#[must_use]
pub fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().and_then(|s| s.init_containers.as_deref()).unwrap_or_default()
}

/// All containers, init first.
pub fn all(pod: &Pod) -> impl Iterator<Item = &Container> {
    init_containers(pod).iter().chain(containers(pod))
}

/// Ephemeral containers, as containers that are started once.
#[must_use]
pub fn ephemeral_containers(pod: &Pod) -> Vec<Container> {
    let all = pod.spec.as_ref().and_then(|s| s.ephemeral_containers.as_deref()).unwrap_or_default();
    // The one type has all fields of the other, but for the target.
    let one = |c| serde_json::from_value(serde_json::to_value(c).ok()?).ok();
    let once = |c: Container| Container { restart_policy: Some("Never".to_owned()), ..c };
    all.iter().filter_map(one).map(once).collect()
}

/// The container whose processes an ephemeral container sees.
#[must_use]
pub fn target<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let mut all = pod.spec.as_ref()?.ephemeral_containers.iter().flatten();
    all.find(|c| c.name == name)?.target_container_name.as_deref().filter(|target| !target.is_empty())
}

/// The container `name`, whatever list it is in.
#[must_use]
pub fn find<'a>(pod: &'a Pod, name: &str) -> Option<Cow<'a, Container>> {
    let found = all(pod).find(|c| c.name == name).map(Cow::Borrowed);
    found.or_else(|| ephemeral_containers(pod).into_iter().find(|c| c.name == name).map(Cow::Owned))
}

/// Whether `name` is an init container.
#[must_use]
pub fn is_init(pod: &Pod, name: &str) -> bool {
    init_containers(pod).iter().any(|c| c.name == name)
}

/// Whether `name` is in the main list.
#[must_use]
pub fn is_main(pod: &Pod, name: &str) -> bool {
    containers(pod).iter().any(|c| c.name == name)
}

/// Whether an init container is a sidecar: it runs on beside the main ones.
#[must_use]
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Whether the Pod shares the node's network.
#[must_use]
pub fn host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|s| s.host_network).unwrap_or_default()
}

/// Seconds of grace when the Pod is deleted or otherwise ended.
#[must_use]
pub fn grace(pod: &Pod) -> i64 {
    pod.metadata
        .deletion_grace_period_seconds
        .or(pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds))
        .unwrap_or(DEFAULT_GRACE)
        .max(0)
}

/// `namespace/name`.
#[must_use]
pub fn key(pod: &Pod) -> String {
    format!("{}/{}", namespace(pod), name(pod))
}

/// The Pod's name.
#[must_use]
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The Pod's namespace.
#[must_use]
pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// The Pod's UID.
#[must_use]
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// `name_namespace(uid)`, as messages name Pods.
#[must_use]
pub fn title(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

/// Whether the API server holds it ended.
#[must_use]
pub fn ended(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}
