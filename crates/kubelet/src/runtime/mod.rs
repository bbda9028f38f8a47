//! The runtime as the kubelet sees it, through the CRI socket alone.
//!
//! - [`client`] every call with a deadline and an error that names call and object
//! - [`labels`] the label and annotation keys that tie sandboxes and containers to Pods; upstream's
//! - [`observed`] sandboxes and containers of one Pod as plain values
//! - [`events`] what changed: the event stream, and a relist behind it

pub mod client;
pub mod events;
pub mod labels;
pub mod observed;

pub use client::Runtime;
pub use observed::{ContainerView, Observed, RunState, SandboxView};
