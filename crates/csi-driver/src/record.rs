//! What is known of a volume or a snapshot, and how it is written to disk.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trine_kernel::filesystem::Kind;
use trine_kernel::testing::failpoint;

use crate::request::Access;

/// One volume's record: `<id>.json` beside `<id>.img`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// The id that callers use.
    pub id: String,
    /// The name it was asked for by.
    pub name: String,
    /// Its size, bytes.
    pub bytes: u64,
    /// How far its making or unmaking has come.
    pub state: State,
    /// What it holds, as far as this driver had to do with it.
    pub content: Content,
    /// How its maker wanted to reach it.
    pub access: Access,
    /// Where it is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// What it was copied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// What a volume was copied from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// The snapshot of this id.
    Snapshot(String),
    /// The volume of this id.
    Volume(String),
}

/// One snapshot's record: `snapshots/<id>.json` beside `snapshots/<id>.img`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The id that callers use.
    pub id: String,
    /// The name it was asked for by.
    pub name: String,
    /// The volume that it was taken of, which may be gone.
    pub volume: String,
    /// That volume's size, bytes.
    pub bytes: u64,
    /// How far its making or unmaking has come.
    pub state: State,
    /// What the volume held.
    pub content: Content,
    /// How that volume was to be reached.
    pub access: Access,
    /// The bytes of the disk that it keeps from being used otherwise: what the volume had written.
    pub data: u64,
    /// When it was taken: seconds and nanoseconds since 1970.
    pub taken: (i64, i32),
    /// The group that it was taken in, and goes with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// One group's record: `groups/<id>.json`. Its members are snapshots like others; until it is ready they are nobody's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The id that callers use.
    pub id: String,
    /// The name it was asked for by.
    pub name: String,
    /// How far its making or unmaking has come.
    pub state: State,
    /// Its members' ids, by the ids of the volumes that they are of.
    pub members: BTreeMap<String, String>,
    /// When it was taken: seconds and nanoseconds since 1970.
    pub taken: (i64, i32),
}

/// What has a record.
pub trait Record: Serialize + DeserializeOwned {
    /// The id, which is the file's name.
    fn id(&self) -> &str;
    /// How far it has come.
    fn state(&self) -> State;
    /// The same in another state.
    #[must_use]
    fn in_state(&self, state: State) -> Self;
}

macro_rules! record {
    ($kind:ty) => {
        impl Record for $kind {
            fn id(&self) -> &str {
                &self.id
            }
            fn state(&self) -> State {
                self.state
            }
            fn in_state(&self, state: State) -> Self {
                Self { state, ..self.clone() }
            }
        }
    };
}
record!(Volume);
record!(Snapshot);
record!(Group);

/// Intent before act: `Creating` and `Deleting` are finished or undone at the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The file is being made; nobody has been told of the volume.
    Creating,
    /// It is there.
    Ready,
    /// The file is being removed.
    Deleting,
}

/// Whether this driver has formatted the volume. It is never derived from what the device reads like: a device
/// that cannot be read would look blank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    /// Nothing was ever written.
    Untouched,
    /// mkfs was started; no user has seen the volume.
    Formatting(Kind),
    /// It has a file system, which may hold data.
    Formatted(Kind),
    /// It was handed out as a raw device, which may hold data.
    Raw,
}

/// The fence: one node at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// The node that may stage it.
    pub node: String,
    /// As a raw device.
    pub block: bool,
}

/// Reads every record in `dir`. A record that does not decode is reported and left where it is: its volume's
/// data stays on disk, out of everybody's way.
///
/// # Errors
/// If `dir` cannot be listed.
pub fn read_all<R: Record>(dir: &Path) -> io::Result<BTreeMap<String, R>> {
    let mut records = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|ext| ext != "json") {
            continue;
        }
        let read = std::fs::read(&path)
            .and_then(|bytes| serde_json::from_slice::<R>(&bytes).map_err(io::Error::from));
        match read {
            Ok(record) => {
                records.insert(record.id().to_owned(), record);
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "record unreadable, its data left alone");
            }
        }
    }
    Ok(records)
}

/// Writes `record` so that a power cut leaves the old record or the new one, never a torn one.
///
/// # Errors
/// What the file system said; the old record stands then.
pub fn write<R: Record>(dir: &Path, record: &R) -> io::Result<()> {
    write_file(dir, &format!("{}.json", record.id()), record)
}

/// The same for anything, as the file `name` in `dir`.
///
/// # Errors
/// What the file system said; the old file stands then.
pub fn write_file(dir: &Path, name: &str, content: &impl Serialize) -> io::Result<()> {
    let fresh = dir.join(format!("{name}.new"));
    let mut bytes = serde_json::to_vec_pretty(content)?;
    bytes.push(b'\n');
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&fresh)?;
    file.write_all(&bytes)?;
    file.sync_data()?;
    failpoint("volume record: drafted");
    std::fs::rename(&fresh, dir.join(name))?;
    failpoint("volume record: in place");
    sync_dir(dir)
}

/// Removes the record of `id`; absent is success.
///
/// # Errors
/// What the file system said.
pub fn remove(dir: &Path, id: &str) -> io::Result<()> {
    match std::fs::remove_file(dir.join(format!("{id}.json"))) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => {
            failpoint("volume record: removed");
            sync_dir(dir)
        }
    }
}

/// Makes the names in `dir` durable.
///
/// # Errors
/// What the file system said.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
