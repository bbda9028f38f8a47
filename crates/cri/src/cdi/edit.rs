//! What names of devices mean for a container.

use std::collections::BTreeSet;
use std::path::PathBuf;

use trine_contracts::cri::{ContainerConfig, Device, KeyValue, Mount, MountPropagation};

use super::registry::{Edits, Registry};

/// Gives a container's configuration what its devices need. Nothing is read if it names none.
///
/// # Errors
/// A device is not known, or needs what the runtime does not do.
pub(crate) fn inject(folders: &[PathBuf], config: &mut ContainerConfig) -> Result<(), String> {
    if config.cdi_devices.is_empty() {
        return Ok(());
    }
    let registry = Registry::read(folders);
    apply(&registry, config)
}

fn apply(registry: &Registry, config: &mut ContainerConfig) -> Result<(), String> {
    let names: Vec<String> = config.cdi_devices.iter().map(|device| device.name.clone()).collect();
    let unknown: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| registry.device(name).is_none()).collect();
    if !unknown.is_empty() {
        let mut why = format!("CDI device injection failed: unresolvable CDI devices {}", unknown.join(", "));
        if !registry.wrong.is_empty() {
            why += &format!(" ({})", registry.wrong.join("; "));
        }
        return Err(why);
    }
    let (mut done, mut files) = (BTreeSet::new(), BTreeSet::new());
    for name in &names {
        let Some((file, of_all, own)) = registry.device(name) else { continue };
        if !done.insert(name) {
            continue;
        }
        if files.insert(file) {
            edit(name, of_all, config)?;
        }
        edit(name, own, config)?;
    }
    Ok(())
}

