//! The folder of configurations. The first valid file in lexicographic order is the network; a broken one is reported
//! and skipped, so that it never takes the node down.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::spec::{CniError, Code, NetworkList, PluginConfig};

/// A file that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenFile {
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub reason: String,
}

/// What the folder holds.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The network, if any file is valid.
    pub network: Option<Arc<NetworkList>>,
    /// The file that it is from.
    pub file: Option<PathBuf>,
    /// The files before it that could not be used; all of them if none could.
    pub broken: Vec<BrokenFile>,
}

impl Loaded {
    /// The network.
    ///
    /// # Errors
    /// [`Code::TryAgainLater`] with the reasons if there is none.
    pub fn need_network(&self, dir: &Path) -> Result<Arc<NetworkList>, CniError> {
        self.network.clone().ok_or_else(|| {
            let reasons: Vec<_> =
                self.broken.iter().map(|b| format!("{}: {}", b.file.display(), b.reason)).collect();
            let what = if reasons.is_empty() { "no" } else { "no valid" };
            CniError::new(Code::TryAgainLater, format!("{what} network configuration in {}", dir.display()))
                .details(reasons.join("; "))
        })
    }
}

/// Name, time and size of each file: a change of any means reading again.
type Stamp = Vec<(PathBuf, Option<SystemTime>, u64)>;

/// The folder, with what was read of it last.
#[derive(Debug)]
pub struct ConfDir {
    dir: PathBuf,
    last: Mutex<Option<(Stamp, Arc<Loaded>)>>,
}

impl ConfDir {
    /// The folder `dir`, which may not exist yet.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, last: Mutex::new(None) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The network `name`, wherever it sorts: of a list first, then of a file with a single plugin.
    ///
    /// # Errors
    /// [`Code::TryAgainLater`] if no valid file has it.
    pub fn named(&self, name: &str) -> Result<NetworkList, CniError> {
        let files = stamp(&self.dir, &["conflist"]).into_iter().chain(stamp(&self.dir, &["conf", "json"]));
        let mut networks = files.filter_map(|(file, _, _)| read(&self.dir, &file).ok());
        networks.find(|network| network.name == name).ok_or_else(|| {
            let msg = format!("no network available in the name {name} in {}", self.dir.display());
            CniError::new(Code::TryAgainLater, msg)
        })
    }

    /// What the folder holds now. Files are read only if one changed.
    pub fn load(&self) -> Arc<Loaded> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let own = stamp(&self.dir, &["conf", "conflist", "json"]);
        if let Some((stamp, loaded)) = &*last
            && *stamp == with_folder(own.clone(), &self.dir, loaded)
        {
            return Arc::clone(loaded);
        }
        let files = own.iter().map(|(path, _, _)| path.as_path());
        let loaded = Arc::new(load(&self.dir, files));
        for broken in &loaded.broken {
            tracing::warn!(file = %broken.file.display(), reason = broken.reason, "network configuration skipped");
        }
        *last = Some((with_folder(own, &self.dir, &loaded), Arc::clone(&loaded)));
        loaded
    }
}

/// The stamp of the folder of a network that takes further plugins from one.
fn with_folder(mut own: Stamp, dir: &Path, loaded: &Loaded) -> Stamp {
    if let Some(network) = loaded.network.as_ref().filter(|network| !network.only_inlined) {
        own.extend(stamp(&dir.join(&network.name), &["conf"]));
    }
    own
}

/// The files of `dir` with one of `extensions`, in lexicographic order. No folder is no files.
fn stamp(dir: &Path, extensions: &[&str]) -> Stamp {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut files: Stamp = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)))
        .filter_map(|path| {
            // Through links, as a mounted ConfigMap has them; a dangling link is no file.
            let meta = std::fs::metadata(&path).ok()?;
            meta.is_file().then(|| (path, meta.modified().ok(), meta.len()))
        })
        .collect();
    files.sort();
    files
}

fn load<'a>(dir: &Path, files: impl Iterator<Item = &'a Path>) -> Loaded {
    let mut loaded = Loaded::default();
    for file in files {
        match read(dir, file) {
            Ok(network) => {
                loaded.network = Some(Arc::new(network));
                loaded.file = Some(file.to_owned());
                break;
            }
            Err(reason) => loaded.broken.push(BrokenFile { file: file.to_owned(), reason }),
        }
    }
    loaded
}

fn read(dir: &Path, file: &Path) -> Result<NetworkList, String> {
    let text = std::fs::read(file).map_err(|e| e.to_string())?;
    let mut network = NetworkList::parse(&text).map_err(|e| reason(&e))?;
    if !network.only_inlined {
        network.append(folder_plugins(&dir.join(&network.name))?);
    }
    if network.plugins.is_empty() {
        return Err("the network has no plugins".to_owned());
    }
    Ok(network)
}

