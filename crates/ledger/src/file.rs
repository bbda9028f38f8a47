//! The file behind a ledger: one JSON line per change, replayed at start, rewritten when mostly dead.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Lines beyond the live records at which the file is rewritten.
const SLACK_LINES: usize = 1024;

/// What a record must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Things that die with a reboot (netns, veth, mount, loop device, cgroup): appended without fsync. A plain
    /// write survives `kill -9`, and records of another boot are dropped at [`Ledger::open`].
    ThisBoot,
    /// Things on disk or elsewhere (images, volumes, addresses, attachments): fdatasync before `put` returns.
    Disk,
}

/// Why a ledger could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file system refused.
    #[error("ledger {path}: cannot {call}")]
    Io {
        /// The ledger's file.
        path: PathBuf,
        /// What was tried.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A record could not be turned into JSON.
    #[error("ledger {path}: record {key} cannot be encoded")]
    Encode {
        /// The ledger's file.
        path: PathBuf,
        /// The record's key.
        key: String,
        /// What the encoder said.
        source: serde_json::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct Line<R> {
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
    record: Option<R>,
}

struct Inner<R> {
    file: File,
    lines: usize,
    records: BTreeMap<String, R>,
}

/// Records of one type under string keys. Every change is in the file before the call returns.
pub struct Ledger<R> {
    path: PathBuf,
    durability: Durability,
    boot: Option<String>,
    inner: Mutex<Inner<R>>,
}

impl<R: Serialize + DeserializeOwned + Clone> Ledger<R> {
    /// Opens or creates the ledger at `path` and replays it. A torn last line (crash in mid-write) and lines
    /// that no longer decode are left out: start-up never fails on a broken record.
    ///
    /// # Errors
    /// [`LedgerError::Io`] if the file cannot be read or rewritten.
    pub fn open(path: impl Into<PathBuf>, durability: Durability) -> Result<Self, LedgerError> {
        let path = path.into();
        let io = |call| {
            let path = path.clone();
            move |source| LedgerError::Io { path, call, source }
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(io("create the folder of"))?;
        }
        let boot = match durability {
            Durability::ThisBoot => Some(
                std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
                    .map_err(io("read the boot id for"))?
                    .trim()
                    .to_owned(),
            ),
            Durability::Disk => None,
        };
        let text = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(io("read")(e)),
        };
        let records = replay(&text, boot.as_deref(), &path);
        let (file, lines) = rewrite(&path, boot.as_deref(), &records)?;
        let inner = Mutex::new(Inner { file, lines, records });
        Ok(Self { path, durability, boot, inner })
    }

    /// Writes or replaces the record of `key`.
    ///
    /// # Errors
    /// [`LedgerError`]; the record in memory is unchanged then, so the caller must not act.
    pub fn put(&self, key: &str, record: &R) -> Result<(), LedgerError> {
        self.write(key, Some(record))
    }

    /// Drops the record of `key`; absent is success.
    ///
    /// # Errors
    /// [`LedgerError::Io`].
    pub fn remove(&self, key: &str) -> Result<(), LedgerError> {
        if self.get(key).is_none() {
            return Ok(());
        }
        self.write(key, None)
    }

    /// The record of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<R> {
        self.lock().records.get(key).cloned()
    }

    /// All records.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, R> {
        self.lock().records.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner<R>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, key: &str, record: Option<&R>) -> Result<(), LedgerError> {
        let line = encode(&self.path, self.boot.as_deref(), key, record)?;
        let mut inner = self.lock();
        inner.file.write_all(&line).map_err(|source| self.io("append to", source))?;
        if self.durability == Durability::Disk {
            inner.file.sync_data().map_err(|source| self.io("sync", source))?;
        }
        match record {
            Some(record) => inner.records.insert(key.to_owned(), record.clone()),
            None => inner.records.remove(key),
        };
        inner.lines += 1;
        if inner.lines > 2 * inner.records.len() + SLACK_LINES {
            (inner.file, inner.lines) = rewrite(&self.path, self.boot.as_deref(), &inner.records)?;
        }
        Ok(())
    }

    fn io(&self, call: &'static str, source: io::Error) -> LedgerError {
        LedgerError::Io { path: self.path.clone(), call, source }
    }
}

fn encode<R: Serialize>(
    path: &Path,
    boot: Option<&str>,
    key: &str,
    record: Option<&R>,
) -> Result<Vec<u8>, LedgerError> {
    let line = Line { key: key.to_owned(), boot: boot.map(str::to_owned), record };
    let mut bytes = serde_json::to_vec(&line).map_err(|source| LedgerError::Encode {
        path: path.to_owned(),
        key: key.to_owned(),
        source,
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn replay<R: DeserializeOwned>(text: &[u8], boot: Option<&str>, path: &Path) -> BTreeMap<String, R> {
    let mut records = BTreeMap::new();
    for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice::<Line<R>>(line) {
            Ok(line) if line.boot.as_deref() != boot => {}
            Ok(Line { key, record: Some(record), .. }) => {
                records.insert(key, record);
            }
            Ok(Line { key, record: None, .. }) => {
                records.remove(&key);
            }
            Err(error) => tracing::warn!(path = %path.display(), %error, "broken ledger line left out"),
        }
    }
    records
}

/// Writes the live records to a new file and renames it over the old one.
fn rewrite<R: Serialize>(
    path: &Path,
    boot: Option<&str>,
    records: &BTreeMap<String, R>,
) -> Result<(File, usize), LedgerError> {
    let io = |call| move |source| LedgerError::Io { path: path.to_owned(), call, source };
    let mut bytes = Vec::new();
    for (key, record) in records {
        bytes.extend(encode(path, boot, key, Some(record))?);
    }
    let fresh = path.with_extension("new");
    let mut file =
        OpenOptions::new().create(true).write(true).truncate(true).open(&fresh).map_err(io("create"))?;
    file.write_all(&bytes).map_err(io("write"))?;
    if boot.is_none() {
        file.sync_data().map_err(io("sync"))?;
    }
    std::fs::rename(&fresh, path).map_err(io("replace"))?;
    let file = OpenOptions::new().append(true).open(path).map_err(io("reopen"))?;
    if boot.is_none()
        && let Some(parent) = path.parent()
    {
        File::open(parent).and_then(|dir| dir.sync_all()).map_err(io("sync the folder of"))?;
    }
    Ok((file, records.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_reopening_and_a_torn_last_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        for durability in [Durability::Disk, Durability::ThisBoot] {
            let _ = std::fs::remove_file(&path);
            let ledger = Ledger::<u32>::open(&path, durability).unwrap();
            ledger.put("a", &1).unwrap();
            ledger.put("b", &2).unwrap();
            ledger.remove("a").unwrap();
            ledger.put("b", &3).unwrap();
            drop(ledger);
            OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"key\":\"b\",\"rec").unwrap();
            let ledger = Ledger::<u32>::open(&path, durability).unwrap();
            assert_eq!(ledger.all(), BTreeMap::from([("b".to_owned(), 3)]));
        }
    }

    #[test]
    fn records_of_another_boot_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        std::fs::write(&path, "{\"key\":\"a\",\"boot\":\"another\",\"record\":1}\n").unwrap();
        assert!(Ledger::<u32>::open(&path, Durability::ThisBoot).unwrap().all().is_empty());
    }

    #[test]
    fn a_busy_ledger_does_not_grow_without_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        let ledger = Ledger::<u32>::open(&path, Durability::ThisBoot).unwrap();
        for i in 0..5_000 {
            ledger.put("only", &i).unwrap();
        }
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= SLACK_LINES + 3, "{lines} lines for one record");
    }
}
