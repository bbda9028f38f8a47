//! What does Linux say? The only crate with `unsafe`, netlink, mounts and other syscalls.
//!
//! - [`filesystem`] making, recognising, measuring and growing file systems
//! - [`loopdev`] block devices made of files
//! - [`mountpoint`] single mounts of a storage driver, and what is mounted now
//! - [`testing`] what tests that need root ask first

pub mod filesystem;
pub mod loopdev;
pub mod mountpoint;
pub mod testing;
