//! What the tests that cross crates share: a cluster of the real program in a data dir of its own, removed when
//! dropped, and the current kubectl.
//!
//! - [`api`] the API server and its controllers without a node, in this process
//! - [`cluster`] `trine up`, commands against it, `trine down --purge`
//! - [`flow`] what people do with kubectl, written as text
//! - [`go`] programs in Go, built from published modules
//! - [`helm`] helm, built from its published module
//! - [`kubectl`] the client, built from its published module
//! - [`python`] the Python client
//! - [`registry`] a real registry on loopback, and an image that other tools made
//! - [`wait`] until something holds, with a deadline and the last thing seen

pub mod api;
pub mod cluster;
pub mod flow;
pub mod go;
pub mod helm;
pub mod kubectl;
pub mod python;
pub mod registry;
pub mod wait;

pub use cluster::{Cluster, Outcome, program};
pub use wait::until;
