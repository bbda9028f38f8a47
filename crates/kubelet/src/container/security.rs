//! Security contexts: the container's fields win over the Pod's.

use std::path::Path;

use trine_contracts::cri;
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod, SeccompProfile};

use crate::error::KubeletError;

/// Paths under `/proc` and `/sys` that a container does not see unless it asks for an unmasked `/proc`.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// Paths that it may only read.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Which namespaces the Pod's sandbox and containers use.
#[must_use]
pub fn namespaces(pod: &Pod) -> cri::NamespaceOption {
    let spec = pod.spec.as_ref();
    let node = |on: Option<bool>, else_: cri::NamespaceMode| {
        (if on.unwrap_or_default() { cri::NamespaceMode::Node } else { else_ }) as i32
    };
    let shared = spec.and_then(|s| s.share_process_namespace).unwrap_or_default();
    let pid = if shared { cri::NamespaceMode::Pod } else { cri::NamespaceMode::Container };
    cri::NamespaceOption {
        network: node(spec.and_then(|s| s.host_network), cri::NamespaceMode::Pod),
        ipc: node(spec.and_then(|s| s.host_ipc), cri::NamespaceMode::Pod),
        pid: node(spec.and_then(|s| s.host_pid), pid),
        ..Default::default()
    }
}

fn int(value: i64) -> cri::Int64Value {
    cri::Int64Value { value }
}

/// Supplemental groups with the fsGroup.
#[must_use]
pub fn groups(pod: &Pod) -> Vec<i64> {
    let context = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let own = context.and_then(|c| c.supplemental_groups.as_ref()).into_iter().flatten().copied();
    own.chain(context.and_then(|c| c.fs_group)).collect()
}

fn groups_policy(pod: &Pod) -> i32 {
    let context = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    match context.and_then(|c| c.supplemental_groups_policy.as_deref()) {
        Some("Strict") => cri::SupplementalGroupsPolicy::Strict as i32,
        _ => cri::SupplementalGroupsPolicy::Merge as i32,
    }
}

fn seccomp(profile: Option<&SeccompProfile>, root: &Path) -> cri::SecurityProfile {
    use cri::security_profile::ProfileType;
    match profile.map(|p| (p.type_.as_str(), p)) {
        Some(("RuntimeDefault", _)) => {
            cri::SecurityProfile { profile_type: ProfileType::RuntimeDefault as i32, ..Default::default() }
        }
        Some(("Localhost", p)) => cri::SecurityProfile {
            profile_type: ProfileType::Localhost as i32,
            localhost_ref: root
                .join(p.localhost_profile.as_deref().unwrap_or_default())
                .to_string_lossy()
                .into_owned(),
        },
        _ => cri::SecurityProfile { profile_type: ProfileType::Unconfined as i32, ..Default::default() },
    }
}

/// Whether any container of the Pod is privileged: the sandbox must be, then.
#[must_use]
pub fn any_privileged(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let mut all =
        spec.into_iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
    all.any(|c| c.security_context.as_ref().and_then(|s| s.privileged).unwrap_or_default())
}

/// The sandbox's context.
#[must_use]
pub fn of_sandbox(pod: &Pod) -> cri::LinuxSandboxSecurityContext {
    let context = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    cri::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod)),
        run_as_user: context.and_then(|c| c.run_as_user).map(int),
        run_as_group: context.and_then(|c| c.run_as_group).map(int),
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        privileged: any_privileged(pod),
        seccomp: Some(cri::SecurityProfile::default()),
        ..Default::default()
    }
}

/// Who the image runs as when nobody says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageUser {
    /// Numeric user.
    pub uid: Option<i64>,
    /// Named user.
    pub name: String,
}

