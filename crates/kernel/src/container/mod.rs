//! Makes a container of a prepared root file system: the child that a single-threaded caller forks for it mounts,
//! pivots, drops privileges, reports that it is ready, waits for the word, and becomes the program.
//!
//! - [`oci`] what it is told: the part of the OCI runtime specification that it understands
//! - [`create`] a new container, up to the word to start
//! - [`join`] a further process in a running one
//! - [`Report`] what the child says on its way

mod console;
mod launch;
mod mounts;
pub mod oci;
mod options;
mod owners;
mod privileges;
mod program;
mod report;
mod root;

pub use launch::{Child, Groups, Stdio, create, join};
pub(crate) use mounts::show_owners;
pub use owners::Owners;
pub use privileges::capability_names;
pub use report::{Report, receive};

/// A step of the set-up that failed, in the child or before it.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {cause}")]
pub struct SetupError {
    /// What was tried, and on what.
    pub step: String,
    /// What the kernel said, or what is wrong.
    pub cause: String,
}

impl SetupError {
    /// For `map_err` on system calls.
    pub(crate) fn at(step: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let step = step.into();
        move |errno| Self { step, cause: words(&errno.into()) }
    }

    /// For `map_err` on standard library calls.
    pub(crate) fn io(step: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let step = step.into();
        move |error| Self { step, cause: words(&error) }
    }
}

/// An error of the system in its own words, without the number: `no such file or directory`.
pub(crate) fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_lowercase().to_string() + letters.as_str()).unwrap_or_default()
}
