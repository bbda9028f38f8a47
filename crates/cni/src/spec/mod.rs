//! What the CNI specification says, as types. Nothing here does I/O.
//!
//! - [`Version`] which texts are versions, and what each can do
//! - [`NetworkList`], [`PluginConfig`] a network's configuration
//! - [`Env`], [`Request`] what a plugin is asked
//! - [`CniResult`] what it answers, in the shape of any version
//! - [`CniError`], [`Code`] why it could not

mod config;
mod error;
mod request;
mod result;
mod result_legacy;
mod version;

pub use config::{NetworkList, PluginConfig, RuntimeFacts};
pub use error::{CniError, Code};
pub use request::{AttachmentId, Command, Env, Request, parse_args, valid_name};
pub use result::{CniResult, Dns, Interface, IpConfig, RouteConfig};
pub use version::{ALL_VERSIONS, Version};
