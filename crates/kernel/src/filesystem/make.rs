//! mkfs, with the geometry that all our volumes share.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::FilesystemError;
use serde::{Deserialize, Serialize};

use super::program::{self, ProgramError};

/// The time that making a file system may take: seconds even for terabytes, but a busy disk may be slow.
const DEADLINE: Duration = Duration::from_secs(120);

/// A file system that we can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// XFS: grows while mounted, allocates lazily.
    Xfs,
    /// ext4: works from 1 MiB on.
    Ext4,
}

impl Kind {
    /// Its name in the kernel and in `fsType`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Ext4 => "ext4",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Xfs, Self::Ext4].into_iter().find(|kind| kind.name() == name)
    }

    /// The smallest device it can be made on, bytes: mkfs.xfs (6.x) refuses less than 300 MiB.
    #[must_use]
    pub fn min_bytes(self) -> u64 {
        match self {
            Self::Xfs => 300 << 20,
            Self::Ext4 => 1 << 20,
        }
    }

    /// Its mkfs, and the package that holds it.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
        }
    }

    /// Whether its mkfs is installed.
    ///
    /// # Errors
    /// [`ProgramError::Missing`], which names the program and its package.
    pub fn available(self) -> Result<(), ProgramError> {
        let (program, package) = self.program();
        program::find(program, package).map(drop)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Makes a file system on `device`, whatever is on it now: the caller has made sure that it may.
///
/// # Errors
/// [`FilesystemError::Program`].
pub fn make(kind: Kind, device: &Path) -> Result<(), FilesystemError> {
    // Sectors and blocks of 4 KiB: see `loopdev::SECTOR_BYTES`. The file below is sparse, so nothing is to be
    // discarded. No blocks are kept back for root: the size of the volume is the user's.
    run(
        kind,
        device,
        match kind {
            Kind::Xfs => &["-q", "-f", "-K", "-s", "size=4096"],
            Kind::Ext4 => &["-q", "-F", "-b", "4096", "-m", "0", "-E", "nodiscard,lazy_itable_init=1"],
        },
    )
}

/// Makes an XFS on `device` whose files can share their blocks. Its log is as small as it may be: mkfs writes it out, so of a
/// sparse file below it is all that takes room.
///
/// # Errors
/// [`FilesystemError::Program`].
pub fn make_sharing(device: &Path) -> Result<(), FilesystemError> {
    run(Kind::Xfs, device, &["-q", "-f", "-K", "-s", "size=4096", "-m", "crc=1,reflink=1", "-l", "size=64m"])
}

fn run(kind: Kind, device: &Path, options: &[&str]) -> Result<(), FilesystemError> {
    let args: Vec<&OsStr> = options.iter().map(OsStr::new).chain([device.as_os_str()]).collect();
    let (program, package) = kind.program();
    program::run(program, package, &args, &[], DEADLINE).map_err(|source| FilesystemError::Program {
        doing: "formatted",
        path: device.to_owned(),
        source,
    })
}
