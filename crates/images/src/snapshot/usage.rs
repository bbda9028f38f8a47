//! How much room files take.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Room on a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in blocks that are really in use.
    pub bytes: u64,
    /// Files of every kind.
    pub inodes: u64,
}

/// Counts all below `dir`, `dir` left out; what vanishes meanwhile is not counted.
pub(crate) fn of_folder(dir: &Path) -> Usage {
    let mut usage = Usage::default();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let Ok(stat) = entry.path().symlink_metadata() else { continue };
            usage.inodes += 1;
            // A file with several names is counted at each of them in its share.
            let names = if stat.is_dir() { 1 } else { stat.nlink().max(1) };
            usage.bytes += stat.blocks() * 512 / names;
            if stat.is_dir() {
                open.push(entry.path());
            }
        }
    }
    usage
}
