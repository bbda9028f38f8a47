//! Groups of processes with limits, on version 1, hybrid and version 2 alike. Everything is made below the groups that
//! this process itself is in, controller by controller, so limits set on Trine hold for its Pods.
//!
//! - [`Hierarchies`] what is mounted, and where this process is in it
//! - [`Group`] one group over all hierarchies: made, limited, measured, killed, removed
//! - [`Limits`] what a group may use

mod group;
mod hierarchy;
mod limits;
mod usage;

pub use group::Group;
pub use hierarchy::{Hierarchies, Hierarchy};
pub use limits::Limits;
pub use usage::{MemoryUse, Usage};

use std::io;
use std::path::{Path, PathBuf};

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