fn folder_plugins(dir: &Path) -> Result<Vec<PluginConfig>, String> {
    let plugin = |file: &Path| -> Result<PluginConfig, String> {
        let at = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
        let text = std::fs::read(file).map_err(|e: io::Error| at(&e))?;
        PluginConfig::parse(&text).map_err(|e| at(&reason(&e)))
    };
    stamp(dir, &["conf"]).iter().map(|(file, _, _)| plugin(file)).collect()
}

/// The words of an error without its place, which is a file here.
fn reason(error: &CniError) -> String {
    let mut text = error.msg.clone();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(dir: &tempfile::TempDir) -> ConfDir {
        ConfDir::new(dir.path().join("net.d"))
    }

    fn write(conf: &ConfDir, name: &str, text: &str) {
        let path = conf.dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn list(name: &str) -> String {
        format!(r#"{{"cniVersion":"1.1.0","name":"{name}","plugins":[{{"type":"a"}}]}}"#)
    }

    fn name(conf: &ConfDir) -> Option<String> {
        conf.load().network.as_ref().map(|network| network.name.clone())
    }

    #[test]
    fn the_first_valid_file_wins_and_broken_ones_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf(&dir);
        assert_eq!(name(&conf), None, "no folder yet");
        write(&conf, "20-b.conflist", &list("b"));
        write(&conf, "10-a.conflist", "{broken");
        write(&conf, "00-readme.txt", &list("txt"));
        write(&conf, "30-c.conf", r#"{"name":"c","type":"a"}"#);
        let loaded = conf.load();
        assert_eq!(name(&conf).as_deref(), Some("b"));
        assert_eq!(loaded.broken.len(), 1);
        assert!(loaded.broken[0].reason.starts_with("the configuration is not JSON: "));
        std::fs::remove_file(conf.dir.join("20-b.conflist")).unwrap();
        assert_eq!(name(&conf).as_deref(), Some("c"));
        std::fs::remove_file(conf.dir.join("30-c.conf")).unwrap();
        let error = conf.load().need_network(conf.path()).unwrap_err();
        assert_eq!(error.code, Code::TryAgainLater);
        assert!(error.to_string().contains("10-a.conflist: the configuration is not JSON"), "{error}");
    }

    #[test]
    fn a_network_is_found_by_its_name_lists_first() {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf(&dir);
        write(&conf, "10-x.conflist", "{broken");
        write(&conf, "20-b.conf", r#"{"name":"b","type":"single"}"#);
        write(&conf, "30-a.conflist", &list("a"));
        write(&conf, "40-b.conflist", &list("b"));
        assert_eq!(conf.named("a").unwrap().plugins[0].kind, "a");
        assert_eq!(conf.named("b").unwrap().plugins[0].kind, "a");
        std::fs::remove_file(conf.dir.join("40-b.conflist")).unwrap();
        assert_eq!(conf.named("b").unwrap().plugins[0].kind, "single");
        let error = conf.named("c").unwrap_err();
        assert!(error.to_string().contains("no network available in the name c"), "{error}");
    }

    #[test]
    fn every_change_is_seen_at_the_next_operation() {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf(&dir);
        write(&conf, "50.conflist", &list("a"));
        let first = conf.load();
        assert!(Arc::ptr_eq(&first, &conf.load()), "unchanged files are not read again");
        write(&conf, "50.conflist", &list("longer"));
        assert_eq!(name(&conf).as_deref(), Some("longer"));
        std::fs::remove_dir_all(&conf.dir).unwrap();
        assert_eq!(name(&conf), None);
        write(&conf, "40.conflist", &list("b"));
        assert_eq!(name(&conf).as_deref(), Some("b"), "the folder was made anew");
    }

    #[test]
    fn a_folder_with_the_networks_name_adds_plugins() {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf(&dir);
        let kinds = |conf: &ConfDir| {
            let loaded = conf.load();
            let network = loaded.network.clone();
            network.map(|n| n.plugins.iter().map(|p| p.kind.clone()).collect::<Vec<_>>()).unwrap_or_default()
        };
        write(&conf, "50.conflist", &list("n"));
        assert_eq!(kinds(&conf), ["a"]);
        write(&conf, "n/2.conf", r#"{"type":"c"}"#);
        write(&conf, "n/1.conf", r#"{"type":"b"}"#);
        assert_eq!(kinds(&conf), ["a", "b", "c"]);
        write(
            &conf,
            "50.conflist",
            &list("n").replace("\"name\"", "\"loadOnlyInlinedPlugins\":true,\"name\""),
        );
        assert_eq!(kinds(&conf), ["a"]);
        write(&conf, "50.conflist", &list("n"));
        write(&conf, "n/3.conf", "broken");
        assert!(conf.load().broken[0].reason.contains("n/3.conf"));
    }
}
