//! Sandboxes: a Pod's namespaces, keeper and network, from the first record to the last.
//!
//! - [`record`] what is written down of one
//! - [`files`] `resolv.conf` and `hostname` (pure)
//! - [`network`] what CNI is told (pure)

pub mod files;
pub mod network;
pub mod record;
mod remove;
mod run;
mod stop;

pub use record::{Sandbox, SandboxRecord, SandboxState};
