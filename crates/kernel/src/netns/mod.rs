//! Network namespaces. No pool thread ever changes its namespace: whatever must happen inside one runs on a thread
//! of its own that enters, works and exits.
//!
//! - [`Netns`] an open namespace: [`Netns::create`] makes and pins one at a path, [`Netns::open`] opens it again,
//!   [`Netns::run`] runs a closure inside
//! - [`delete`] unpins and removes the path; the kernel drops the namespace with its last user

mod handle;
mod pin;
#[cfg(test)]
mod tests;

pub use handle::{Netns, NetnsId};
pub use pin::delete;

use std::io;
use std::path::PathBuf;

/// Why a network namespace could not be made, opened, entered or removed.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The system refused.
    #[error("network namespace {path}: cannot {call}")]
    Io {
        /// Where the namespace is (to be) pinned.
        path: PathBuf,
        /// What was tried.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The path is there, but it is no network namespace (a pin that was unmounted, for example).
    #[error("{path} is not a network namespace")]
    NotANetns {
        /// The path that was opened.
        path: PathBuf,
    },
    /// The closure that ran inside panicked.
    #[error("work inside network namespace {path} panicked: {message}")]
    Panicked {
        /// The namespace.
        path: PathBuf,
        /// The panic's message.
        message: String,
    },
}

impl NetnsError {
    /// True if the namespace is simply not there (any more): no path, or a path without a namespace on it.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::NotANetns { .. } => true,
            Self::Panicked { .. } => false,
        }
    }
}
