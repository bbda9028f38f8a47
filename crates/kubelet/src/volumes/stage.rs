//! Staging a driver's volume on this node, and undoing it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use trine_kernel::testing::failpoint;

use super::cleanup::{is_mount_point, mounts};
use super::csi::{For, NodeCalls};
use super::metadata::{self, VolumeData, absent_is_fine, make_dir};
use super::model::{Device, DeviceKey, Resolved};
use super::paths;
use crate::error::KubeletError;

/// staging_target_path of a volume.
#[must_use]
pub fn path(root: &Path, volume: &Resolved) -> PathBuf {
    if volume.block {
        paths::block_stage(root, &volume.pv)
    } else {
        paths::stage_dir(root, &volume.driver, &volume.handle).join("globalmount")
    }
}

/// The folder with the metadata of a staged volume.
fn data_dir(root: &Path, driver: &str, handle: &str, block: bool, pv: &str) -> PathBuf {
    if block { paths::block_data(root, pv) } else { paths::stage_dir(root, driver, handle) }
}

/// Stages the volume. The metadata is on disk before the driver is asked.
///
/// # Errors
/// [`KubeletError`].
pub async fn stage(
    root: &Path,
    calls: &NodeCalls,
    who: For<'_>,
    volume: &Resolved,
    publish_context: BTreeMap<String, String>,
    secrets: BTreeMap<String, String>,
    group: Option<i64>,
) -> Result<(), KubeletError> {
    let path = path(root, volume);
    if !calls.capabilities().stage && !volume.block {
        return Ok(());
    }
    let data = VolumeData {
        spec: volume.pv.clone(),
        volume_handle: volume.handle.clone(),
        driver_name: volume.driver.clone(),
        ..Default::default()
    };
    metadata::write(&data_dir(root, &volume.driver, &volume.handle, volume.block, &volume.pv), &data)?;
    if !calls.capabilities().stage {
        return Ok(());
    }
    failpoint("stage: noted");
    make_dir(&path)?;
    calls.stage(who, volume, &path, publish_context, secrets, group).await?;
    failpoint("stage: done");
    Ok(())
}

/// Unstages a volume and removes what is left of it. It must be off its mount point before anything is removed.
///
/// # Errors
/// [`KubeletError`].
pub async fn unstage(
    root: &Path,
    calls: &NodeCalls,
    who: For<'_>,
    key: &DeviceKey,
    device: &Device,
) -> Result<(), KubeletError> {
    if calls.capabilities().stage {
        calls.unstage(who, &key.handle, &device.path).await?;
        failpoint("unstage: done");
    }
    if is_mount_point(&mounts()?, &device.path) {
        return Err(KubeletError::Invalid(format!(
            "driver {} says that {} is unstaged, but {} is still mounted",
            key.driver,
            key.handle,
            device.path.display()
        )));
    }
    absent_is_fine("remove folder", &device.path, fs::remove_dir(&device.path))?;
    let data = data_dir(root, &key.driver, &key.handle, device.block, &device.pv);
    failpoint("unstage: folder");
    metadata::remove(&data)?;
    failpoint("unstage: forgotten");
    if device.block {
        // volumeDevices/<pv> and volumeDevices/publish/<pv>, if empty.
        let publish = paths::block_publish(root, &device.pv, "");
        for dir in [data.parent().map(Path::to_owned), Some(publish)].into_iter().flatten() {
            let _ = fs::remove_dir(dir);
        }
    }
    Ok(())
}
