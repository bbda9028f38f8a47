//! Is it on the network? Both sides of the CNI contract, versions 0.1.0 to 1.1.0: a runtime that drives anybody's
//! plugins, and plugins that anybody's runtime can drive.
//!
//! - [`Runtime`] attaches sandboxes by the first valid network of a configuration folder, or another ([`Which`]): [`Runtime::add`],
//!   [`Runtime::del`], [`Runtime::check`], [`Runtime::status`], [`Runtime::gc`]
//! - [`plugin_main`] serves one built-in plugin in the executed form
//! - [`program`] serves any other [`Plugin`] so
//! - [`call_built_in`] calls one in this process
//! - [`default_network`] the configuration of the built-in network
//! - [`spec`] what the contract says: versions, configurations, requests, results, errors

#![forbid(unsafe_code)]

mod invoke;
mod ipam;
mod plugins;
mod runtime;
pub mod spec;

pub use invoke::call_built_in;
pub use plugins::{DefaultNetwork, Plugin, built_in, default_network, plugin_main, program};
pub use runtime::{Attached, Attachment, BrokenFile, NetworkStatus, Runtime, RuntimeOptions, Which};
pub use spec::{AttachmentId, CniError, Code};
