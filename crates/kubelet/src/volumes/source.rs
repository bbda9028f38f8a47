//! Which kind of volume it is, from the Pod's spec.

use trine_typed::k8s_openapi::api::core::v1::{Pod, Volume};

/// A volume of a Pod, as far as the plan cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A folder that lives as long as the Pod.
    EmptyDir,
    /// A path of the node.
    HostPath,
    /// Files from a ConfigMap.
    ConfigMap,
    /// Files from a Secret.
    Secret,
    /// Files about the Pod itself.
    DownwardApi,
    /// Several of these in one.
    Projected,
    /// A PersistentVolumeClaim.
    Claim,
    /// A CSI driver's volume that lives as long as the Pod: published, neither attached nor staged.
    Inline,
    /// Not known to this kubelet.
    Unsupported,
}

impl Source {
    /// Of a volume.
    #[must_use]
    pub fn of(volume: &Volume) -> Self {
        if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
            Self::Claim
        } else if volume.csi.is_some() {
            Self::Inline
        } else if volume.host_path.is_some() {
            Self::HostPath
        } else if volume.config_map.is_some() {
            Self::ConfigMap
        } else if volume.secret.is_some() {
            Self::Secret
        } else if volume.downward_api.is_some() {
            Self::DownwardApi
        } else if volume.projected.is_some() {
            Self::Projected
        } else if volume.empty_dir.is_some() || nothing_else(volume) {
            Self::EmptyDir
        } else {
            Self::Unsupported
        }
    }

    /// Folder name below `volumes/`.
    #[must_use]
    pub fn plugin(self) -> &'static str {
        match self {
            Self::EmptyDir => "kubernetes.io~empty-dir",
            Self::HostPath => "kubernetes.io~host-path",
            Self::ConfigMap => "kubernetes.io~configmap",
            Self::Secret => "kubernetes.io~secret",
            Self::DownwardApi => "kubernetes.io~downward-api",
            Self::Projected => "kubernetes.io~projected",
            Self::Claim | Self::Inline => super::paths::CSI,
            Self::Unsupported => "unsupported",
        }
    }

    /// Whether its files follow what they were made from.
    #[must_use]
    pub fn refreshed(self) -> bool {
        matches!(self, Self::ConfigMap | Self::Secret | Self::DownwardApi | Self::Projected)
    }
}

/// A volume without any source is an emptyDir, as the API server defaults it.
fn nothing_else(volume: &Volume) -> bool {
    *volume == Volume { name: volume.name.clone(), ..Default::default() }
}

/// The volumes of a Pod that a container uses; others need not be mounted. Images are the runtime's to mount.
pub fn used(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let used = |name: &str| {
        crate::pod::spec::all(pod).any(|c| {
            c.volume_mounts.iter().flatten().any(|m| m.name == name)
                || c.volume_devices.iter().flatten().any(|d| d.name == name)
        })
    };
    let all = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    all.filter(move |v| v.image.is_none() && used(&v.name))
}

/// Whether a container uses the volume `name` as a raw device.
#[must_use]
pub fn as_device(pod: &Pod, name: &str) -> bool {
    crate::pod::spec::all(pod).any(|c| c.volume_devices.iter().flatten().any(|d| d.name == name))
}
