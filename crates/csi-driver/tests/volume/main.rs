//! The driver over its real socket, with real devices and mounts.
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not know as such")]

mod copies;
mod life;
mod refusals;
mod restart;
mod rig;
