//! The driver over its real socket, with real devices and mounts.

mod life;
mod refusals;
mod restart;
mod rig;
