//! `vol_data.json`: what a mount is, for after a restart. Written whole or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::KubeletError;

/// The file's name.
pub const FILE: &str = "vol_data.json";

/// What the file says. Field names are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeData {
    /// The PV.
    #[serde(rename = "specVolID", skip_serializing_if = "String::is_empty")]
    pub spec: String,
    /// The driver's handle.
    pub volume_handle: String,
    /// The driver's name.
    pub driver_name: String,
    /// This node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// The VolumeAttachment; empty if none is needed.
    #[serde(rename = "attachmentID", skip_serializing_if = "String::is_empty")]
    pub attachment: String,
    /// `Persistent`, or `Ephemeral` for an inline volume.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume_lifecycle_mode: String,
}

/// Writes the file into `dir`, which is made if it is missing (mode 0750).
///
/// # Errors
/// [`KubeletError::Io`].
pub fn write(dir: &Path, data: &VolumeData) -> Result<(), KubeletError> {
    make_dir(dir)?;
    let bytes = serde_json::to_vec(data).map_err(|e| KubeletError::Invalid(e.to_string()))?;
    write_whole(&dir.join(FILE), &bytes)
}

/// A folder of mode 0750 with its parents.
///
/// # Errors
/// [`KubeletError::Io`].
pub fn make_dir(dir: &Path) -> Result<(), KubeletError> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(dir)
        .map_err(KubeletError::io("create folder", dir))
}

/// Replaces a file whole, on the disk when this returns.
///
/// # Errors
/// [`KubeletError::Io`].
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), KubeletError> {
    let fresh = path.with_extension("json.new");
    let mut file = File::create(&fresh).map_err(KubeletError::io("create", &fresh))?;
    file.write_all(bytes).map_err(KubeletError::io("write", &fresh))?;
    file.sync_data().map_err(KubeletError::io("sync", &fresh))?;
    fs::rename(&fresh, path).map_err(KubeletError::io("replace", path))
}

/// Reads the file of `dir`; `None` if it is missing or broken, since both must be lived with.
#[must_use]
pub fn read(dir: &Path) -> Option<VolumeData> {
    let path = dir.join(FILE);
    let bytes = fs::read(&path).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(data) => Some(data),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "broken volume metadata");
            None
        }
    }
}

/// Removes the file and then the empty folder; absent is success.
///
/// # Errors
/// [`KubeletError::Io`] if the folder holds something else.
pub fn remove(dir: &Path) -> Result<(), KubeletError> {
    for path in [dir.join(FILE), dir.join("vol_data.json.new")] {
        absent_is_fine("remove", &path, fs::remove_file(&path))?;
    }
    absent_is_fine("remove folder", dir, fs::remove_dir(dir))
}

/// Absent is success on the way down.
///
/// # Errors
/// [`KubeletError::Io`].
pub fn absent_is_fine(
    call: &'static str,
    path: &Path,
    result: std::io::Result<()>,
) -> Result<(), KubeletError> {
    match result {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(KubeletError::io(call, PathBuf::from(path))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read_back_and_an_empty_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("x");
        let data = VolumeData { volume_handle: "h".into(), driver_name: "d".into(), ..Default::default() };
        write(&sub, &data).unwrap();
        assert_eq!(read(&sub), Some(data));
        fs::write(sub.join(FILE), "").unwrap();
        assert_eq!(read(&sub), None);
        remove(&sub).unwrap();
        remove(&sub).unwrap();
        assert!(!sub.exists());
    }
}
