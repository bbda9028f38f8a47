//! The side of the plugins, one file each. All of them answer ADD, DEL, CHECK, GC, STATUS and VERSION.
//!
//! - [`plugin_main`] the executed form, `serve` the called one
//! - `loopback`, `routed` (the built-in network), `bridge`, `host_local`, `portmap` (ports of the host)
//! - `delegate` how the first three ask for addresses
//! - [`default_network`] the configuration of the built-in network

mod bridge;
mod default_network;
mod delegate;
mod host_local;
mod links;
mod loopback;
mod main;
mod portmap;
mod routed;
mod serve;

pub use default_network::{DefaultNetwork, default_network};
pub use main::{built_in, plugin_main};
pub(crate) use routed::OWN;
pub(crate) use serve::{Caller, Plugin, find, serve};
