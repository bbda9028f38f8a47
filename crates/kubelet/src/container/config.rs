//! The container's configuration.

use std::collections::HashMap;
use std::path::Path;

use trine_contracts::cri;
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod};

use super::expand::expand;
use super::hugepages::{self, HugePages};
use super::resources;
use super::security::{self, ImageUser};
use crate::config::DEFAULT_GRACE;
use crate::error::KubeletError;
use crate::runtime::labels;

/// Default of `terminationMessagePath`.
pub const TERMINATION_PATH: &str = "/dev/termination-log";

/// Everything that a container is made of.
pub struct ContainerInput<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// The container's spec.
    pub container: &'a Container,
    /// How often one of this name was started before.
    pub attempt: u32,
    /// The image as it was asked for.
    pub image: &'a str,
    /// The image as the runtime has it.
    pub image_ref: &'a str,
    /// Who the image runs as.
    pub image_user: ImageUser,
    /// Where the node's seccomp profiles are.
    pub seccomp_root: &'a Path,
    /// The environment.
    pub env: Vec<(String, String)>,
    /// Volumes, the hosts file, the termination message.
    pub mounts: Vec<cri::Mount>,
    /// Raw block volumes.
    pub devices: Vec<cri::Device>,
    /// The node's memory, bytes.
    pub node_memory: u64,
    /// Whether the node has cgroup version 2 alone.
    pub cgroup_2: bool,
    /// The node's huge pages.
    pub huge_pages: &'a [HugePages],
}

/// Log file below the Pod's log folder: `<container>/<attempt>.log`.
#[must_use]
pub fn log_path(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}

/// The configuration.
///
/// # Errors
/// [`KubeletError::Invalid`] if the security context forbids the image.
pub fn config(input: ContainerInput<'_>) -> Result<cri::ContainerConfig, KubeletError> {
    let ContainerInput { pod, container, attempt, .. } = input;
    let lookup = |name: &str| input.env.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    let expanded = |list: &Option<Vec<String>>| list.iter().flatten().map(|a| expand(a, lookup)).collect();
    let linux = cri::LinuxContainerConfig {
        resources: Some(cri::LinuxContainerResources {
            hugepage_limits: hugepages::limits(container, input.huge_pages),
            ..resources::linux(pod, container, input.node_memory, input.cgroup_2)
        }),
        security_context: Some(security::of_container(
            pod,
            container,
            &input.image_user,
            input.seccomp_root,
        )?),
    };
    Ok(cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: container.name.clone(), attempt }),
        image: Some(cri::ImageSpec {
            image: input.image_ref.to_owned(),
            user_specified_image: input.image.to_owned(),
            ..Default::default()
        }),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: input
            .env
            .iter()
            .map(|(key, value)| cri::KeyValue { key: key.clone(), value: value.clone().into() })
            .collect(),
        mounts: input.mounts,
        devices: input.devices,
        labels: labels_of(pod, container),
        annotations: annotations_of(pod, container, attempt),
        log_path: log_path(&container.name, attempt),
        stdin: container.stdin.unwrap_or_default(),
        stdin_once: container.stdin_once.unwrap_or_default(),
        tty: container.tty.unwrap_or_default(),
        linux: Some(linux),
        ..Default::default()
    })
}

fn labels_of(pod: &Pod, container: &Container) -> HashMap<String, String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    HashMap::from([
        (labels::POD_NAME.to_owned(), text(&pod.metadata.name)),
        (labels::POD_NAMESPACE.to_owned(), text(&pod.metadata.namespace)),
        (labels::POD_UID.to_owned(), text(&pod.metadata.uid)),
        (labels::CONTAINER_NAME.to_owned(), container.name.clone()),
    ])
}

fn annotations_of(pod: &Pod, container: &Container, attempt: u32) -> HashMap<String, String> {
    let grace = pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds).unwrap_or(DEFAULT_GRACE);
    let mut annotations = HashMap::from([
        (labels::HASH.to_owned(), labels::hash(container)),
        (labels::RESTART_COUNT.to_owned(), attempt.to_string()),
        (labels::GRACE_PERIOD.to_owned(), grace.to_string()),
        (
            labels::TERMINATION_PATH.to_owned(),
            container.termination_message_path.clone().unwrap_or_else(|| TERMINATION_PATH.to_owned()),
        ),
        (
            labels::TERMINATION_POLICY.to_owned(),
            container.termination_message_policy.clone().unwrap_or_else(|| "File".to_owned()),
        ),
    ]);
    if let Some(ports) = container.ports.as_ref().and_then(|p| serde_json::to_string(p).ok()) {
        annotations.insert(labels::PORTS.to_owned(), ports);
    }
    let hook = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref());
    if let Some(hook) = hook.and_then(|h| serde_json::to_string(h).ok()) {
        annotations.insert(labels::PRE_STOP.to_owned(), hook);
    }
    annotations
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn command_and_arguments_are_expanded_and_the_container_is_labelled() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "i", "command": ["sh", "$(A)"], "args": ["$$(A)", "$(B)"]}]}}))
        .unwrap();
        let got = config(ContainerInput {
            pod: &pod,
            container: &pod.spec.as_ref().unwrap().containers[0],
            attempt: 3,
            image: "i",
            image_ref: "sha256:1",
            image_user: ImageUser::default(),
            seccomp_root: Path::new("/seccomp"),
            env: vec![("A".into(), "1".into())],
            mounts: Vec::new(),
            devices: Vec::new(),
            node_memory: 0,
            huge_pages: &[],
            cgroup_2: false,
        })
        .unwrap();
        assert_eq!(got.command, ["sh", "1"]);
        assert_eq!(got.args, ["$(A)", "$(B)"]);
        assert_eq!(got.log_path, "c/3.log");
        assert_eq!(got.annotations[labels::RESTART_COUNT], "3");
        assert_eq!(got.labels[labels::CONTAINER_NAME], "c");
        assert_eq!(got.image.unwrap().user_specified_image, "i");
    }
}
