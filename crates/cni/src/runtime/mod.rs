//! The side of the runtime: which network, which plugins in which order, what is kept for later.
//!
//! - [`Runtime`] the asynchronous face; the work is synchronous and runs on threads that may block
//! - [`Attachment`] what is to be attached, [`Attached`] how it is
//! - [`Which`] the network that is meant; `told` how a kubelet says it
//! - `engine` the operations, `conf_dir` the folder of configurations, `cache` what was attached, `order` who waits
//!   for whom; `wishes` what has to come true, `gateways` which way default routes go
//!
//! An attachment has a cache file from before its ADD until after its DEL: that file is the record of the intent, and
//! DEL and GC work from it even if the configuration is gone.

mod cache;
mod chain;
mod conf_dir;
mod engine;
mod gateways;
mod gc;
mod handle;
mod order;
#[cfg(test)]
mod tests;
mod told;
mod wishes;

pub use conf_dir::BrokenFile;
pub use engine::{Attached, Attachment, NetworkStatus, RuntimeOptions, Which};
pub use handle::Runtime;
