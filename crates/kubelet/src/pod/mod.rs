//! One worker per Pod: what it wants next, purely.
pub mod backoff;
pub mod memory;
pub mod plan;
pub mod spec;
