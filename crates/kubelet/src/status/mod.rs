//! From what runs to the Pod's status.
//!
//! - [`containers`] container statuses with state, last state and waiting reasons
//! - [`phase`] the phase
//! - [`conditions`] the five conditions
//! - [`generate`](mod@generate) the whole status, purely
//! - [`refused`](mod@refused) the status of a Pod that the node does not take
//! - [`resizing`] what containers have, and whether that is what they were given
//! - [`writer`] sending it when it changed

pub mod conditions;
pub mod containers;
pub mod generate;
pub mod phase;
pub mod refused;
pub mod resizing;
pub mod writer;

pub use generate::{StatusInput, generate};
pub use refused::refused;
