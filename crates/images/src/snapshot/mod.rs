//! A container's root: the image's layers with a writable folder on top.

mod mounted;
mod plan;
mod usage;

pub(crate) use mounted::Snapshots;
pub use mounted::{RootFs, RootOptions};
pub use usage::Usage;
