//! What was attached, in libcni's format, so that DEL works from what ADD was given. A file is there from before ADD
//! (without a result) until after DEL. It is replaced by a rename, not synced: what it describes dies with the boot.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trine_kernel::testing::failpoint;

use crate::spec::{AttachmentId, CniError, Code, NetworkList};

/// The mark of the format.
const KIND: &str = "cniCacheV1";

/// One attachment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    kind: String,
    /// The container.
    pub container_id: String,
    config: String,
    /// The link's name inside.
    pub if_name: String,
    /// The network.
    pub network_name: String,
    /// The namespace.
    #[serde(default)]
    pub netns: String,
    /// The pairs of `CNI_ARGS`.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub cni_args: Vec<(String, String)>,
    /// The capabilities that were on offer.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Map::is_empty")]
    pub capability_args: Map<String, Value>,
    /// The final result of ADD; none while it runs, or if it never ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Entry {
    /// A record of the intent to attach.
    pub fn intent(
        id: &AttachmentId,
        netns: &Path,
        network: &NetworkList,
        cni_args: &[(String, String)],
        capability_args: &Map<String, Value>,
    ) -> Self {
        Self {
            kind: KIND.to_owned(),
            container_id: id.container_id.clone(),
            config: STANDARD.encode(network.to_json().to_string()),
            if_name: id.ifname.clone(),
            network_name: network.name.clone(),
            netns: netns.display().to_string(),
            cni_args: cni_args.to_vec(),
            capability_args: capability_args.clone(),
            result: None,
        }
    }

    /// Which attachment it is about.
    pub fn id(&self) -> AttachmentId {
        AttachmentId { container_id: self.container_id.clone(), ifname: self.if_name.clone() }
    }

    /// The network as it was at ADD.
    ///
    /// # Errors
    /// [`CniError`] if the configuration in it is damaged.
    pub fn network(&self) -> Result<NetworkList, CniError> {
        let damaged = |e| CniError::new(Code::Decoding, "the cached configuration is damaged").because(e);
        NetworkList::parse(&STANDARD.decode(&self.config).map_err(damaged)?)
    }
}

/// Where an entry is written before it takes its place: one name for each, so that it can be found.
fn draft(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}.draft", path.file_name().unwrap_or_default().to_string_lossy()))
}

/// The folder of entries.
#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
}

fn failed(call: &str, path: &Path, source: io::Error) -> CniError {
    CniError::new(Code::Io, format!("cannot {call} {}", path.display())).because(source)
}

impl Cache {
    /// The cache below `cache_dir` (libcni: `/var/lib/cni`).
    pub fn new(cache_dir: &Path) -> Self {
        Self { dir: cache_dir.join("results") }
    }

    fn path(&self, network: &str, id: &AttachmentId) -> PathBuf {
        self.dir.join(format!("{network}-{}-{}", id.container_id, id.ifname))
    }

    /// Writes or replaces an entry.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn put(&self, entry: &Entry) -> Result<(), CniError> {
        let path = self.path(&entry.network_name, &entry.id());
        let fresh = draft(&path);
        let text = serde_json::to_vec(entry)
            .map_err(|e| CniError::new(Code::Internal, "a cache entry cannot be encoded").because(e))?;
        let open =
            || std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&fresh);
        let file = open().or_else(|e| {
            if e.kind() != io::ErrorKind::NotFound {
                return Err(e);
            }
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
            open()
        });
        let write = file.and_then(|mut file| file.write_all(&text)).and_then(|()| {
            failpoint("CNI cache: drafted");
            std::fs::rename(&fresh, &path)
        });
        write.map_err(|e| {
            let _ = std::fs::remove_file(&fresh);
            failed("write", &path, e)
        })
    }

    /// Removes an entry, and what is left of one if whoever wrote it was killed; absent is success.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn remove(&self, network: &str, id: &AttachmentId) -> Result<(), CniError> {
        let path = self.path(network, id);
        let _ = std::fs::remove_file(draft(&path));
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path, e)),
            _ => Ok(()),
        }
    }

    /// The entry of `id` in any network: by its name if `likely` has it, else by reading all.
    pub fn find(&self, likely: Option<&str>, id: &AttachmentId) -> Option<Entry> {
        let direct = likely.and_then(|network| self.read(&self.path(network, id)));
        direct.filter(|entry| entry.id() == *id).or_else(|| {
            // Names may hold dashes, so the file's name only narrows the search.
            let suffix = format!("-{}-{}", id.container_id, id.ifname);
            self.entries(|name| name.ends_with(&suffix)).into_iter().find(|entry| entry.id() == *id)
        })
    }

    /// All entries that can be read.
    pub fn all(&self) -> Vec<Entry> {
        self.entries(|_| true)
    }

    fn entries(&self, wanted: impl Fn(&str) -> bool) -> Vec<Entry> {
        let Ok(dir) = std::fs::read_dir(&self.dir) else { return Vec::new() };
        let names = dir.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.') && wanted(name)).collect();
        names.sort();
        names.iter().filter_map(|name| self.read(&self.dir.join(name))).collect()
    }

    /// A damaged entry is dropped: DEL then works from the configuration of now.
    fn read(&self, path: &Path) -> Option<Entry> {
        let text = std::fs::read(path).ok()?;
        match serde_json::from_slice::<Entry>(&text) {
            Ok(entry) if entry.kind == KIND => Some(entry),
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "damaged cache entry left out");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn network(name: &str) -> NetworkList {
        let text = json!({"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "a"}]}).to_string();
        NetworkList::parse(text.as_bytes()).unwrap()
    }

    fn id(container: &str) -> AttachmentId {
        AttachmentId { container_id: container.to_owned(), ifname: "eth0".to_owned() }
    }

    #[test]
    fn entries_are_written_replaced_found_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        let args = vec![("K".to_owned(), "V".to_owned())];
        let mut entry = Entry::intent(&id("c"), Path::new("/n"), &network("a-b"), &args, &Map::new());
        cache.put(&entry).unwrap();
        entry.result = Some(json!({"ips": []}));
        cache.put(&entry).unwrap();
        assert_eq!(cache.find(Some("a-b"), &id("c")).as_ref(), Some(&entry));
        assert_eq!(cache.find(Some("other"), &id("c")).as_ref(), Some(&entry));
        assert_eq!(cache.find(None, &id("b-c")), None, "names are not told apart by their dashes");
        assert_eq!(entry.network().unwrap().name, "a-b");
        assert_eq!(cache.all(), vec![entry]);
        cache.remove("a-b", &id("c")).unwrap();
        cache.remove("a-b", &id("c")).unwrap();
        assert_eq!(cache.all(), Vec::new());
    }

    #[test]
    fn an_entry_of_libcni_is_read_and_a_damaged_one_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path());
        let config = STANDARD.encode(network("n").to_json().to_string());
        let text = json!({
            "kind": "cniCacheV1", "containerId": "c", "config": config, "ifName": "eth0", "networkName": "n",
            "netns": "/n", "cniArgs": [["IgnoreUnknown", "1"]], "capabilityArgs": null,
            "result": {"cniVersion": "1.0.0", "dns": {}},
        });
        std::fs::create_dir_all(dir.path().join("results")).unwrap();
        std::fs::write(dir.path().join("results/n-c-eth0"), text.to_string()).unwrap();
        std::fs::write(dir.path().join("results/n-d-eth0"), "{\"kind\":\"cni").unwrap();
        let all = cache.all();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].cni_args, vec![("IgnoreUnknown".to_owned(), "1".to_owned())]);
        assert_eq!(all[0].network().unwrap().name, "n");
    }
}
