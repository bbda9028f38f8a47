//! What the tests that cross crates share: a cluster of the real program in a data dir of its own, removed when
//! dropped, and the current kubectl.
//!
//! - [`cluster`] `trine up`, commands against it, `trine down --purge`
//! - [`kubectl`] the client, built from its published module
//! - [`registry`] a real registry on loopback, and an image that other tools made
//! - [`wait`] until something holds, with a deadline and the last thing seen

pub mod cluster;
pub mod kubectl;
pub mod registry;
pub mod wait;

pub use cluster::{Cluster, Outcome, program};
pub use wait::until;
