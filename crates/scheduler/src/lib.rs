//! On which node? Upstream's extension points and plugin names, as pure functions over a snapshot.
//!
//! - [`snapshot`] what is known: nodes with their Pods, claims, volumes, classes
//! - [`framework`] the filters of all plugins, and the sentence that says why no node fits
//! - [`scoring`] the best of those that fit
//! - [`plugins`] one file each
//! - [`preemption`] who makes room for a Pod of higher priority, `evict` and how
//! - [`queue`] when a Pod that did not fit is tried again
//! - [`cycle`] watches, decides, binds

pub mod cycle;
mod evict;
pub mod framework;
pub mod plugins;
pub mod preemption;
pub mod queue;
pub mod scoring;
pub mod snapshot;

pub use cycle::{Config, SchedulerError, run};
