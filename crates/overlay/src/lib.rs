//! Can it reach the other nodes? A way to each node's Pods: a route by the node's own address where that is on our link, else a
//! tunnel (VXLAN).
//!
//! - [`run`] watches Nodes and the kernel and keeps the ways true to both, until told to stop; tells what this node's Pods are given
//! - [`cleanup`] removes an instance's ways; [`run`] leaves them, as Pods outlive Trine
//! - [`plan`] which ways there should be (pure); [`vtep`] the tunnels' ends, [`entries`] the kernel's entries, [`heed`] its news
//! - [`checksums`] who computes those of tunnels
//! - [`sync`] one pass of the executor; [`tell`] what there is, in words

mod act;
pub mod checksums;
pub mod entries;
pub mod heed;
mod news;
pub mod plan;
mod tell;
#[cfg(test)]
mod testing;
mod trials;
pub mod vtep;
mod watch;

pub use act::{OverlayError, Synced, cleanup, sync};
pub use checksums::Checksums;
pub use plan::{Me, Mode, Peer};
pub use tell::tell;
pub use watch::{Told, run};
