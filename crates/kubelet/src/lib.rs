//! Is this node's share of it true?
//!
//! The kubelet talks to three neighbours, each through its published contract only: the API server through
//! [`trine_typed::kube::Client`], the runtime through the CRI socket, storage drivers through the sockets that
//! they register.
//!
//! - [`run`] starts everything and returns when told to stop; Pods live on
//! - [`config`] what it is told, and upstream's numbers
//! - [`networks`] what a Pod is attached to beside its default network
//! - [`node`] the Node object, its status and its lease
//! - [`admission`] whether the node takes a Pod
//! - [`pod`] one worker per Pod: a pure plan and its executor
//! - [`container`] from a Pod's spec to the runtime's configuration
//! - [`resize`] changing what its containers have
//! - [`users`] which of the host's ids a Pod has for its own users
//! - [`eviction`] whether enough of the node is left
//! - [`status`] from what runs to the Pod's status
//! - [`log_rotation`] keeping containers' logs short
//! - `periodic` what is done again and again
//! - [`probes`] startup, liveness, readiness
//! - [`volumes`] desired and actual mounts, a pure plan, its operations
//! - [`devices`] devices of claims, made ready and taken back
//! - [`plugins`] registration of drivers
//! - [`runtime`] the CRI client and what it observes
//! - [`api`] the HTTPS server: logs, exec, attach, pods

pub mod admission;
pub mod api;
pub mod config;
pub mod container;
pub mod devices;
pub mod error;
pub mod events;
pub mod eviction;
pub mod log_rotation;
pub mod networks;
pub mod node;
mod periodic;
pub mod plugins;
pub mod pod;
pub mod probes;
pub mod resize;
mod run;
pub mod runtime;
pub mod status;
pub mod step;
pub mod users;
pub mod volumes;
pub mod wake;

pub use config::Config;
pub use error::KubeletError;
pub use run::run;
