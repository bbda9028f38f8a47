//! What each Pod takes of the node: memory as the runtime counts it, files as they lie on the disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_contracts::cri;
use trine_kernel::filesystem::{Room, taken_below};
use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::config::Config;
use crate::container::sandbox::log_directory;
use crate::pod::spec;
use crate::runtime::labels;
use crate::volumes::paths;
use crate::volumes::source::Source;

/// What a container takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContainerUse {
    /// Memory that cannot be taken back easily, bytes.
    pub memory: u64,
    /// What it wrote into its root.
    pub root: Room,
    /// Its logs, those of its earlier attempts included.
    pub logs: Room,
}

impl ContainerUse {
    /// Its room on the disk.
    #[must_use]
    pub fn disk(&self) -> Room {
        self.root + self.logs
    }
}

/// What a Pod takes.
#[derive(Debug, Clone)]
pub struct PodUse {
    /// The Pod.
    pub pod: Arc<Pod>,
    /// Its containers that run, by name.
    pub containers: BTreeMap<String, ContainerUse>,
    /// Its volumes that lie on the node's own disk or in its memory, by name.
    pub volumes: BTreeMap<String, Room>,
}

impl PodUse {
    /// Its memory, bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.containers.values().map(|c| c.memory).sum()
    }

    /// Its room on the disk.
    #[must_use]
    pub fn disk(&self) -> Room {
        let on_disk =
            self.volumes.iter().filter(|(name, _)| !in_memory(&self.pod, name)).map(|(_, room)| *room);
        self.containers.values().map(ContainerUse::disk).chain(on_disk).sum()
    }
}

/// Whether the emptyDir `name` is on tmpfs.
fn in_memory(pod: &Pod, name: &str) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let volume = volumes.find(|v| v.name == name).and_then(|v| v.empty_dir.as_ref());
    volume.is_some_and(|dir| dir.medium.as_deref() == Some("Memory"))
}

/// Measures `pods`; `stats` are the runtime's. It walks over their files: call it where blocking is right.
#[must_use]
pub fn measure(config: &Config, pods: Vec<Arc<Pod>>, stats: &[cri::ContainerStats]) -> Vec<PodUse> {
    pods.into_iter().map(|pod| one(config, pod, stats)).collect()
}

fn one(config: &Config, pod: Arc<Pod>, stats: &[cri::ContainerStats]) -> PodUse {
    let uid = spec::uid(&pod);
    let logs = log_directory(&config.log_root, &pod);
    let mut containers = BTreeMap::new();
    for stat in stats {
        let Some(attributes) = &stat.attributes else { continue };
        if attributes.labels.get(labels::POD_UID).map(String::as_str) != Some(uid) {
            continue;
        }
        let name = attributes.metadata.as_ref().map(|m| m.name.clone()).unwrap_or_default();
        let (root, logs) = (written(stat.writable_layer.as_ref()), taken_below(&logs.join(&name)));
        let memory = number(stat.memory.as_ref().and_then(|m| m.working_set_bytes.as_ref()));
        containers.insert(name, ContainerUse { memory, root, logs });
    }
    let mut volumes = BTreeMap::new();
    for volume in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
        let source = Source::of(volume);
        if matches!(source, Source::EmptyDir | Source::ConfigMap) {
            let dir = paths::volume(&config.root, uid, source.plugin(), &volume.name);
            volumes.insert(volume.name.clone(), taken_below(&dir));
        }
    }
    PodUse { pod, containers, volumes }
}

fn number(value: Option<&cri::UInt64Value>) -> u64 {
    value.map(|v| v.value).unwrap_or_default()
}

fn written(layer: Option<&cri::FilesystemUsage>) -> Room {
    let Some(layer) = layer else { return Room::default() };
    Room { bytes: number(layer.used_bytes.as_ref()), inodes: number(layer.inodes_used.as_ref()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_takes_what_its_containers_logs_and_volumes_take() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new("n", "10.0.0.1".parse().unwrap(), dir.path().into(), "/s".into());
        config.log_root = dir.path().join("logs");
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {
            "containers": [{"name": "c"}],
            "volumes": [{"name": "d", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}},
                {"name": "h", "hostPath": {"path": "/"}}]}}),
        )
        .unwrap();
        let write = |path: &str, bytes: usize| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![1; bytes]).unwrap();
        };
        write("logs/ns_p_u/c/0.log", 4096);
        write("pods/u/volumes/kubernetes.io~empty-dir/d/sub/file", 8192);
        write("pods/u/volumes/kubernetes.io~empty-dir/m/file", 4096);
        let value = |value| Some(cri::UInt64Value { value });
        let stat = |uid: &str| cri::ContainerStats {
            attributes: Some(cri::ContainerAttributes {
                metadata: Some(cri::ContainerMetadata { name: "c".into(), attempt: 0 }),
                labels: [(labels::POD_UID.to_owned(), uid.to_owned())].into(),
                ..Default::default()
            }),
            memory: Some(cri::MemoryUsage { working_set_bytes: value(7), ..Default::default() }),
            writable_layer: Some(cri::FilesystemUsage {
                used_bytes: value(100),
                inodes_used: value(2),
                ..Default::default()
            }),
            ..Default::default()
        };
        let all = measure(&config, vec![Arc::new(pod)], &[stat("u"), stat("other")]);
        let [used] = &all[..] else { panic!("{all:?}") };
        assert_eq!(used.memory(), 7);
        assert_eq!(used.containers["c"].root, Room { bytes: 100, inodes: 2 });
        assert_eq!(used.containers["c"].logs, Room { bytes: 4096, inodes: 1 });
        assert_eq!(used.volumes.keys().collect::<Vec<_>>(), ["d", "m"]);
        assert_eq!(used.volumes["d"].inodes, 2);
        assert!(used.volumes["m"].bytes > 0);
        assert_eq!(used.disk(), used.containers["c"].disk() + used.volumes["d"], "memory is no disk");
    }
}
