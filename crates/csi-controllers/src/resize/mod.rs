//! Volumes that claims want larger, or of another attributes class: upstream's external-resizer.
//!
//! - [`plan`] which are due, and with what
//! - `act` the calls and the writes

mod act;
pub mod plan;
mod watch;

pub(crate) use watch::run;