fn edit(name: &str, edits: &Edits, config: &mut ContainerConfig) -> Result<(), String> {
    let not_done = [
        ("hooks", edits.hooks.is_empty()),
        ("netDevices", edits.net_devices.is_empty()),
        ("intelRdt", edits.intel_rdt.is_none()),
    ];
    if let Some((what, _)) = not_done.iter().find(|(_, none)| !none) {
        let of = edits.hooks.first().map(|hook| format!(" ({})", hook.hook_name)).unwrap_or_default();
        return Err(format!("CDI device {name} needs {what}{of}, which this runtime does not run"));
    }
    for pair in &edits.env {
        let (key, value) =
            pair.split_once('=').ok_or_else(|| format!("CDI device {name}: {pair:?} is no variable"))?;
        config.envs.push(KeyValue { key: key.to_owned(), value: value.as_bytes().to_vec() });
    }
    for node in &edits.device_nodes {
        let host = if node.host_path.is_empty() { &node.path } else { &node.host_path };
        let permissions = if node.permissions.is_empty() { "rw" } else { &node.permissions };
        config.devices.push(Device {
            container_path: node.path.clone(),
            host_path: host.clone(),
            permissions: permissions.to_owned(),
        });
    }
    for mount in &edits.mounts {
        if !mount.kind.is_empty() && mount.kind != "bind" {
            return Err(format!("CDI device {name}: mounts of type {} are not made", mount.kind));
        }
        let has = |option: &str| mount.options.iter().any(|other| other == option);
        let propagation = match () {
            () if has("rshared") || has("shared") => MountPropagation::PropagationBidirectional,
            () if has("rslave") || has("slave") => MountPropagation::PropagationHostToContainer,
            () => MountPropagation::PropagationPrivate,
        };
        config.mounts.push(Mount {
            container_path: mount.container_path.clone(),
            host_path: mount.host_path.clone(),
            readonly: has("ro"),
            propagation: propagation as i32,
            ..Mount::default()
        });
    }
    if !edits.additional_gids.is_empty() {
        let linux = config.linux.get_or_insert_default();
        let groups = &mut linux.security_context.get_or_insert_default().supplemental_groups;
        groups.extend(edits.additional_gids.iter().map(|gid| i64::from(*gid)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use trine_contracts::cri::CdiDevice;

    use super::*;

    const GPU: &str = r#"{"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "containerEdits": {"env": ["ALL=1"]},
        "devices": [
            {"name": "0", "containerEdits": {"env": ["GPU=0"], "deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/null", "permissions": "rwm"}],
                "mounts": [{"hostPath": "/lib/gpu", "containerPath": "/lib/gpu", "options": ["ro", "rbind"]}], "additionalGids": [44]}},
            {"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}},
            {"name": "hooked", "containerEdits": {"hooks": [{"hookName": "createContainer", "path": "/bin/x"}]}}]}"#;
    const NIC: &str = "cdiVersion: 0.3.0\nkind: vendor.com/nic\ndevices:\n- name: eth\n  containerEdits:\n    env:\n    - NIC=eth=1\n";

    fn container(names: &[&str]) -> ContainerConfig {
        let devices = names.iter().map(|name| CdiDevice { name: (*name).to_owned() });
        ContainerConfig { cdi_devices: devices.collect(), ..ContainerConfig::default() }
    }

    fn env(config: &ContainerConfig) -> Vec<String> {
        let pair = |pair: &KeyValue| format!("{}={}", pair.key, String::from_utf8_lossy(&pair.value));
        config.envs.iter().map(pair).collect()
    }

    #[test]
    fn a_container_gets_what_its_devices_need_and_what_all_of_their_file_do_once() {
        let registry = Registry::of(&[&[GPU, NIC]]);
        let mut config =
            container(&["vendor.com/gpu=0", "vendor.com/gpu=1", "vendor.com/gpu=0", "vendor.com/nic=eth"]);
        apply(&registry, &mut config).unwrap();
        assert_eq!(env(&config), ["ALL=1", "GPU=0", "NIC=eth=1"]);
        let devices: Vec<_> = config
            .devices
            .iter()
            .map(|d| (d.container_path.as_str(), d.host_path.as_str(), d.permissions.as_str()))
            .collect();
        assert_eq!(devices, [("/dev/gpu0", "/dev/null", "rwm"), ("/dev/null", "/dev/null", "rw")]);
        assert_eq!((config.mounts.len(), config.mounts[0].readonly), (1, true));
        assert_eq!(config.linux.unwrap().security_context.unwrap().supplemental_groups, [44]);
    }

    #[test]
    fn a_device_that_is_not_known_or_that_two_files_name_is_refused() {
        let other = GPU.replace("GPU=0", "GPU=other");
        for (name, registry, device, expected) in [
            (
                "unknown",
                Registry::of(&[&[GPU]]),
                "vendor.com/gpu=7",
                "unresolvable CDI devices vendor.com/gpu=7",
            ),
            ("no name", Registry::of(&[&[GPU]]), "gpu", "unresolvable CDI devices gpu"),
            ("twice", Registry::of(&[&[GPU, &other]]), "vendor.com/gpu=0", "unresolvable CDI devices"),
            ("hooks", Registry::of(&[&[GPU]]), "vendor.com/gpu=hooked", "needs hooks (createContainer)"),
        ] {
            let why = apply(&registry, &mut container(&[device])).unwrap_err();
            assert!(why.contains(expected), "{name}: {why}");
        }
        // A later folder counts more than an earlier one.
        let registry = Registry::of(&[&[GPU], &[&other]]);
        let mut config = container(&["vendor.com/gpu=0"]);
        apply(&registry, &mut config).unwrap();
        assert_eq!(env(&config), ["ALL=1", "GPU=other"]);
    }

    #[test]
    fn files_are_read_in_both_forms_and_a_broken_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("a.json", GPU), ("b.yaml", NIC), ("c.json", "{"), ("d.txt", "no")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let folders = [folder.path().join("none"), folder.path().to_owned()];
        let mut config = container(&["vendor.com/gpu=1", "vendor.com/nic=eth"]);
        inject(&folders, &mut config).unwrap();
        assert_eq!(env(&config), ["ALL=1", "NIC=eth=1"]);
        let why = inject(&folders, &mut container(&["vendor.com/gpu=9"])).unwrap_err();
        assert!(why.contains("c.json"), "{why}");
    }
}
