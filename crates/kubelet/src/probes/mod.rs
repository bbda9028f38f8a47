//! Startup, liveness and readiness of containers.
//!
//! - [`tally`] counting results against the thresholds, purely
//! - [`attempt`] one probe: exec, HTTP, TCP, gRPC
//! - [`manager`] one task per container and probe

pub mod attempt;
pub mod manager;
pub mod tally;

pub use manager::{Counts, Probes, Said};
