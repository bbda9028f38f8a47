//! Snapshots of claims: upstream's snapshot controller and its sidecar in one, for one driver.
//!
//! ```text
//! VolumeSnapshot ── Begin ── VolumeSnapshotContent ── Take ── CreateSnapshot ── Tell ── the snapshot is ready
//!                └─ Discard ─ the content is deleted ─ Delete ── DeleteSnapshot ── Release
//! ```
//!
//! - [`plan`] which are due
//! - [`kinds`] the objects, [`definitions`] their definitions, [`status`] what they say
//! - `act` the calls and the writes

mod act;
pub(crate) mod definitions;
pub mod kinds;
pub mod plan;
pub mod status;
mod watch;

pub use definitions::definitions;
pub(crate) use watch::run;
