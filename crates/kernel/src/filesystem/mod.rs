//! File systems on block devices: making, recognising, measuring, growing.
//!
//! - [`make`], [`make_sharing`] mkfs with our geometry (4 KiB blocks and sectors)
//! - [`inspect`] what the bytes of a device say it holds
//! - [`usage`] how full a mounted one is
//! - [`grow_mounted`], [`grow_unmounted`] up to the size of its device
//! - [`freeze`] holding one still; [`copy`] files that share their blocks where they can
//!
//! The user-space programs are the distribution's own, run under a deadline ([`program`]).

mod copy;
mod freeze;
mod grow;
mod make;
mod probe;
mod program;
mod space;

pub use copy::{Alone, Copied, alone, copy, shares};
pub use freeze::{Frozen, freeze, thaw};
pub use grow::{grow_mounted, grow_unmounted};
pub use make::{Kind, make, make_sharing};
pub use probe::{Content, inspect};
pub use program::ProgramError;
pub use space::{Room, Usage, taken_below, usage};

use std::io;
use std::path::PathBuf;

/// What went wrong with a file system.
#[derive(Debug, thiserror::Error)]
pub enum FilesystemError {
    /// A user-space program could not do it.
    #[error("{path} cannot be {doing}")]
    Program {
        /// What was to be done, as a participle (`formatted`, `checked`, `grown`).
        doing: &'static str,
        /// The device.
        path: PathBuf,
        /// What the program said.
        source: ProgramError,
    },
    /// A system call failed.
    #[error("{call} on {path}")]
    Call {
        /// The call.
        call: &'static str,
        /// The device or mount point.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel asks for a capability that this process does not have.
    #[error("growing a mounted ext4 ({path}) needs CAP_SYS_RESOURCE, which this process does not have")]
    NeedsSysResource {
        /// The mount point.
        path: PathBuf,
    },
}
