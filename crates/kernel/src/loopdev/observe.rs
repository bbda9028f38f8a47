//! Which loop devices there are, read from sysfs.

use std::io;
use std::path::{Path, PathBuf};

use super::LoopError;

/// What sysfs appends to the path of a backing file that was unlinked.
const DELETED: &str = " (deleted)";

/// A loop device that holds a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// The number in its name.
    pub number: u32,
    /// Its node in `/dev`.
    pub device: PathBuf,
    /// The file's path when it was opened.
    pub backing_file: PathBuf,
    /// True if the file has been unlinked since.
    pub deleted: bool,
}

/// All loop devices of this machine that hold a file.
///
/// # Errors
/// [`LoopError::Call`] if `/sys/block` cannot be read.
pub fn attached() -> Result<Vec<Attached>, LoopError> {
    let sys = Path::new("/sys/block");
    let io = |source| LoopError::Call { call: "readdir", path: sys.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(sys).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|n| n.strip_prefix("loop")).and_then(|n| n.parse().ok())
        else {
            continue;
        };
        // Absent: the device holds nothing (or let go while we read).
        let Ok(text) = std::fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let text = text.trim_end_matches('\n');
        if text.is_empty() {
            continue;
        }
        let (path, deleted) = text.strip_suffix(DELETED).map_or((text, false), |path| (path, true));
        found.push(Attached {
            number,
            device: PathBuf::from(format!("/dev/loop{number}")),
            backing_file: PathBuf::from(path),
            deleted,
        });
    }
    found.sort_by_key(|a| a.number);
    Ok(found)
}

/// The devices that hold `file` (an absolute path without links), lowest number first.
///
/// # Errors
/// As [`attached`].
pub fn of_file(file: &Path) -> Result<Vec<Attached>, LoopError> {
    Ok(attached()?.into_iter().filter(|a| a.backing_file == file && !a.deleted).collect())
}

/// Size of loop device `number`, bytes.
///
/// # Errors
/// [`LoopError::Call`] if sysfs does not know it.
pub fn device_size(number: u32) -> Result<u64, LoopError> {
    let path = PathBuf::from(format!("/sys/block/loop{number}/size"));
    let io = |source| LoopError::Call { call: "read", path: path.clone(), source };
    let text = std::fs::read_to_string(&path).map_err(io)?;
    let sectors: u64 =
        text.trim().parse().map_err(|_| io(io::Error::new(io::ErrorKind::InvalidData, "not a number")))?;
    Ok(sectors * 512)
}
