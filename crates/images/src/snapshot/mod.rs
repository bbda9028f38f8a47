//! A container's root: the image's layers with a writable folder on top.

mod mounted;
mod plan;
mod usage;

pub use mounted::RootFs;
pub(crate) use mounted::Snapshots;
pub use usage::Usage;
