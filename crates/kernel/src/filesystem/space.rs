//! How full a mounted file system is, and how much room files take on it.

use std::iter::Sum;
use std::ops::Add;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::FilesystemError;

/// Figures of statvfs, as `df` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Size, bytes.
    pub total_bytes: u64,
    /// What an unprivileged writer may still take, bytes.
    pub available_bytes: u64,
    /// What is taken, bytes.
    pub used_bytes: u64,
    /// Inodes there may be.
    pub total_inodes: u64,
    /// Inodes left.
    pub free_inodes: u64,
}

/// The figures of the file system that `path` lies on.
///
/// # Errors
/// [`FilesystemError::Call`].
pub fn usage(path: &Path) -> Result<Usage, FilesystemError> {
    let stat = rustix::fs::statvfs(path).map_err(|e| FilesystemError::Call {
        call: "statvfs",
        path: path.to_owned(),
        source: e.into(),
    })?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Usage {
        total_bytes: bytes(stat.f_blocks),
        available_bytes: bytes(stat.f_bavail),
        used_bytes: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        total_inodes: stat.f_files,
        free_inodes: stat.f_ffree,
    })
}

/// Room that files take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes in blocks that are really in use.
    pub bytes: u64,
    /// Files of every kind.
    pub inodes: u64,
}

impl Add for Room {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
    }
}

impl Sum for Room {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// Counts all below `dir`, `dir` left out, but not what other file systems have there; what vanishes meanwhile is not counted. It
/// walks over all of it.
#[must_use]
pub fn taken_below(dir: &Path) -> Room {
    let Ok(root) = dir.symlink_metadata() else { return Room::default() };
    let mut room = Room::default();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let Ok(stat) = entry.path().symlink_metadata() else { continue };
            if stat.dev() != root.dev() {
                continue;
            }
            // A file with several names is counted at each of them in its share.
            let names = if stat.is_dir() { 1 } else { stat.nlink().max(1) };
            room = room + Room { bytes: stat.blocks() * 512 / names, inodes: 1 };
            if stat.is_dir() {
                open.push(entry.path());
            }
        }
    }
    room
}
