//! What is mounted into a container: volumes, parts of them, the hosts file, the place for its last words.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use trine_contracts::cri;
use trine_typed::k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use super::{Context, spec};
use crate::container::config::TERMINATION_PATH;
use crate::container::expand::expand;
use crate::container::hosts;
use crate::error::KubeletError;
use crate::volumes::manager::Ready;
use crate::volumes::metadata::make_dir;
use crate::volumes::{paths, subpath};

/// Mounts and devices of a container.
#[derive(Debug, Default)]
pub struct Mounts {
    /// Folders and files.
    pub mounts: Vec<cri::Mount>,
    /// Raw devices.
    pub devices: Vec<cri::Device>,
}

/// What there is to be mounted, by the volumes' names.
#[derive(Debug, Clone, Copy)]
pub struct Volumes<'a> {
    /// Folders and devices of this node.
    pub ready: &'a BTreeMap<String, Ready>,
    /// Images, which the runtime mounts.
    pub images: &'a BTreeMap<String, cri::ImageSpec>,
}

/// Collects them, and makes the files behind them.
///
/// # Errors
/// [`KubeletError`].
pub fn collect(
    ctx: &Context,
    pod: &Pod,
    container: &Container,
    attempt: u32,
    volumes: &Volumes<'_>,
    env: &[(String, String)],
    ips: &[String],
) -> Result<Mounts, KubeletError> {
    let mut all = Mounts::default();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        if let Some(image) = volumes.images.get(&mount.name) {
            all.mounts.push(image_mount(mount, image, env)?);
            continue;
        }
        let ready = volumes.ready.get(&mount.name).ok_or_else(|| {
            KubeletError::Invalid(format!(
                "cannot find volume {:?} to mount into container {:?}",
                mount.name, container.name
            ))
        })?;
        let host_path = part(ctx, pod, container, index, mount, ready, env)?;
        all.mounts.push(cri::Mount {
            container_path: absolute(&mount.mount_path),
            host_path: host_path.to_string_lossy().into_owned(),
            readonly: mount.read_only.unwrap_or_default() || ready.read_only,
            propagation: propagation(mount) as i32,
            ..Default::default()
        });
    }
    for device in container.volume_devices.iter().flatten() {
        let ready =
            volumes.ready.get(&device.name).filter(|r| r.block).ok_or_else(|| {
                KubeletError::Invalid(format!("cannot find block volume {:?}", device.name))
            })?;
        all.devices.push(cri::Device {
            container_path: device.device_path.clone(),
            host_path: ready.host_path.to_string_lossy().into_owned(),
            permissions: if ready.read_only { "r" } else { "mrw" }.to_owned(),
        });
    }
    let own = |path: &str| all.mounts.iter().any(|m| m.container_path == path);
    if !own("/etc/hosts") {
        let host_path = hosts_file(ctx, pod, ips)?;
        all.mounts.push(file_mount("/etc/hosts", &host_path));
    }
    let path =
        container.termination_message_path.as_deref().filter(|p| !p.is_empty()).unwrap_or(TERMINATION_PATH);
    let host_path = termination_file(&ctx.config.root, spec::uid(pod), &container.name, attempt)?;
    all.mounts.push(file_mount(path, &host_path));
    Ok(all)
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn file_mount(container_path: &str, host_path: &Path) -> cri::Mount {
    cri::Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.to_string_lossy().into_owned(),
        ..Default::default()
    }
}

fn propagation(mount: &VolumeMount) -> cri::MountPropagation {
    match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => cri::MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => cri::MountPropagation::PropagationBidirectional,
        _ => cri::MountPropagation::PropagationPrivate,
    }
}

/// The volume, or the part of it that the mount names.
fn part(
    ctx: &Context,
    pod: &Pod,
    container: &Container,
    index: usize,
    mount: &VolumeMount,
    ready: &Ready,
    env: &[(String, String)],
) -> Result<PathBuf, KubeletError> {
    let Some(part) = named_part(mount, env)? else { return Ok(ready.host_path.clone()) };
    let target = paths::subpath(&ctx.config.root, spec::uid(pod), &mount.name, &container.name, index);
    subpath::bind(&ready.host_path, &part, target)
}

