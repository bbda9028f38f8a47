//! Pods with users of their own (`hostUsers: false`): which of the host's ids each has. It is written in `pods/<uid>/userns` before
//! anything uses it, in upstream's form, and goes with the Pod's folder: the files are all that is known.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use trine_contracts::cri;
use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::error::KubeletError;
use crate::volumes::metadata::write_whole;
use crate::volumes::paths;

/// Ids of a Pod (upstream's length, which programs in containers expect to have).
const LENGTH: u32 = 65536;
/// The host's own first range is nobody's else.
const FIRST: u32 = 1;
/// The last one that ends before the last id, which is none.
const LAST: u32 = u32::MAX / LENGTH - 1;
const FILE: &str = "userns";

/// Who gives Pods their users.
#[derive(Debug)]
pub struct Users {
    root: PathBuf,
    /// One choice at a time.
    choosing: Mutex<()>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    uid_mappings: Vec<Range>,
    gid_mappings: Vec<Range>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Range {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// True if the Pod's users are not the host's.
#[must_use]
pub fn own(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.host_users == Some(false))
}

impl Users {
    /// Of the kubelet with this folder.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), choosing: Mutex::new(()) }
    }

    /// Gives a sandbox's configuration the Pod's own users, if it has them. They are chosen when this is asked first.
    ///
    /// # Errors
    /// [`KubeletError::Io`] if they cannot be read or written down, [`KubeletError::Invalid`] if there are none left.
    pub fn give(&self, pod: &Pod, config: &mut cri::PodSandboxConfig) -> Result<(), KubeletError> {
        if !own(pod) {
            return Ok(());
        }
        let range = self.range_of(pod.metadata.uid.as_deref().unwrap_or_default())?;
        let linux = config.linux.get_or_insert_default();
        let options =
            linux.security_context.get_or_insert_default().namespace_options.get_or_insert_default();
        let ids = vec![cri::IdMapping {
            host_id: range.host_id,
            container_id: range.container_id,
            length: range.length,
        }];
        let mode = cri::NamespaceMode::Pod as i32;
        options.userns_options = Some(cri::UserNamespace { mode, uids: ids.clone(), gids: ids });
        Ok(())
    }

    fn range_of(&self, uid: &str) -> Result<Range, KubeletError> {
        let _choosing = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = paths::pod(&self.root, uid);
        if let Some(range) = read(&dir) {
            return Ok(range);
        }
        let pods = dir.parent().unwrap_or(&self.root);
        let others = std::fs::read_dir(pods).into_iter().flatten().flatten();
        let taken =
            others.filter_map(|other| read(&other.path())).map(|range| range.host_id / LENGTH).collect();
        let number = free(&taken).ok_or_else(|| {
            KubeletError::Invalid("no ids of the host are left for a Pod's own users".to_owned())
        })?;
        let range = Range { host_id: number * LENGTH, container_id: 0, length: LENGTH };
        let written = Written { uid_mappings: vec![range], gid_mappings: vec![range] };
        let path = dir.join(FILE);
        let bytes = serde_json::to_vec(&written).map_err(|e| KubeletError::io("write", &path)(e.into()))?;
        std::fs::create_dir_all(&dir).map_err(KubeletError::io("create folder", &dir))?;
        write_whole(&path, &bytes)?;
        Ok(range)
    }
}

/// Gives a container's configuration what its sandbox has: the namespace, and the owners of files in its mounts.
pub fn follow(sandbox: &cri::PodSandboxConfig, config: &mut cri::ContainerConfig) {
    let options = sandbox.linux.as_ref().and_then(|l| l.security_context.as_ref());
    let Some(users) =
        options.and_then(|s| s.namespace_options.as_ref()).and_then(|o| o.userns_options.clone())
    else {
        return;
    };
    for mount in &mut config.mounts {
        mount.uid_mappings.clone_from(&users.uids);
        mount.gid_mappings.clone_from(&users.gids);
    }
    let security = config.linux.get_or_insert_default().security_context.get_or_insert_default();
    security.namespace_options.get_or_insert_default().userns_options = Some(users);
}

