//! Where things are below the root folder. The layout is upstream's, so either kubelet finds what the other left.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Folder name of CSI volumes.
pub const CSI: &str = "kubernetes.io~csi";

/// `pods/<uid>`.
#[must_use]
pub fn pod(root: &Path, uid: &str) -> PathBuf {
    root.join("pods").join(uid)
}

/// `pods/<uid>/volumes/<plugin>/<spec>`.
#[must_use]
pub fn volume(root: &Path, uid: &str, plugin: &str, spec: &str) -> PathBuf {
    pod(root, uid).join("volumes").join(plugin).join(spec)
}

/// `pods/<uid>/volumeDevices/kubernetes.io~csi/<spec>`: a link to the published device.
#[must_use]
pub fn device_link(root: &Path, uid: &str, spec: &str) -> PathBuf {
    pod(root, uid).join("volumeDevices").join(CSI).join(spec)
}

/// `pods/<uid>/volume-subpaths/<volume>/<container>/<index>`.
#[must_use]
pub fn subpath(root: &Path, uid: &str, volume: &str, container: &str, index: usize) -> PathBuf {
    pod(root, uid).join("volume-subpaths").join(volume).join(container).join(index.to_string())
}

/// `plugins/kubernetes.io/csi`.
#[must_use]
pub fn csi(root: &Path) -> PathBuf {
    root.join("plugins/kubernetes.io/csi")
}

/// `plugins/kubernetes.io/csi/<driver>/<hash of the handle>`: holds `globalmount` and its metadata.
#[must_use]
pub fn stage_dir(root: &Path, driver: &str, handle: &str) -> PathBuf {
    csi(root).join(driver).join(hash(handle))
}

/// Hexadecimal SHA-256 of a volume handle.
#[must_use]
pub fn hash(handle: &str) -> String {
    hex::encode(Sha256::digest(handle))
}

/// `.../volumeDevices/staging/<spec>`.
#[must_use]
pub fn block_stage(root: &Path, spec: &str) -> PathBuf {
    csi(root).join("volumeDevices/staging").join(spec)
}

/// `.../volumeDevices/publish/<spec>/<uid>`.
#[must_use]
pub fn block_publish(root: &Path, spec: &str, uid: &str) -> PathBuf {
    csi(root).join("volumeDevices/publish").join(spec).join(uid)
}

/// `.../volumeDevices/<spec>/data`: metadata of a raw block volume.
#[must_use]
pub fn block_data(root: &Path, spec: &str) -> PathBuf {
    csi(root).join("volumeDevices").join(spec).join("data")
}

/// The handle of an inline volume, by the Pod and the volume's name in it.
#[must_use]
pub fn inline_handle(uid: &str, volume: &str) -> String {
    format!("csi-{}", hash(&format!("{uid}{volume}")))
}

/// Name of the VolumeAttachment of a volume on a node.
#[must_use]
pub fn attachment(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", hash(&format!("{handle}{driver}{node}")))
}

/// Name of a volume in the Node's status.
#[must_use]
pub fn unique(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_are_upstreams() {
        let root = Path::new("/var/lib/kubelet");
        assert_eq!(
            volume(root, "u", CSI, "pvc-1").join("mount"),
            Path::new("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount")
        );
        assert_eq!(
            stage_dir(root, "d", "abc"),
            Path::new(
                "/var/lib/kubelet/plugins/kubernetes.io/csi/d/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
            )
        );
        assert_eq!(unique("d", "h"), "kubernetes.io/csi/d^h");
        assert_eq!(
            inline_handle("a", "bc"),
            "csi-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(attachment("h", "d", "n").starts_with("csi-"));
        assert_eq!(attachment("h", "d", "n").len(), 68);
    }
}
