//! Snapshots of several claims at one moment: upstream's group controller and its sidecar in one, for one driver.
//!
//! ```text
//! VolumeGroupSnapshot ── Begin ── VolumeGroupSnapshotContent ── Take ── CreateVolumeGroupSnapshot
//!                     ├─ Fill ─── a VolumeSnapshot and its content for each volume ── Tell ── the group is ready
//!                     └─ Discard ─ they go, the content goes ── Delete ── DeleteVolumeGroupSnapshot ── Release
//! ```
//!
//! - [`plan`] which are due
//! - [`kinds`] the objects, [`definitions`] their definitions
//! - `act` the calls and the writes, `fill` those about members

mod act;
mod definitions;
mod fill;
pub mod kinds;
pub mod plan;
mod watch;

pub use definitions::definitions;
pub(crate) use watch::run;
