//! May these two talk? The node's share of NetworkPolicies, in nftables: a map leads from a Pod's address to the policies that
//! select it. Pods that come, go and change are elements; a policy's rules are chains that are never changed, only replaced.
//!
//! ```text
//! forward ─ egress:  answers pass ─ source      ──map──▶ profile ─▶ policy, policy, ... else dropped
//!         └ ingress: answers pass ─ destination ──map──▶ profile ─▶ policy, policy, ... else dropped
//! ```
//! What is translated is judged by its true ends: behind the destination's translation, before the source's. Every packet that is no
//! answer is judged, so a policy that changes holds for the connections that are there. The node itself and its Pods always reach
//! each other (`forward` does not see them), as Kubernetes has it.
//!
//! - [`run`] watches NetworkPolicies, and Pods and namespaces as long as there are any, and keeps the node true to them
//! - [`cleanup`] removes every trace of an instance; [`run`] leaves its rules in place, as Pods outlive Trine
//! - [`model`] objects of the API, reduced to what matters here; [`ranges`] blocks of addresses without their exceptions (pure)
//! - [`plan`] what the node has to hold, and what changes in it (pure); [`verdict`] what that means for a connection (pure)
//! - [`rules`] the same as a table (pure)
//! - [`Engine`] the executor: a model, a plan and the kernel

mod config;
mod engine;
mod error;
pub mod lookup;
pub mod model;
pub mod plan;
pub mod policy;
pub mod ranges;
pub mod rules;
pub mod verdict;
mod watch;

pub use config::Config;
pub use engine::{Engine, Turn, cleanup};
pub use error::PolicyError;
pub use watch::run;
