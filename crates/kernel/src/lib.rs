//! What does Linux say? The only crate with `unsafe`, netlink, mounts and other syscalls.
//!
//! - [`testing`] what tests that need root ask first

pub mod testing;
