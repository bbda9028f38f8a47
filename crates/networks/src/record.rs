//! What a container is attached to, one file each, written before anything is made: its end asks neither the API nor the
//! configuration of then.

use std::io;
use std::path::{Path, PathBuf};

use trine_cni::spec::{CniError, Code};
use trine_contracts::networks::Attachments;

/// The folder of records.
#[derive(Debug)]
pub struct Records(PathBuf);

fn failed(call: &str, path: &Path, source: io::Error) -> CniError {
    CniError::new(Code::Io, format!("cannot {call} {}", path.display())).because(source)
}

impl Records {
    /// Those below `cni_dir`.
    #[must_use]
    pub fn new(cni_dir: &Path) -> Self {
        Self(cni_dir.join("containers"))
    }

    fn path(&self, container: &str) -> PathBuf {
        self.0.join(container)
    }

    /// Writes one down, in place of an older one.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn put(&self, container: &str, all: &Attachments) -> Result<(), CniError> {
        let path = self.path(container);
        let draft = self.0.join(format!(".{container}.draft"));
        let written = std::fs::create_dir_all(&self.0)
            .and_then(|()| std::fs::write(&draft, all.text()))
            .and_then(|()| std::fs::rename(&draft, &path));
        written.map_err(|e| failed("write", &path, e))
    }

    /// The one of `container`; none if there is none, or it is damaged.
    #[must_use]
    pub fn get(&self, container: &str) -> Option<Attachments> {
        let text = std::fs::read_to_string(self.path(container)).ok()?;
        // Not as an annotation is read: links of the default network have whatever name the runtime gave.
        serde_json::from_str(&text).ok()
    }

    /// Removes the one of `container`; absent is success.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn remove(&self, container: &str) -> Result<(), CniError> {
        let path = self.path(container);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path, e)),
            _ => Ok(()),
        }
    }

    /// All containers that have one.
    #[must_use]
    pub fn containers(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use trine_contracts::networks::Attachment;

    use super::*;

    #[test]
    fn records_are_written_read_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path());
        assert_eq!((records.get("a"), records.containers().len()), (None, 0));
        let default =
            Attachment { interface: "net0".into(), config_name: Some("x".into()), ..Attachment::default() };
        let all = Attachments { default: Some(default), networks: Vec::new() };
        records.put("a", &Attachments::default()).unwrap();
        records.put("a", &all).unwrap();
        assert_eq!((records.get("a"), records.containers()), (Some(all), vec!["a".to_owned()]));
        std::fs::write(dir.path().join("containers/b"), "{").unwrap();
        assert_eq!(records.get("b"), None, "damaged");
        records.remove("a").unwrap();
        records.remove("a").unwrap();
        assert_eq!(records.get("a"), None);
    }
}
