//! What is known of a volume, and how it is written to disk.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use trine_kernel::filesystem::Kind;

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
}

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
pub fn read_all(dir: &Path) -> io::Result<BTreeMap<String, Volume>> {
    let mut volumes = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|ext| ext != "json") {
            continue;
        }
        let read = std::fs::read(&path)
            .and_then(|bytes| serde_json::from_slice::<Volume>(&bytes).map_err(io::Error::from));
        match read {
            Ok(volume) => {
                volumes.insert(volume.id.clone(), volume);
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "volume record unreadable, its volume left alone");
            }
        }
    }
    Ok(volumes)
}

/// Writes `volume` so that a power cut leaves the old record or the new one, never a torn one.
///
/// # Errors
/// What the file system said; the old record stands then.
pub fn write(dir: &Path, volume: &Volume) -> io::Result<()> {
    let path = dir.join(format!("{}.json", volume.id));
    let fresh = dir.join(format!("{}.json.new", volume.id));
    let mut bytes = serde_json::to_vec_pretty(volume)?;
    bytes.push(b'\n');
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&fresh)?;
    file.write_all(&bytes)?;
    file.sync_data()?;
    std::fs::rename(&fresh, &path)?;
    sync_dir(dir)
}

/// Removes the record of `id`; absent is success.
///
/// # Errors
/// What the file system said.
pub fn remove(dir: &Path, id: &str) -> io::Result<()> {
    match std::fs::remove_file(dir.join(format!("{id}.json"))) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => sync_dir(dir),
    }
}

/// Makes the names in `dir` durable.
///
/// # Errors
/// What the file system said.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
