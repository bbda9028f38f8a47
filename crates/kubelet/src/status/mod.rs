//! From what runs to the Pod's status.
//!
//! - [`containers`] container statuses with state, last state and waiting reasons
//! - [`phase`] the phase
//! - [`conditions`] the five conditions
//! - [`generate`](mod@generate) the whole status, purely
//! - [`writer`] sending it when it changed

pub mod conditions;
pub mod containers;
pub mod generate;
pub mod phase;
pub mod writer;

pub use generate::{StatusInput, generate};
