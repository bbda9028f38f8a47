//! Can it reach the other nodes? A route to each node's Pods, by the node's own address, where that is on a link of ours.
//!
//! - [`run`] watches Nodes and keeps the routes true to them, until told to stop; tells which range this node has
//! - [`cleanup`] removes an instance's routes; [`run`] leaves them, as Pods outlive Trine
//! - [`plan`] which routes there should be, and what changes (pure)

pub mod plan;
mod routes;
mod watch;

pub use plan::Me;
pub use routes::{OverlayError, cleanup};
pub use watch::run;
