//! Publishing a staged volume into a Pod's folder, and undoing it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use trine_kernel::mountpoint;
use trine_kernel::testing::failpoint;
use trine_typed::k8s_openapi::api::core::v1::Pod;

use super::cleanup::{is_mount_point, mount_error, mounts};
use super::csi::{For, NodeCalls, Publish};
use super::metadata::{self, VolumeData, absent_is_fine, make_dir};
use super::model::{MountKey, Resolved};
use super::{fsgroup, paths, stage};
use crate::error::KubeletError;
use crate::pod::spec;

/// target_path of a Pod's volume; what containers get.
#[must_use]
pub fn target(root: &Path, key: &MountKey) -> PathBuf {
    if key.block {
        paths::block_publish(root, &key.spec, &key.uid)
    } else {
        paths::volume(root, &key.uid, &key.plugin, &key.spec).join("mount")
    }
}

fn data_dir(root: &Path, key: &MountKey) -> PathBuf {
    paths::volume(root, &key.uid, &key.plugin, &key.spec)
}

/// fsGroup of the Pod.
#[must_use]
pub fn group(pod: &Pod) -> Option<i64> {
    pod.spec.as_ref().and_then(|s| s.security_context.as_ref()).and_then(|c| c.fs_group)
}

/// What the driver is told of the Pod if it asks for it.
fn pod_info(pod: &Pod, volume: &Resolved) -> BTreeMap<String, String> {
    if !volume.pod_info {
        return BTreeMap::new();
    }
    let account = pod.spec.as_ref().and_then(|s| s.service_account_name.clone()).unwrap_or_default();
    let of = |key: &str, value: &str| (format!("csi.storage.k8s.io/{key}"), value.to_owned());
    BTreeMap::from([
        of("pod.name", spec::name(pod)),
        of("pod.namespace", spec::namespace(pod)),
        of("pod.uid", spec::uid(pod)),
        of("serviceAccount.name", &account),
        of("ephemeral", if volume.inline { "true" } else { "false" }),
    ])
}

/// Publishes the volume for the Pod on `node`, below `root`, and gives it to the Pod's group. `tokens` are told beside what is told of
/// the Pod.
///
/// # Errors
/// [`KubeletError`].
pub async fn publish(
    (root, node): (&Path, &str),
    calls: &NodeCalls,
    key: &MountKey,
    pod: &Pod,
    volume: &Resolved,
    publish_context: BTreeMap<String, String>,
    (secrets, tokens): (BTreeMap<String, String>, BTreeMap<String, String>),
) -> Result<PathBuf, KubeletError> {
    let target = target(root, key);
    let data = VolumeData {
        spec: volume.pv.clone(),
        volume_handle: volume.handle.clone(),
        driver_name: volume.driver.clone(),
        node_name: node.to_owned(),
        attachment: if volume.attach {
            paths::attachment(&volume.handle, &volume.driver, node)
        } else {
            String::new()
        },
        volume_lifecycle_mode: if volume.inline { "Ephemeral" } else { "Persistent" }.to_owned(),
    };
    if !key.block {
        metadata::write(&data_dir(root, key), &data)?;
    }
    failpoint("publish: noted");
    if let Some(parent) = target.parent() {
        make_dir(parent)?;
    }
    let pod_key = spec::key(pod);
    let who = For { pod: &pod_key, uid: &key.uid, volume: &volume.pv, claim: &volume.claim };
    let stage = stage::path(root, volume);
    let request = Publish {
        volume,
        stage: (calls.capabilities().stage && !volume.inline).then_some(stage.as_path()),
        target: &target,
        publish_context,
        secrets,
        pod_info: pod_info(pod, volume).into_iter().chain(tokens).collect(),
        group: group(pod),
    };
    calls.publish(who, request).await?;
    failpoint("publish: done");
    if key.block {
        link(root, key, &target)?;
    } else {
        own(pod, calls, volume, target.clone()).await?;
    }
    Ok(target)
}

async fn own(pod: &Pod, calls: &NodeCalls, volume: &Resolved, target: PathBuf) -> Result<(), KubeletError> {
    let Some(group) = group(pod).and_then(|g| u32::try_from(g).ok()) else { return Ok(()) };
    let policy = &volume.fs_group_policy;
    if calls.capabilities().mount_group
        || !fsgroup::applies(policy, &volume.fs_type, &volume.access_modes, volume.read_only)
    {
        return Ok(());
    }
    let context = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let lazily = context.and_then(|c| c.fs_group_change_policy.as_deref()) == Some("OnRootMismatch");
    let walk = tokio::task::spawn_blocking(move || fsgroup::apply(&target, group, lazily));
    walk.await.unwrap_or_else(|e| Err(KubeletError::Invalid(format!("changing ownership: {e}"))))
}

/// Upstream's link from the Pod's folder to the device.
fn link(root: &Path, key: &MountKey, target: &Path) -> Result<(), KubeletError> {
    let link = paths::device_link(root, &key.uid, &key.spec);
    if let Some(parent) = link.parent() {
        make_dir(parent)?;
    }
    absent_is_fine("remove", &link, fs::remove_file(&link))?;
    std::os::unix::fs::symlink(target, &link).map_err(KubeletError::io("link", link))
}

/// Unpublishes a volume and removes what is left of it: nothing is removed while something is mounted.
///
/// # Errors
/// [`KubeletError`].
pub async fn unpublish(
    root: &Path,
    calls: &NodeCalls,
    key: &MountKey,
    handle: &str,
) -> Result<(), KubeletError> {
    let target = target(root, key);
    let who = For { pod: "", uid: &key.uid, volume: &key.spec, claim: "" };
    calls.unpublish(who, handle, &target).await?;
    failpoint("unpublish: done");
    if is_mount_point(&mounts()?, &target) {
        return Err(KubeletError::Invalid(format!(
            "the driver says that {handle} is unpublished, but {} is still mounted",
            target.display()
        )));
    }
    remove_target(root, key, &target)
}

/// Takes a mount down of which nobody knows the driver or the handle: there is nothing better to do.
///
/// # Errors
/// [`KubeletError`].
pub fn force_down(root: &Path, key: &MountKey) -> Result<(), KubeletError> {
    let target = target(root, key);
    if is_mount_point(&mounts()?, &target) {
        tracing::warn!(target = %target.display(), "nothing says whose mount this is; it is taken off");
        mountpoint::unmount_all(&target, true).map_err(mount_error("unmount"))?;
    }
    remove_target(root, key, &target)
}

fn remove_target(root: &Path, key: &MountKey, target: &Path) -> Result<(), KubeletError> {
    let removed = if target.is_dir() { fs::remove_dir(target) } else { fs::remove_file(target) };
    absent_is_fine("remove", target, removed)?;
    failpoint("unpublish: target");
    if key.block {
        let link = paths::device_link(root, &key.uid, &key.spec);
        return absent_is_fine("remove", &link, fs::remove_file(&link));
    }
    metadata::remove(&data_dir(root, key))
}
