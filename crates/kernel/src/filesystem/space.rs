//! How full a mounted file system is.

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
