//! The gRPC side: each call in a step span, on a blocking thread, with its error as a status.
//!
//! - `identity`, `controller` with `snapshots`, `groups`, `node` the services of CSI
//! - `registrar` the kubelet's plugin registration

mod controller;
mod groups;
mod identity;
mod node;
mod registrar;
mod run;
mod snapshots;

pub use registrar::Registrar;
pub use run::Service;
