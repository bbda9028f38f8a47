//! By what name is it found? The cluster's names, answered on every node by the Kubernetes DNS specification 1.1, and
//! everybody else's from the node's own name servers, remembered for a while.
//!
//! - [`run`] follows Services, EndpointSlices and namespaces, and answers until told to stop
//! - [`zone`] the objects, reduced to names and addresses (pure)
//! - [`answer`] what a name means (pure)
//! - [`reply`] an answer as a message: truncated, shuffled, with the zone's authority (pure)
//! - [`cache`] what others answered (pure)
//! - [`upstream`] which others there are, from `resolv.conf` (pure)
//! - [`announce`] this node as an endpoint of the Service `kube-system/kube-dns`, unless somebody else serves it
//! - `forward`, `resolver`, `sockets`, `watch` the executors

pub mod announce;
pub mod answer;
pub mod cache;
mod config;
mod error;
mod forward;
pub mod reply;
mod resolver;
mod run;
mod sockets;
pub mod upstream;
mod watch;
pub mod zone;

#[cfg(test)]
mod specification;
#[cfg(test)]
mod traffic;

pub use config::{Announcement, Config, FIRST_PORT};
pub use error::DnsError;
pub use run::run;
