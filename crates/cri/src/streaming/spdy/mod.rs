//! SPDY/3.1 as Kubernetes speaks it: frames and header blocks, no flow control (the one client that is
//! around, moby/spdystream, has none).
//!
//! - [`connection`] how a connection goes over to it
//! - [`frame`] what goes over the wire
//! - [`headers`] compressed header blocks, with the dictionary of SPDY/3

pub mod connection;
pub mod frame;
mod headers;
