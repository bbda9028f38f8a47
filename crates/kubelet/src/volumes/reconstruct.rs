//! What a former kubelet left, from the folders on disk and the mount table. Everything found is uncertain: it
//! is made again if a Pod wants it, and taken down if none does.

use std::fs;
use std::path::Path;

use trine_kernel::mountpoint::Mounted;

use super::metadata;
use super::model::{Actual, Certainty, Device, DeviceKey, Mount, MountKey};
use super::source::Source;
use super::{paths, publish};

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

/// Reads the root folder.
#[must_use]
pub fn reconstruct(root: &Path, mounts: &[Mounted]) -> Actual {
    let mut actual = Actual::default();
    for uid in names(&root.join("pods")) {
        pod_volumes(root, &uid, &mut actual);
        for spec in names(&paths::pod(root, &uid).join("volumeDevices").join(paths::CSI)) {
            let key = MountKey { uid: uid.clone(), plugin: paths::CSI.to_owned(), spec, block: true };
            let data = metadata::read(&paths::block_data(root, &key.spec));
            add_csi(root, key, data, &mut actual);
        }
    }
    staged(root, mounts, &mut actual);
    staged_devices(root, &mut actual);
    actual
}

fn pod_volumes(root: &Path, uid: &str, actual: &mut Actual) {
    let dir = paths::pod(root, uid).join("volumes");
    for plugin in names(&dir) {
        for spec in names(&dir.join(&plugin)) {
            let host_path = dir.join(&plugin).join(&spec);
            let key = MountKey { uid: uid.to_owned(), plugin: plugin.clone(), spec, block: false };
            if plugin == paths::CSI {
                add_csi(root, key, metadata::read(&host_path), actual);
            } else if plugin != Source::HostPath.plugin() {
                let mount = Mount { certainty: Certainty::Uncertain, device: None, host_path };
                actual.mounts.insert(key, mount);
            }
        }
    }
}

fn add_csi(root: &Path, key: MountKey, data: Option<metadata::VolumeData>, actual: &mut Actual) {
    let device = data
        .filter(|d| !d.driver_name.is_empty() && !d.volume_handle.is_empty())
        .map(|d| DeviceKey { driver: d.driver_name, handle: d.volume_handle });
    let host_path = publish::target(root, &key);
    actual.mounts.insert(key, Mount { certainty: Certainty::Uncertain, device, host_path });
}

/// Staged file systems: `plugins/kubernetes.io/csi/<driver>/<hash>`. One without metadata is named by a Pod's
/// volume whose handle has this hash, or it is a leftover folder.
fn staged(root: &Path, mounts: &[Mounted], actual: &mut Actual) {
    for driver in names(&paths::csi(root)) {
        if driver == "volumeDevices" {
            continue;
        }
        for hash in names(&paths::csi(root).join(&driver)) {
            let dir = paths::csi(root).join(&driver).join(&hash);
            let path = dir.join("globalmount");
            let data = metadata::read(&dir);
            let known =
                data.as_ref().map(|d| d.volume_handle.clone()).filter(|h| !h.is_empty()).or_else(|| {
                    let mut devices = actual.mounts.values().filter_map(|m| m.device.as_ref());
                    devices
                        .find(|d| d.driver == driver && paths::hash(&d.handle) == hash)
                        .map(|d| d.handle.clone())
                });
            match known {
                Some(handle) => {
                    let pv = data.map(|d| d.spec).unwrap_or_default();
                    let key = DeviceKey { driver: driver.clone(), handle };
                    actual.devices.insert(key, uncertain(path, pv, false));
                }
                None if !mounts.iter().any(|m| m.target.starts_with(&dir)) => {
                    let _ = fs::remove_dir(&path);
                    let _ = metadata::remove(&dir);
                }
                None => tracing::error!(
                    path = %path.display(),
                    "a staged volume without metadata: it stays until its driver or a person takes it down"
                ),
            }
        }
    }
}

fn staged_devices(root: &Path, actual: &mut Actual) {
    for pv in names(&paths::csi(root).join("volumeDevices")) {
        if pv == "staging" || pv == "publish" {
            continue;
        }
        if let Some(data) = metadata::read(&paths::block_data(root, &pv)) {
            let key = DeviceKey { driver: data.driver_name, handle: data.volume_handle };
            actual.devices.insert(key, uncertain(paths::block_stage(root, &pv), pv, true));
        }
    }
}

/// Whether it is attached is not on disk; saying so keeps it in use until it is unstaged.
fn uncertain(path: std::path::PathBuf, pv: String, block: bool) -> Device {
    Device { certainty: Certainty::Uncertain, path, pv, block, attach: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::metadata::VolumeData;
    use crate::volumes::model::{Desired, in_use};
    use crate::volumes::plan::{Held, Operation, plan};

    fn data(pv: &str) -> VolumeData {
        VolumeData {
            spec: pv.into(),
            driver_name: "d".into(),
            volume_handle: format!("h-{pv}"),
            ..Default::default()
        }
    }

    #[test]
    fn all_that_was_left_is_found_and_taken_down_when_nobody_wants_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(paths::volume(root, "u1", "kubernetes.io~empty-dir", "tmp")).unwrap();
        metadata::write(&paths::volume(root, "u1", paths::CSI, "pv1"), &data("pv1")).unwrap();
        metadata::write(&paths::stage_dir(root, "d", "h-pv1"), &data("pv1")).unwrap();
        metadata::write(&paths::stage_dir(root, "d", "h-alone"), &data("alone")).unwrap();
        // Metadata lost, but the Pod's volume names the handle.
        metadata::write(&paths::volume(root, "u2", paths::CSI, "pv2"), &data("pv2")).unwrap();
        fs::create_dir_all(paths::stage_dir(root, "d", "h-pv2").join("globalmount")).unwrap();
        // Nothing at all: an empty leftover.
        fs::create_dir_all(paths::stage_dir(root, "d", "h-none").join("globalmount")).unwrap();
        metadata::write(&paths::block_data(root, "pvb"), &data("pvb")).unwrap();
        let actual = reconstruct(root, &[]);
        let handles: Vec<&str> = actual.devices.keys().map(|k| k.handle.as_str()).collect();
        assert_eq!(handles, ["h-alone", "h-pv1", "h-pv2", "h-pvb"]);
        assert_eq!(actual.mounts.len(), 3);
        assert!(!paths::stage_dir(root, "d", "h-none").exists());
        assert_eq!(in_use(&Desired::default(), &actual).len(), 4);
        let nobody = Desired { complete: true, ..Default::default() };
        let now = jiff::Timestamp::from_second(0).unwrap();
        let operations = plan(&nobody, &actual, &Held::default(), now);
        let down = operations.iter().filter(|o| matches!(o, Operation::TearDown { .. })).count();
        let unstage = operations.iter().filter(|o| matches!(o, Operation::Unstage { .. })).count();
        assert_eq!((down, unstage), (3, 2), "staged volumes that are still mounted wait for their mounts");
    }
}
