//! The driver dies by `kill -9` at every place between two effects of a volume's life, while somebody writes.
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not know as such")]
#![cfg(debug_assertions)]

mod apart;
mod calls;
mod everywhere;
#[path = "../volume/host.rs"]
mod host;
#[path = "../volume/rig.rs"]
#[allow(dead_code, reason = "its other calls are for other tests")]
mod rig;
mod writer;

/// The pool has a disk of its own, so that the places in that are reached, too.
fn pool() -> trine_csi_driver::PoolKind {
    trine_csi_driver::PoolKind::Disk
}
