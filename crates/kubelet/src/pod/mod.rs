//! One worker per Pod. A hung Pod holds up nobody else.
//!
//! - [`plan`] what to do next, purely, from what is wanted, what runs, and the clock
//! - [`backoff`] and [`memory`] what a worker remembers between two looks
//! - [`worker`] the loop: observe, plan, act, report
//! - [`act`] performing a plan; [`start`], [`stop`], [`hooks`], [`images`], [`mounts`] are its steps
//! - [`manager`] which worker there is for which Pod, and Pods that nobody wants any more
//! - [`context`] what all workers share

pub mod act;
pub mod backoff;
pub mod context;
pub mod hooks;
pub mod images;
pub mod manager;
pub mod memory;
pub mod mounts;
pub mod plan;
pub mod spec;
pub mod start;
pub mod stop;
pub mod termination;
pub mod worker;

pub use context::Context;
