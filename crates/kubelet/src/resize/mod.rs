//! Changing what a running Pod's containers have of cpu and memory.
//!
//! - [`given`] what the node has given to each container; it differs from the spec while a change waits
//! - [`plan`] whether a change can be given, and whether a container has what it was given, purely

pub mod given;
pub mod plan;

pub use given::Given;
pub use plan::{Numbers, Pending};
