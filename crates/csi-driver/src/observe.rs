//! What the kernel says about the pool's devices, read anew for every decision.

use std::path::{Path, PathBuf};

use trine_kernel::loopdev::{self, Attached};
use trine_kernel::mountpoint::{self, Mounted};

use crate::error::Cause;
use crate::plan::target::shows;

/// Loop devices and mounts at one moment.
#[derive(Debug, Clone)]
pub struct Observed {
    /// Devices that hold a file of this pool.
    pub attached: Vec<Attached>,
    /// The mount table.
    pub mounted: Vec<Mounted>,
}

impl Observed {
    /// Reads both; `pool` is the folder of the images, without links.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn now(pool: &Path) -> Result<Self, Cause> {
        let mut attached = loopdev::attached()?;
        attached.retain(|a| a.backing_file.starts_with(pool));
        Ok(Self { attached, mounted: mountpoint::mounted()? })
    }

    /// The device of the image at `image`.
    #[must_use]
    pub fn device(&self, image: &Path) -> Option<&Attached> {
        self.attached.iter().find(|a| a.backing_file == image && !a.deleted)
    }

    /// Where `device` is mounted or bound, oldest first.
    #[must_use]
    pub fn places(&self, device: &Path) -> Vec<&Path> {
        let of = |m: &&Mounted| m.source == device || shows(m, device);
        self.mounted.iter().filter(of).map(|m| m.target.as_path()).collect()
    }

    /// What is on top at `path`.
    #[must_use]
    pub fn top(&self, path: &Path) -> Option<&Mounted> {
        self.mounted.iter().rfind(|m| m.target == path)
    }

    /// The pool's device that `mount` shows, in whole or in part.
    #[must_use]
    pub fn behind(&self, mount: &Mounted) -> Option<&Attached> {
        self.attached.iter().find(|a| mount.source == a.device || shows(mount, &a.device))
    }
}

/// `path` as the mount table writes it: links in its parent resolved, its last part left alone, because looking
/// at a dead mount fails.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is not an absolute path to something below the root.
pub fn real(path: &str) -> Result<PathBuf, Cause> {
    let given = Path::new(path);
    let (Some(parent), Some(name), true) = (given.parent(), given.file_name(), given.is_absolute()) else {
        return Err(Cause::Invalid(format!("{path:?} is not an absolute path below the root")));
    };
    let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
    Ok(parent.join(name))
}