/// Whether a runtime can give Pods users of their own: one that cannot does not say so when it is asked to.
#[must_use]
pub fn supported(status: &cri::StatusResponse, handler: &str) -> bool {
    let handlers = status.runtime_handlers.iter().filter(|known| known.name == handler);
    handlers.filter_map(|known| known.features.as_ref()).any(|features| features.user_namespaces)
}

/// What is written down for a Pod; a file that makes no sense is none.
fn read(dir: &Path) -> Option<Range> {
    let written: Written = serde_json::from_slice(&std::fs::read(dir.join(FILE)).ok()?).ok()?;
    let ([users], [groups]) = (written.uid_mappings.as_slice(), written.gid_mappings.as_slice()) else {
        return None;
    };
    let whole = users.container_id == 0 && users.length == LENGTH && users.host_id % LENGTH == 0;
    (users == groups && whole).then_some(*users)
}

/// The first range that no Pod has.
fn free(taken: &BTreeSet<u32>) -> Option<u32> {
    (FIRST..=LAST).find(|number| !taken.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, host_users: Option<bool>) -> Pod {
        let spec = serde_json::json!({"containers": [], "hostUsers": host_users});
        serde_json::from_value(serde_json::json!({"metadata": {"uid": uid}, "spec": spec})).unwrap()
    }

    fn first(root: &Path, pod: &Pod) -> Option<u32> {
        let mut config = cri::PodSandboxConfig::default();
        Users::new(root).give(pod, &mut config).unwrap();
        let options = config.linux?.security_context?.namespace_options?.userns_options?;
        assert_eq!((options.uids.len(), options.uids[0].length), (1, LENGTH));
        assert_eq!(options.uids, options.gids);
        Some(options.uids[0].host_id)
    }

    #[test]
    fn each_pod_has_ids_of_its_own_for_as_long_as_its_folder_is_there() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (pod("a", Some(false)), pod("b", Some(false)));
        assert_eq!(first(root.path(), &pod("c", None)), None);
        assert_eq!(first(root.path(), &pod("d", Some(true))), None);
        assert_eq!(first(root.path(), &a), Some(LENGTH));
        assert_eq!(first(root.path(), &b), Some(2 * LENGTH));
        assert_eq!(first(root.path(), &a), Some(LENGTH), "as it was written");
        let text = std::fs::read_to_string(root.path().join("pods/b/userns")).unwrap();
        let range = r#"[{"hostId":131072,"containerId":0,"length":65536}]"#;
        assert_eq!(text, format!(r#"{{"uidMappings":{range},"gidMappings":{range}}}"#));
        std::fs::remove_dir_all(root.path().join("pods/a")).unwrap();
        assert_eq!(first(root.path(), &pod("e", Some(false))), Some(LENGTH));
    }

    #[test]
    fn the_last_range_ends_before_the_last_id() {
        let all: BTreeSet<u32> = (FIRST..LAST).collect();
        assert_eq!(free(&all), Some(LAST));
        assert!(LAST.checked_mul(LENGTH).and_then(|first| first.checked_add(LENGTH)).is_some());
        assert_eq!(free(&(FIRST..=LAST).collect()), None);
    }

    #[test]
    fn a_container_has_what_its_sandbox_has() {
        let root = tempfile::tempdir().unwrap();
        let mut sandbox = cri::PodSandboxConfig::default();
        Users::new(root.path()).give(&pod("a", Some(false)), &mut sandbox).unwrap();
        let mut config = cri::ContainerConfig { mounts: vec![cri::Mount::default()], ..Default::default() };
        follow(&sandbox, &mut config);
        assert_eq!(config.mounts[0].uid_mappings[0].host_id, LENGTH);
        assert!(
            config
                .linux
                .unwrap()
                .security_context
                .unwrap()
                .namespace_options
                .unwrap()
                .userns_options
                .is_some()
        );
        let mut plain = cri::ContainerConfig::default();
        follow(&cri::PodSandboxConfig::default(), &mut plain);
        assert_eq!(plain, cri::ContainerConfig::default());
    }
}
