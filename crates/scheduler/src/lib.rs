//! On which node? Upstream's extension points and plugin names, as pure functions over a snapshot.
//!
//! - [`cache`] what is known, changed piece by piece by watches; [`snapshot`] what decisions see of it, [`nodes`] with their Pods
//! - [`pod_info`], [`amounts`], [`terms`] what is worked out of a Pod once
//! - [`owners`] which Pods belong together
//! - [`index`] counts that are kept, so that no decision goes over all Pods
//! - [`framework`] the filters of all plugins, and the sentence that says why no node fits
//! - [`scoring`] the best of those that fit
//! - [`devices`] what drivers offer, and what claims get of it
//! - [`plugins`] one file each; [`profile`] which of them have a say for whom, and how they are set
//! - [`preemption`] who makes room for a Pod of higher priority, `evict` and how
//! - [`queue`] whose turn it is, and when one that did not fit is tried again; [`events`] what can help it
//! - [`cycle`] watches and decides; `bind` and `reserve` what is written then, `tell` what is told

pub mod amounts;
mod bind;
pub mod cache;
pub mod cycle;
pub mod devices;
pub mod events;
mod evict;
pub mod framework;
pub mod index;
pub mod nodes;
pub mod owners;
pub mod plugins;
pub mod pod_info;
pub mod preemption;
pub mod profile;
pub mod queue;
mod reserve;
pub mod scoring;
pub mod snapshot;
mod tell;
pub mod terms;

pub use cycle::{SchedulerError, run};
pub use profile::{Config, ConfigurationError};
