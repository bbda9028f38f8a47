//! SPDY/3.1 as Kubernetes speaks it for port-forward: frames and header blocks, no flow control (the one client that is
//! around, moby/spdystream, has none).
//!
//! - [`frame`] what goes over the wire
//! - [`headers`] compressed header blocks, with the dictionary of SPDY/3

pub mod frame;
mod headers;
