//! Keys on sandboxes and containers. They are upstream's, so a kubelet of either kind adopts what the other left.

use serde::Serialize;
use trine_typed::k8s_openapi::api::core::v1::Container;

/// The Pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// The Pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// The Pod's UID.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// The container's name.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Annotation: [`hash`] of the container's spec.
pub const HASH: &str = "io.kubernetes.container.hash";
/// Annotation: how often it was restarted.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Annotation: where in the container its last words are.
pub const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Annotation: `File` or `FallbackToLogsOnError`.
pub const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// Annotation: seconds of grace of the Pod.
pub const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Annotation: the container's ports as JSON.
pub const PORTS: &str = "io.kubernetes.container.ports";
/// Annotation: the preStop hook as JSON, so that an orphan still gets it.
pub const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";

/// What of a container's spec makes it another container: name and image, the fields that may change.
#[derive(Serialize)]
struct Identity<'a> {
    image: &'a str,
    name: &'a str,
}

/// A hash of the fields whose change restarts the container (FNV-1a, hexadecimal).
#[must_use]
pub fn hash(container: &Container) -> String {
    let identity = Identity { image: container.image.as_deref().unwrap_or_default(), name: &container.name };
    let bytes = serde_json::to_vec(&identity).unwrap_or_default();
    let hash =
        bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619));
    format!("{hash:x}")
}
