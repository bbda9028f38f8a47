//! Groups of processes with limits, on version 1, hybrid and version 2 alike. Everything is made below the groups that
//! this process itself is in, controller by controller, so limits set on Trine hold for its Pods.
//!
//! - [`Hierarchies`] what is mounted, where this process is in it, and where its groups go
//! - [`Group`] one group over all hierarchies: made, limited, measured, killed, removed
//! - [`Limits`] what a group may use

mod base;
mod detail;
mod devices;
mod group;
mod hierarchy;
mod limits;
mod usage;
#[cfg(test)]
mod version_2_tests;

pub use detail::{Detail, DeviceUse, HugePages, MemoryDetail, Pressure, Throttled};
pub use group::Group;
pub use hierarchy::{Hierarchies, Hierarchy};
pub use limits::Limits;
pub use usage::{MemoryUse, Usage};

use std::io;
use std::path::{Path, PathBuf};

/// The group that Trine itself goes to on version 2, below the one that it was started in.
const LEAF: &str = "trine";

/// A cgroup file or folder that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cgroup: cannot {call} {path}")]
pub struct CgroupError {
    /// What was tried.
    pub call: String,
    /// On what.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

impl CgroupError {
    pub(crate) fn at(call: impl Into<String>, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let (call, path) = (call.into(), path.to_owned());
        move |source| Self { call, path, source }
    }
}
