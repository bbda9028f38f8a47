//! The driver with a disk of its own: all that holds with plain files (`tests/volume`), and what is new.
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not know as such")]

#[path = "../volume/copies.rs"]
mod copies;
mod disk;
#[path = "../volume/groups.rs"]
mod groups;
#[path = "../volume/host.rs"]
mod host;
#[path = "../volume/life.rs"]
mod life;
#[path = "../volume/refusals.rs"]
mod refusals;
#[path = "../volume/restart.rs"]
mod restart;
#[path = "../volume/rig.rs"]
mod rig;

/// Volumes lie on a disk of the pool's own.
fn pool() -> trine_csi_driver::PoolKind {
    trine_csi_driver::PoolKind::Disk
}
