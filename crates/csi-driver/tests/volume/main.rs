//! The driver over its real socket, with real devices and mounts.
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not know as such")]

mod copies;
mod groups;
mod life;
mod refusals;
mod restart;
mod rig;

/// Volumes are files on whatever the tests run on. The same tests run with a disk of its own in `tests/pooled`.
fn pool() -> trine_csi_driver::PoolKind {
    trine_csi_driver::PoolKind::Files
}