/// The container's context.
///
/// # Errors
/// [`KubeletError::Invalid`] if it must not run as root and would, or if that cannot be known.
pub fn of_container(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
    seccomp_root: &Path,
) -> Result<cri::LinuxContainerSecurityContext, KubeletError> {
    let pod_context = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let own = container.security_context.as_ref();
    let user = own.and_then(|c| c.run_as_user).or(pod_context.and_then(|c| c.run_as_user));
    let group = own.and_then(|c| c.run_as_group).or(pod_context.and_then(|c| c.run_as_group));
    let non_root = own.and_then(|c| c.run_as_non_root).or(pod_context.and_then(|c| c.run_as_non_root));
    if non_root.unwrap_or_default() {
        refuse_root(user, image)?;
    }
    let privileged = own.and_then(|c| c.privileged).unwrap_or_default();
    let unmasked = own.and_then(|c| c.proc_mount.as_deref()) == Some("Unmasked");
    let paths =
        |list: &[&str]| if unmasked { Vec::new() } else { list.iter().map(|p| (*p).to_owned()).collect() };
    let capabilities = own.and_then(|c| c.capabilities.as_ref()).map(|c| cri::Capability {
        add_capabilities: c.add.clone().unwrap_or_default(),
        drop_capabilities: c.drop.clone().unwrap_or_default(),
        add_ambient_capabilities: Vec::new(),
    });
    let profile =
        own.and_then(|c| c.seccomp_profile.as_ref()).or(pod_context.and_then(|c| c.seccomp_profile.as_ref()));
    // Group without user is the runtime's to refuse, but then a numeric image user stands in, as upstream.
    let run_as_user = user.or(if group.is_some() { image.uid } else { None });
    Ok(cri::LinuxContainerSecurityContext {
        capabilities,
        privileged,
        namespace_options: Some(namespaces(pod)),
        run_as_user: run_as_user.map(int),
        run_as_group: group.map(int),
        run_as_username: if user.is_none() { image.name.clone() } else { String::new() },
        readonly_rootfs: own.and_then(|c| c.read_only_root_filesystem).unwrap_or_default(),
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        no_new_privs: own.and_then(|c| c.allow_privilege_escalation) == Some(false),
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READ_ONLY),
        seccomp: Some(seccomp(profile, seccomp_root)),
        ..Default::default()
    })
}

fn refuse_root(user: Option<i64>, image: &ImageUser) -> Result<(), KubeletError> {
    let invalid = |text: String| Err(KubeletError::Invalid(text));
    match (user, image.uid, image.name.as_str()) {
        (Some(0), ..) => invalid("container's runAsUser breaks non-root policy".to_owned()),
        (Some(_), ..) => Ok(()),
        (None, Some(0), _) | (None, None, "") => {
            invalid("container has runAsNonRoot and image will run as root".to_owned())
        }
        (None, Some(_), _) => Ok(()),
        (None, None, name) => invalid(format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[test]
    fn the_containers_fields_win_over_the_pods() {
        let pod = pod(
            json!({"securityContext": {"runAsUser": 1, "runAsGroup": 2, "fsGroup": 7, "supplementalGroups": [5]},
            "containers": [{"name": "c", "securityContext": {"runAsUser": 3, "allowPrivilegeEscalation": false,
                "seccompProfile": {"type": "RuntimeDefault"}, "capabilities": {"drop": ["ALL"]}}}]}),
        );
        let got = of_container(
            &pod,
            &pod.spec.as_ref().unwrap().containers[0],
            &ImageUser::default(),
            Path::new("/s"),
        )
        .unwrap();
        assert_eq!(got.run_as_user, Some(int(3)));
        assert_eq!(got.run_as_group, Some(int(2)));
        assert_eq!(got.supplemental_groups, [5, 7]);
        assert!(got.no_new_privs);
        assert_eq!(got.seccomp.unwrap().profile_type, 0);
        assert_eq!(got.capabilities.unwrap().drop_capabilities, ["ALL"]);
        assert!(got.masked_paths.contains(&"/proc/kcore".to_owned()));
    }

    #[test]
    fn a_profile_of_the_node_lies_below_its_folder() {
        let profile =
            SeccompProfile { type_: "Localhost".into(), localhost_profile: Some("a/b.json".into()) };
        let got = seccomp(Some(&profile), Path::new("/kubelet/seccomp"));
        assert_eq!((got.profile_type, got.localhost_ref.as_str()), (2, "/kubelet/seccomp/a/b.json"));
        assert_eq!(seccomp(None, Path::new("/")).profile_type, 1, "unconfined");
    }

    #[test]
    fn non_root_is_refused_unless_it_is_certain() {
        let user = |uid, name: &str| ImageUser { uid, name: name.to_owned() };
        let rows = [
            ("own user", json!(5), user(None, ""), true),
            ("own root", json!(0), user(Some(5), ""), false),
            ("image number", json!(null), user(Some(5), ""), true),
            ("image root", json!(null), user(Some(0), ""), false),
            ("image silent", json!(null), user(None, ""), false),
            ("image name", json!(null), user(None, "app"), false),
        ];
        for (name, run_as, image, fine) in rows {
            let pod = pod(json!({"containers": [{"name": "c",
                "securityContext": {"runAsNonRoot": true, "runAsUser": run_as}}]}));
            let got = of_container(&pod, &pod.spec.as_ref().unwrap().containers[0], &image, Path::new("/s"));
            assert_eq!(got.is_ok(), fine, "{name}");
        }
    }
}