/// Which part of the volume the mount names, in upstream's words if it cannot be followed.
fn named_part(mount: &VolumeMount, env: &[(String, String)]) -> Result<Option<String>, KubeletError> {
    let part = match (mount.sub_path.as_deref(), mount.sub_path_expr.as_deref()) {
        (Some(part), _) if !part.is_empty() => part.to_owned(),
        (_, Some(expression)) if !expression.is_empty() => {
            let missing = RefCell::new(Vec::new());
            let part = expand(expression, |name| {
                let found = env.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
                if found.is_none() {
                    missing.borrow_mut().push(name.to_owned());
                }
                found
            });
            if let Some(name) = missing.into_inner().first() {
                return Err(KubeletError::Invalid(format!("missing value for {name:?}")));
            }
            part
        }
        _ => return Ok(None),
    };
    if part.starts_with('/') {
        return Err(KubeletError::Invalid(format!("error SubPath `{part}` must not be an absolute path")));
    }
    if part.split('/').any(|step| step == "..") {
        return Err(KubeletError::Invalid(format!(
            "unable to provision SubPath `{part}`: must not contain '..'"
        )));
    }
    Ok(Some(part).filter(|part| !part.is_empty()))
}

fn image_mount(
    mount: &VolumeMount,
    image: &cri::ImageSpec,
    env: &[(String, String)],
) -> Result<cri::Mount, KubeletError> {
    Ok(cri::Mount {
        container_path: absolute(&mount.mount_path),
        readonly: true,
        image: Some(image.clone()),
        image_sub_path: named_part(mount, env)?.unwrap_or_default(),
        ..Default::default()
    })
}

fn hosts_file(ctx: &Context, pod: &Pod, ips: &[String]) -> Result<PathBuf, KubeletError> {
    let node = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let text = hosts::file(pod, ips, &node, &ctx.config.cluster_domain);
    let dir = paths::pod(&ctx.config.root, spec::uid(pod));
    make_dir(&dir)?;
    let path = dir.join("etc-hosts");
    // Running containers have this very file mounted, so it is written over, never replaced.
    if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
        fs::write(&path, text).map_err(KubeletError::io("write", &path))?;
        set_mode(&path, 0o644)?;
    }
    Ok(path)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), KubeletError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(KubeletError::io("change the mode of", path))
}

/// `pods/<uid>/containers/<name>/<attempt>`, empty and writable for whoever the container runs as.
fn termination_file(root: &Path, uid: &str, name: &str, attempt: u32) -> Result<PathBuf, KubeletError> {
    let dir = paths::pod(root, uid).join("containers").join(name);
    make_dir(&dir)?;
    let path = dir.join(attempt.to_string());
    fs::write(&path, "").map_err(KubeletError::io("create", &path))?;
    set_mode(&path, 0o666)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_image_is_mounted_by_the_runtime_and_only_to_be_read() {
        let mount = VolumeMount {
            name: "v".into(),
            mount_path: "opt/v".into(),
            sub_path_expr: Some("$(DIR)/x".into()),
            ..Default::default()
        };
        let image = cri::ImageSpec { image: "sha256:1".into(), ..Default::default() };
        let got = image_mount(&mount, &image, &[("DIR".to_owned(), "a".to_owned())]).unwrap();
        assert_eq!((got.container_path.as_str(), got.host_path.as_str()), ("/opt/v", ""));
        assert_eq!((got.readonly, got.image_sub_path.as_str()), (true, "a/x"));
        assert_eq!(got.image, Some(image));
    }

    #[test]
    fn a_part_of_a_volume_is_within_it_and_fully_named() {
        let env = [("A".to_owned(), "a".to_owned()), ("EMPTY".to_owned(), String::new())];
        let rows = [
            (json!({}), Ok(None)),
            (json!({"subPath": "x/y"}), Ok(Some("x/y"))),
            (json!({"subPathExpr": "$(A)/b"}), Ok(Some("a/b"))),
            (json!({"subPathExpr": "$(EMPTY)"}), Ok(None)),
            (json!({"subPathExpr": "$(EMPTY)/b"}), Err("error SubPath `/b` must not be an absolute path")),
            (
                json!({"subPathExpr": "$(A)/../b"}),
                Err("unable to provision SubPath `a/../b`: must not contain '..'"),
            ),
            (json!({"subPathExpr": "$(GONE)/b"}), Err("missing value for \"GONE\"")),
        ];
        for (mut mount, expected) in rows {
            (mount["name"], mount["mountPath"]) = (json!("v"), json!("/v"));
            let got = named_part(&serde_json::from_value(mount.clone()).unwrap(), &env);
            let got = got.map_err(|e| e.to_string());
            let expected = expected.map(|o: Option<&str>| o.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(got, expected, "{mount}");
        }
    }
}
