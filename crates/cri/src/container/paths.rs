//! What a container's making reads from the host and the image's root.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use trine_contracts::cri::{ContainerConfig, MountPropagation};
use trine_kernel::container::oci::Device;
use trine_kernel::mountpoint::{Propagation, propagation};

use crate::error::chain;

/// Folders of `/dev` that are mounts of their own.
const NOT_DEVICES: [&str; 4] = ["pts", "shm", "mqueue", "fd"];

/// A list of the image (`etc/passwd`), empty if it has none. A link in it that leads outside is not followed.
pub(super) fn list(rootfs: &Path, name: &str) -> String {
    let Ok(path) = rootfs.join(name).canonicalize() else { return String::new() };
    let Ok(root) = rootfs.canonicalize() else { return String::new() };
    if path.starts_with(root) { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() }
}

/// The devices that `config` asks for, or all of the host if it is privileged.
pub(super) fn devices(config: &ContainerConfig) -> Result<Vec<Device>, String> {
    let security = config.linux.as_ref().and_then(|l| l.security_context.as_ref());
    if security.is_some_and(|s| s.privileged) {
        let mut all = Vec::new();
        host_devices(Path::new("/dev"), &mut all);
        return Ok(all);
    }
    let mut all = Vec::new();
    for wanted in &config.devices {
        let found = device(Path::new(&wanted.host_path))
            .ok_or_else(|| format!("{} is not a device of this machine", wanted.host_path))?;
        all.push(Device { path: PathBuf::from(&wanted.container_path), ..found });
    }
    Ok(all)
}

fn host_devices(folder: &Path, all: &mut Vec<Device>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && NOT_DEVICES.iter().all(|n| name != *n) => host_devices(&path, all),
            Ok(kind)
                if (kind.is_char_device() || kind.is_block_device())
                    && name != "console"
                    && name != "ptmx" =>
            {
                all.extend(device(&path));
            }
            _ => {}
        }
    }
}

fn device(path: &Path) -> Option<Device> {
    let meta = std::fs::metadata(path).ok()?;
    let kind = if meta.file_type().is_block_device() {
        "b"
    } else if meta.file_type().is_char_device() {
        "c"
    } else {
        return None;
    };
    Some(Device {
        kind: kind.to_owned(),
        path: path.to_owned(),
        major: rustix::fs::major(meta.rdev()),
        minor: rustix::fs::minor(meta.rdev()),
        file_mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
    })
}

/// Makes folders of the host that are to be mounted and are not there.
pub(super) fn make_sources(config: &ContainerConfig) -> Result<(), String> {
    for mount in config.mounts.iter().filter(|m| !m.host_path.is_empty()) {
        let path = Path::new(&mount.host_path);
        if !path.exists() {
            std::fs::create_dir_all(path).map_err(|e| format!("make the folder {}: {e}", path.display()))?;
        }
    }
    Ok(())
}

/// Checks that mounts can come and go as the container is promised: below a private mount of the host they never would, and nobody
/// would say so.
///
/// # Errors
/// With what is wrong, in containerd's words.
pub(super) fn check_propagation(config: &ContainerConfig) -> Result<(), String> {
    for mount in &config.mounts {
        let wanted = mount.propagation();
        if wanted == MountPropagation::PropagationPrivate {
            continue;
        }
        let path = Path::new(&mount.host_path);
        let found = propagation(path).map_err(|error| chain(&error))?;
        if let Some(lacking) = lacking(wanted, &found) {
            let target = found.target.display();
            return Err(format!(
                "path {:?} is mounted on \"{target}\" but it is not a {lacking} mount",
                mount.host_path
            ));
        }
    }
    Ok(())
}

/// What a mount of the host would have to be.
fn lacking(wanted: MountPropagation, found: &Propagation) -> Option<&'static str> {
    match wanted {
        MountPropagation::PropagationBidirectional if !found.shared => Some("shared"),
        MountPropagation::PropagationHostToContainer if !found.shared && !found.slave => {
            Some("shared or slave")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_come_and_go_only_where_the_host_lets_them() {
        use MountPropagation::{PropagationBidirectional, PropagationHostToContainer};
        let rows = [
            (PropagationBidirectional, false, false, Some("shared")),
            (PropagationBidirectional, false, true, Some("shared")),
            (PropagationBidirectional, true, false, None),
            (PropagationHostToContainer, false, false, Some("shared or slave")),
            (PropagationHostToContainer, false, true, None),
            (PropagationHostToContainer, true, false, None),
        ];
        for (wanted, shared, slave, expected) in rows {
            let found = Propagation { target: "/".into(), shared, slave };
            assert_eq!(lacking(wanted, &found), expected, "{wanted:?} {found:?}");
        }
    }
}
