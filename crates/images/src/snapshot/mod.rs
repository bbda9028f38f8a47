//! A container's root: the image's layers with a writable folder on top.

mod mounted;
mod plan;

pub(crate) use mounted::Snapshots;
pub use mounted::{RootFs, RootOptions};
