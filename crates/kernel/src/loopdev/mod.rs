//! Loop devices: block devices made of files, with 4 KiB sectors and direct I/O where the file system can.
//!
//! The backing file's path is the record of what a device is for: [`attached`] reads it back from sysfs, so a
//! device that outlived its maker is always found again.
//!
//! - [`attach`], [`detach`], [`refresh_size`] the acts
//! - [`attached`], [`of_file`] what is there

mod control;
mod observe;

pub use control::{SECTOR_BYTES, attach, detach, is_direct, refresh_size};
pub use observe::{Attached, attached, device_size, of_file};

use std::io;
use std::path::PathBuf;

/// What went wrong with a loop device.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// A call failed.
    #[error("{call} on {path}")]
    Call {
        /// The call, as strace prints it.
        call: &'static str,
        /// The device or the file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Every free device was taken by somebody else again and again.
    #[error("no free loop device for {file} after {attempts} attempts")]
    Contended {
        /// The backing file.
        file: PathBuf,
        /// Attempts made.
        attempts: u32,
    },
    /// The device was told to let go but is still held: mounted or opened somewhere, perhaps in another mount
    /// namespace. It goes by itself when the last user closes it.
    #[error("{device} is still in use, so {file} is not detached yet")]
    Held {
        /// The device.
        device: PathBuf,
        /// The backing file.
        file: PathBuf,
    },
}
