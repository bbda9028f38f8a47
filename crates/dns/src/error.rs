//! What can go wrong before a question is asked.

use std::net::SocketAddr;

/// The name server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The address is taken, or not this machine's.
    #[error("dns: cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The domain is no domain.
    #[error("dns: {domain:?} is not a domain")]
    Domain {
        /// What was given.
        domain: String,
    },
    /// A watch ended by itself.
    #[error("dns: the watch of {kind} ended")]
    WatchEnded {
        /// Of what.
        kind: &'static str,
    },
}
