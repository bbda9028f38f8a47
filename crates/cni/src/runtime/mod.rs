//! The side of the runtime: which network, which plugins in which order, what is kept for later.
//!
//! - [`Runtime`] the asynchronous face; the work is synchronous and runs on threads that may block
//! - [`Attachment`] what is to be attached, [`Attached`] how it is
//! - `engine` the operations, `conf_dir` the folder of configurations, `cache` what was attached, `order` who waits
//!   for whom
//!
//! An attachment has a cache file from before its ADD until after its DEL: that file is the record of the intent, and
//! DEL and GC work from it even if the configuration is gone.

mod cache;
mod chain;
mod conf_dir;
mod engine;
mod gc;
mod handle;
mod order;
#[cfg(test)]
mod tests;

pub use conf_dir::BrokenFile;
pub use engine::{Attached, Attachment, NetworkStatus, RuntimeOptions};
pub use handle::Runtime;
