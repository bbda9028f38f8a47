//! A machine within this one: network, mount and UTS namespaces, pinned in a folder so that they outlive every process.
//! No process is made, and nothing else is separate: kernel, clock, pids, cgroups and files are this machine's.
//!
//! - [`Machine`] makes, enters and removes one
//! - `plan` which mounts of this machine it must not hold on to (pure)
//! - `arrange` its mounts

mod arrange;
mod pins;
mod plan;
#[cfg(test)]
mod tests;

pub use arrange::Shared;
pub use pins::{Machine, MachineError};
